//! Pieces come in. What is not on the disk is not acknowledged.

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quinn::ReadExactError;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::{DESCRIPTION_PIECES, MAX_PIECES, PIECE_BYTES};
use sardana_protocol::snapshot::SnapshotId;
use sardana_storage::store::PinId;
use tokio::time::timeout;

use super::limits::{BATCH_BYTES, LIST_BYTES, MAX_SNAPSHOTS, PANE_BYTES, REQUEST_BYTES, ROUND_MOST, ROUND_PIECES};
use super::server::Server;
use super::stream::{End, Talk, meanwhile, moving};
use super::talk::{Answer, Offer, Shown};
use super::turn::Turn;
use super::window::{PANES, View, WindowAt};
use crate::fault::{self, Point};

impl Server {
    pub(super) async fn put(
        &self,
        snapshot: SnapshotId,
        (pieces, window): (u32, Option<WindowAt>),
        talk: &mut Talk,
    ) -> Result<(), End> {
        let most = MAX_PIECES + DESCRIPTION_PIECES;
        if pieces as usize > most {
            return Err(End::Refused(format!("expected at most {most} pieces, found {pieces}")));
        }
        // No request waits for a disk that hangs: clients that are told at once go elsewhere.
        self.unless_it_hangs()?;
        let mut turn = Turn::wait(&self.puts, talk).await?;
        let pin = self.pins.of(snapshot).ok_or_else(|| {
            End::Refused(format!(
                "expected pieces of at most {MAX_SNAPSHOTS} snapshots that were not released, found {snapshot} beside those; the \
                 coordinator releases them with the next checkpoint"
            ))
        })?;
        let view = self.view(window).await?;
        let put = self.put_all((snapshot, pin), (pieces, view), &mut turn, talk).await;
        if !self.pins.still(snapshot, pin) {
            put?;
            return Err(End::Refused(format!("{snapshot} is not wanted any more: it was released")));
        }
        put?;
        fault::reached(Point::DepotSync, snapshot.step);
        talk.say(&Answer::Durable).await
    }

    /// What is seen of a writer's memory; none if it shows none, or it cannot be seen from here.
    async fn view(&self, window: Option<WindowAt>) -> Result<Option<Arc<View>>, End> {
        let Some(at) = window else { return Ok(None) };
        let opened = moving(self.environment.blocking(move || View::open(at))).await?;
        let opened = opened.ok_or_else(|| End::Broken("this process ends".to_owned()))?;
        let opened = opened.map_err(|error| tracing::debug!(%error, "memory of a writer is not seen here"));
        Ok(opened.ok().map(Arc::new))
    }

    async fn put_all(
        &self,
        (snapshot, pin): (SnapshotId, PinId),
        (pieces, view): (u32, Option<Arc<View>>),
        turn: &mut Turn<'_>,
        talk: &mut Talk,
    ) -> Result<(), End> {
        let mut left = pieces as usize;
        while left > 0 {
            // Only here the client sends nothing that would have to be kept until its next turn.
            turn.let_others_in_if_over(talk).await?;
            let offers: Vec<Offer> = talk.hear(LIST_BYTES).await?;
            check(&offers, left)?;
            left -= offers.len();
            let hashes: Vec<PieceHash> = offers.iter().map(|offer| offer.piece).collect();
            let missing = talk.waiting(self.on_store(move |store| store.pin(pin, &hashes))).await??;
            let (indices, wanted) = wanted(&offers, missing);
            let looks = view.is_some();
            talk.say(&Answer::Wanted { offers: indices, looks }).await?;
            let taking = timeout(ROUND_MOST, self.take(pin, (&wanted, view.as_ref()), talk)).await;
            taking.unwrap_or_else(|_| {
                let bytes = wanted.iter().fold(0, |sum, offer| sum + u64::from(offer.bytes));
                Err(End::Refused(format!(
                    "expected {bytes} bytes within {ROUND_MOST:?}, since others may wait for their turn; see why this network is slow"
                )))
            })?;
        }
        fault::reached(Point::DepotPut, snapshot.step);
        let synced = talk.waiting(self.on_store(|store| store.sync())).await??;
        synced.map_err(|error| End::Refused(error.to_string()))
    }

    /// Takes and writes the pieces that are wanted. While one batch is written the next batch comes.
    async fn take(&self, pin: PinId, (wanted, view): (&[Offer], Option<&Arc<View>>), talk: &mut Talk) -> Result<(), End> {
        let mut left = wanted;
        let mut batch = self.come(Batch::default(), &mut left, (view, 0), talk).await?;
        let mut spare = Batch::default();
        for pane in (0..PANES).cycle().skip(1) {
            if batch.pieces.is_empty() {
                break;
            }
            let mut writing = pin!(self.write(pin, batch));
            let (next, written) = meanwhile(self.come(spare, &mut left, (view, pane), talk), writing.as_mut()).await;
            spare = match written {
                Some(written) => written?,
                None if next.is_ok() => talk.waiting(writing).await??,
                None => Batch::default(),
            };
            batch = next?;
        }
        Ok(())
    }

