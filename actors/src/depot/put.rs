//! Pieces come in. What is not on the disk is not acknowledged.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::Ordering;

use quinn::ReadExactError;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::{DESCRIPTION_PIECES, MAX_PIECES, PIECE_BYTES};
use sardana_protocol::snapshot::SnapshotId;

use super::limits::{BATCH_BYTES, LIST_BYTES, MAX_SNAPSHOTS, ROUND_PIECES};
use super::server::{End, Server, Talk, meanwhile, moving};
use super::talk::{Answer, Offer};
use crate::fault::{self, Point};
use crate::store::PinId;

/// A piece as it arrived.
type Arrived = (PieceHash, Vec<u8>);

impl Server {
    pub(super) async fn put(&self, snapshot: SnapshotId, pieces: u32, talk: &mut Talk) -> Result<(), End> {
        let most = MAX_PIECES + DESCRIPTION_PIECES;
        if pieces as usize > most {
            return Err(End::Refused(format!("expected at most {most} pieces, found {pieces}")));
        }
        // Nobody queues for a disk that hangs: those that are told at once go elsewhere.
        self.unless_it_hangs()?;
        let _room = talk.waiting(self.puts.acquire()).await?;
        let pin = self.pins.of(snapshot).ok_or_else(|| {
            End::Refused(format!(
                "expected pieces of at most {MAX_SNAPSHOTS} snapshots that were not released, found {snapshot} beside those; the \
                 coordinator releases them with the next checkpoint"
            ))
        })?;
        let put = self.put_all(snapshot, pin, pieces, talk).await;
        if !self.pins.still(snapshot, pin) {
            put?;
            return Err(End::Refused(format!("nobody waits for {snapshot} any more: it was released")));
        }
        put?;
        fault::reached(Point::DepotSync, snapshot.step);
        talk.say(&Answer::Durable).await
    }

    async fn put_all(&self, snapshot: SnapshotId, pin: PinId, pieces: u32, talk: &mut Talk) -> Result<(), End> {
        let mut left = pieces as usize;
        while left > 0 {
            let offers: Vec<Offer> = talk.hear(LIST_BYTES).await?;
            check(&offers, left)?;
            left -= offers.len();
            let hashes: Vec<PieceHash> = offers.iter().map(|offer| offer.piece).collect();
            let missing = talk.waiting(self.on_store(move |store| store.pin(pin, &hashes))).await??;
            let (indices, wanted) = wanted(&offers, missing);
            talk.say(&Answer::Wanted { offers: indices }).await?;
            self.take(pin, &wanted, talk).await?;
        }
        fault::reached(Point::DepotPut, snapshot.step);
        let synced = talk.waiting(self.on_store(|store| store.sync())).await??;
        synced.map_err(|error| End::Refused(error.to_string()))
    }

    /// Receives and writes those that are wanted. While one batch is written the next one is received.
    async fn take(&self, pin: PinId, wanted: &[Offer], talk: &mut Talk) -> Result<(), End> {
        let mut left = wanted.iter();
        let mut batch = receive(&mut left, talk).await?;
        while !batch.is_empty() {
            let mut writing = pin!(self.write(pin, batch));
            let (next, written) = meanwhile(receive(&mut left, talk), writing.as_mut()).await;
            match written {
                Some(written) => written?,
                None if next.is_ok() => talk.waiting(writing).await??,
                None => {}
            }
            batch = next?;
        }
        Ok(())
    }

    async fn write(&self, pin: PinId, batch: Vec<Arrived>) -> Result<(), End> {
        let bytes: usize = batch.iter().map(|(_, bytes)| bytes.len()).sum();
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        let written = self.on_store(move |store| {
            let pieces: Vec<&[u8]> = batch.iter().map(|(_, bytes)| bytes.as_slice()).collect();
            let found = store.put(pin, &pieces).map_err(|error| error.to_string())?;
            let other = batch.iter().zip(found).find(|((expected, _), found)| expected != found);
            match other {
                None => Ok(()),
                Some(((expected, _), found)) => Err(format!(
                    "expected the bytes of piece {expected}, found those of {found}; send them again"
                )),
            }
        });
        written.await?.map_err(End::Refused)
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

/// The next few.
async fn receive(left: &mut impl Iterator<Item = &Offer>, talk: &mut Talk) -> Result<Vec<Arrived>, End> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while bytes + PIECE_BYTES <= BATCH_BYTES
        && let Some(offer) = left.next()
    {
        let mut piece = vec![0; offer.bytes as usize];
        let arrived = moving(talk.receive.read_exact(&mut piece)).await?;
        arrived.map_err(|error| End::Broken(cut_off(&error)))?;
        bytes += piece.len();
        batch.push((offer.piece, piece));
    }
    Ok(batch)
}

fn cut_off(error: &ReadExactError) -> String {
    match error {
        ReadExactError::FinishedEarly(found) => format!("a piece ended after {found} bytes"),
        ReadExactError::ReadError(error) => error.to_string(),
    }
}
