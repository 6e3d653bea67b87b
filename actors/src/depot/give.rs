//! Pieces and manifests go out. A damaged piece does not keep back the others: the client gets it elsewhere.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_protocol::words::Step;
use sardana_storage::store::limits::PIECE_BYTES;
use sardana_storage::store::{Places, ReadError, ShowError, Store};
use tokio::time::timeout;

use super::limits::{BATCH_BYTES, LIST_BYTES, PATH_BYTES, ROUND_MOST, ROUND_PIECES};
use super::server::Server;
use super::stream::{End, Talk, meanwhile, moving};
use super::talk::{Answer, cut};
use super::turn::Turn;
use crate::fault::{self, Point};

/// Pieces that are read at once.
const BATCH_PIECES: usize = BATCH_BYTES / PIECE_BYTES;

/// What was read of a piece.
type Read = Result<Vec<u8>, ReadError>;

impl Server {
    pub(super) async fn get(&self, pieces: u32, talk: &mut Talk) -> Result<(), End> {
        let list = asked_for(pieces, talk).await?;
        let _turn = Turn::wait(&self.gets, talk).await?;
        let given = timeout(ROUND_MOST, self.give_all(&list, talk)).await;
        given.unwrap_or_else(|_| {
            let pieces = list.len();
            Err(End::Broken(format!(
                "{pieces} pieces were not taken within {ROUND_MOST:?}, and others may wait"
            )))
        })
    }

    async fn give_all(&self, list: &[PieceHash], talk: &mut Talk) -> Result<(), End> {
        let mut batches = list.chunks(BATCH_PIECES);
        let mut batch = talk.waiting(self.read(batches.next())).await??;
        while !batch.is_empty() {
            fault::reached(Point::DepotGive, Step::ZERO);
            let mut reading = pin!(self.read(batches.next()));
            let (given, next) = meanwhile(self.give(batch, talk), reading.as_mut()).await;
            given?;
            batch = match next {
                Some(next) => next?,
                None => talk.waiting(reading).await??,
            };
        }
        Ok(())
    }

    pub(super) async fn places(&self, pieces: u32, talk: &mut Talk) -> Result<(), End> {
        let list = asked_for(pieces, talk).await?;
        let found = talk.waiting(self.on_store(move |store| store.places(&list))).await??;
        let told = found.and_then(|Places { segments, places }| {
            let segments = segments.into_os_string().into_string().ok()?;
            (segments.len() <= PATH_BYTES).then_some(Answer::Places { segments, places })
        });
        talk.say(&told.unwrap_or(Answer::NotHere)).await
    }

    async fn read(&self, batch: Option<&[PieceHash]>) -> Result<Vec<Read>, End> {
        let batch = batch.unwrap_or_default().to_vec();
        self.on_store(move |store| read_all(store, &batch)).await
    }

    async fn give(&self, batch: Vec<Read>, talk: &mut Talk) -> Result<(), End> {
        for read in batch {
            match read {
                Ok(bytes) => {
                    self.given.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    give_bytes(bytes, talk).await?;
                }
                Err(ReadError::NotHeld { .. }) => talk.say(&Answer::NotHere).await?,
                Err(error @ (ReadError::Damaged { .. } | ReadError::Disk { .. })) => {
                    tracing::error!(target: "sardana::event::damaged", %error, "a piece of a checkpoint is damaged");
                    self.damage.notify_one();
                    let reason = cut(error.to_string());
                    talk.say(&Answer::Damaged { reason }).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn manifest(&self, key: ManifestKey, talk: &mut Talk) -> Result<(), End> {
        let _turn = Turn::wait(&self.manifests, talk).await?;
        match talk.waiting(self.on_store(move |store| store.show(key))).await?? {
            Ok(manifest) => {
                let given = timeout(ROUND_MOST, give_bytes(manifest.bytes().to_vec(), talk)).await;
                let late = || End::Broken(format!("a manifest was not taken within {ROUND_MOST:?}, and others may wait"));
                given.unwrap_or_else(|_| Err(late()))
            }
            Err(ShowError::NotThere { .. }) => talk.say(&Answer::NotHere).await,
            Err(error @ ShowError::Damaged { .. }) => {
                self.damage.notify_one();
                let reason = cut(error.to_string());
                talk.say(&Answer::Damaged { reason }).await
            }
        }
    }
}

/// The names of the pieces that are asked for.
async fn asked_for(pieces: u32, talk: &mut Talk) -> Result<Vec<PieceHash>, End> {
    if pieces as usize > ROUND_PIECES {
        return Err(End::Refused(format!(
            "expected at most {ROUND_PIECES} pieces, found {pieces}; ask several times"
        )));
    }
    let list: Vec<PieceHash> = talk.hear(LIST_BYTES).await?;
    if list.len() == pieces as usize {
        return Ok(list);
    }
    Err(End::Refused(format!("expected {pieces} pieces, found {}", list.len())))
}

fn read_all(store: &Store, pieces: &[PieceHash]) -> Vec<Read> {
    let read: Vec<Mutex<Read>> = pieces
        .iter()
        .map(|&piece| Mutex::new(Err(ReadError::NotHeld { piece })))
        .collect();
    store.read_many(pieces, |number, bytes| {
        *read[number].lock().unwrap_or_else(PoisonError::into_inner) = bytes.map(<[u8]>::to_vec);
    });
    let bare = |read: Mutex<Read>| read.into_inner().unwrap_or_else(PoisonError::into_inner);
    read.into_iter().map(bare).collect()
}

async fn give_bytes(bytes: Vec<u8>, talk: &mut Talk) -> Result<(), End> {
    talk.say(&Answer::Bytes {
        bytes: bytes.len() as u64,
    })
    .await?;
    // In parts, each of which must move.
    let mut left = Bytes::from(bytes);
    while !left.is_empty() {
        let part = left.split_to(left.len().min(PIECE_BYTES));
        let sent = moving(talk.send.write_chunk(part)).await?;
        sent.map_err(|error| End::Broken(error.to_string()))?;
    }
    Ok(())
}