    /// The next few of the pieces that are left: sent, or shown. None once all have come.
    async fn come(
        &self,
        mut batch: Batch,
        left: &mut &[Offer],
        (view, pane): (Option<&Arc<View>>, usize),
        talk: &mut Talk,
    ) -> Result<Batch, End> {
        batch.pieces.clear();
        if left.is_empty() {
            return Ok(batch);
        }
        let Some(view) = view else {
            batch.receive(left, talk).await?;
            return Ok(batch);
        };
        let shown: Shown = talk.hear(REQUEST_BYTES).await?;
        let end = batch.expect(left, shown)?;
        let view = Arc::clone(view);
        let looking = self.environment.blocking(move || {
            let looked = view.look(pane, batch.room(end));
            (batch, looked)
        });
        let (batch, looked) = moving(looking)
            .await?
            .ok_or_else(|| End::Broken("this process ends".to_owned()))?;
        if let Err(error) = looked {
            talk.say(&Answer::Unseen).await?;
            talk.delivered().await;
            return Err(End::Broken(format!("memory of a writer is not seen any more: {error}")));
        }
        self.seen.fetch_add(end as u64, Ordering::Relaxed);
        talk.say(&Answer::Seen).await?;
        Ok(batch)
    }

    /// Writes a batch, and gives its memory back.
    async fn write(&self, pin: PinId, batch: Batch) -> Result<Batch, End> {
        let bytes: usize = batch.pieces.iter().map(|(_, range)| range.len()).sum();
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        let written = self.on_store(move |store| {
            let pieces: Vec<&[u8]> = batch.pieces.iter().map(|(_, range)| &batch.bytes[range.clone()]).collect();
            let found = store.put(pin, &pieces).map_err(|error| error.to_string())?;
            let other = batch
                .pieces
                .iter()
                .zip(found)
                .find(|((expected, _), found)| expected != found);
            match other {
                None => Ok(batch),
                Some(((expected, _), found)) => Err(format!(
                    "expected the bytes of piece {expected}, found those of {found}; send them again"
                )),
            }
        });
        written.await?.map_err(End::Refused)
    }
}

/// Pieces that have come, one after the other, and where each is. The memory is used for one batch after the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    pieces: Vec<(PieceHash, Range<usize>)>,
}

impl Batch {
    /// The next few that are sent.
    async fn receive(&mut self, left: &mut &[Offer], talk: &mut Talk) -> Result<(), End> {
        let mut end = 0;
        while end + PIECE_BYTES <= BATCH_BYTES
            && let Some((offer, rest)) = left.split_first()
        {
            *left = rest;
            let begin = end;
            end = self.add(*offer, begin);
            let arrived = moving(talk.receive.read_exact(&mut self.room(end)[begin..])).await?;
            arrived.map_err(|error| End::Broken(cut_off(&error)))?;
        }
        Ok(())
    }

    /// The pieces that are shown: how many bytes they are.
    fn expect(&mut self, left: &mut &[Offer], shown: Shown) -> Result<usize, End> {
        let next = (shown.pieces > 0)
            .then(|| left.split_at_checked(shown.pieces as usize))
            .flatten();
        let fits =
            |(next, _): &(&[Offer], &[Offer])| next.iter().map(|offer| offer.bytes as usize).sum::<usize>() <= PANE_BYTES;
        let (next, rest) = next.filter(fits).ok_or_else(|| {
            End::Refused(format!(
                "expected 1 to {} pieces of at most {PANE_BYTES} bytes to be shown, found {}",
                left.len(),
                shown.pieces
            ))
        })?;
        *left = rest;
        Ok(next.iter().fold(0, |begin, offer| self.add(*offer, begin)))
    }

    /// One more piece: where it ends.
    fn add(&mut self, offer: Offer, begin: usize) -> usize {
        let end = begin + offer.bytes as usize;
        self.pieces.push((offer.piece, begin..end));
        end
    }

    /// So many bytes. Memory only for what comes, and it is cleared once.
    fn room(&mut self, end: usize) -> &mut [u8] {
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[..end]
    }
}

fn check(offers: &[Offer], left: usize) -> Result<(), End> {
    let most = left.min(ROUND_PIECES);
    if offers.is_empty() || offers.len() > most {
        let found = offers.len();
        return Err(End::Refused(format!(
            "expected 1 to {most} pieces to be offered, found {found}"
        )));
    }
    match offers.iter().find(|offer| offer.bytes as usize > PIECE_BYTES) {
        None => Ok(()),
        Some(Offer { piece, bytes }) => Err(End::Refused(format!(
            "expected pieces of at most {PIECE_BYTES} bytes, found {piece} with {bytes}; cut it into several"
        ))),
    }
}

/// The offers of pieces that are missing, each piece once: their indices, and they.
fn wanted(offers: &[Offer], missing: Vec<PieceHash>) -> (Vec<u32>, Vec<Offer>) {
    let mut missing: HashSet<PieceHash> = missing.into_iter().collect();
    let wanted = (0_u32..).zip(offers).filter(|(_, offer)| missing.remove(&offer.piece));
    wanted.map(|(index, offer)| (index, *offer)).unzip()
}

fn cut_off(error: &ReadExactError) -> String {
    match error {
        ReadExactError::FinishedEarly(found) => format!("a piece ended after {found} bytes"),
        ReadExactError::ReadError(error) => error.to_string(),
    }
}
