//! Writes shares of a snapshot to depots, beside everything else. Takes no decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ractor::ActorRef;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::member::{Event, SavedShare};
use sardana_protocol::messages::{Save, WorkerMessage};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StatePieces;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::actor::{Message, cut as cut_to_length};
use super::driver::{HeldShare, StepDriver};
use crate::depot::Depots;
use crate::fault::{self, Point};

/// So often the coordinator is told that a share is still being written.
const STILL_AT_IT: Duration = Duration::from_secs(1);

/// What a worker writes: the shares of at most one snapshot.
pub(super) struct Saver {
    driver: Arc<StepDriver>,
    depots: Arc<Depots>,
    pieces: Arc<StatePieces>,
    description: Arc<[(PieceHash, Bytes)]>,
    current: Option<Current>,
}

struct Current {
    snapshot: SnapshotId,
    attempt: u32,
    held: Vec<HeldShare>,
    writing: BTreeMap<u32, Writing>,
}

enum Writing {
    UnderWay(AbortHandle),
    /// It was told; the answer may be lost.
    Done(SavedShare),
}

impl Current {
    fn stop(&mut self) {
        for writing in std::mem::take(&mut self.writing).into_values() {
            match writing {
                Writing::UnderWay(task) => task.abort(),
                Writing::Done(_) => {}
            }
        }
    }
}

/// How the writing of a share ended.
#[derive(Debug)]
pub(super) struct Outcome {
    snapshot: SnapshotId,
    attempt: u32,
    share: u32,
    event: Event,
}

impl Saver {
    pub(super) fn new(
        driver: Arc<StepDriver>,
        depots: Arc<Depots>,
        pieces: Arc<StatePieces>,
        description: Arc<[(PieceHash, Bytes)]>,
    ) -> Self {
        Self {
            driver,
            depots,
            pieces,
            description,
            current: None,
        }
    }

    /// Writes what is ordered. What was written for the same attempt is said again; `held` is empty if the snapshot was given before.
    /// Returns what is to be said at once.
    pub(super) fn save(&mut self, worker: &ActorRef<Message>, save: Save, held: Vec<HeldShare>) -> Vec<Event> {
        if self.current.as_ref().is_none_or(|current| current.snapshot != save.snapshot) {
            self.end();
            self.current = Some(Current {
                snapshot: save.snapshot,
                attempt: save.attempt,
                held,
                writing: BTreeMap::new(),
            });
        }
        let Some(current) = &mut self.current else { return Vec::new() };
        if current.attempt > save.attempt {
            return Vec::new();
        }
        if current.attempt < save.attempt {
            current.stop();
            current.attempt = save.attempt;
        }
        let mut said = Vec::new();
        let mut begun = Vec::new();
        for &index in &save.shares {
            let held = current.held.iter().find(|held| held.share.index == index);
            match (current.writing.get(&index), held) {
                (Some(Writing::UnderWay(_)), _) => {}
                (Some(Writing::Done(saved)), _) => said.push(Event::Saved(Box::new(saved.clone()))),
                (None, Some(held)) => begun.push(held.clone()),
                (None, None) => said.push(Event::NotSaved {
                    snapshot: save.snapshot,
                    attempt: save.attempt,
                    depot: None,
                    reason: format!("this worker does not hold share {index}"),
                }),
            }
        }
        for held in begun {
            let index = held.share.index;
            let task = self.begin(worker, &save, held);
            if let Some(current) = &mut self.current {
                current.writing.insert(index, Writing::UnderWay(task));
            }
        }
        said
    }

    /// Nothing of it is needed any more.
    pub(super) fn end(&mut self) {
        if let Some(mut current) = self.current.take() {
            current.stop();
        }
    }

    /// The writing of a share has ended: what is to be said of it, unless it was given up meanwhile.
    pub(super) fn ended(&mut self, outcome: Outcome) -> Option<Event> {
        let of_this = |current: &&mut Current| current.snapshot == outcome.snapshot && current.attempt == outcome.attempt;
        let current = self.current.as_mut().filter(of_this)?;
        if let Event::Saved(saved) = &outcome.event {
            current.writing.insert(outcome.share, Writing::Done((**saved).clone()));
        } else {
            current.writing.remove(&outcome.share);
        }
        Some(outcome.event)
    }

    fn begin(&self, worker: &ActorRef<Message>, save: &Save, held: HeldShare) -> AbortHandle {
        let (snapshot, attempt, share) = (save.snapshot, save.attempt, held.share.index);
        let depots = Arc::clone(&self.depots);
        let (pieces, description) = (Arc::clone(&self.pieces), Arc::clone(&self.description));
        let (to, replicas, worker) = (save.depots.clone(), save.replicas, worker.clone());
        let progress = progress(Arc::clone(&self.driver), snapshot, attempt);
        let writing = async move {
            let bytes = held.bytes.len() as u64;
            let cut = cut_up(&pieces, &held);
            fault::reached(Point::Saving, snapshot.step);
            let all: Vec<(PieceHash, Bytes)> = cut.iter().chain(description.iter()).cloned().collect();
            let event = match depots.write_share(&to, replicas, snapshot, &all, progress).await {
                Ok(()) => Event::Saved(Box::new(SavedShare {
                    snapshot,
                    attempt,
                    share,
                    bytes,
                    description: description.iter().map(|(piece, _)| *piece).collect(),
                    state: pieces.size(),
                    pieces: cut.into_iter().map(|(piece, _)| piece).collect(),
                })),
                Err((depot, reason)) => Event::NotSaved {
                    snapshot,
                    attempt,
                    depot,
                    reason: cut_to_length(reason),
                },
            };
            fault::reached(Point::Written, snapshot.step);
            let outcome = Outcome {
                snapshot,
                attempt,
                share,
                event,
            };
            // The worker is gone only when the process ends.
            let _ = worker.cast(Message::Written(Box::new(outcome)));
        };
        tokio::spawn(writing).abort_handle()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.end();
    }
}

/// A share's pieces, by name.
fn cut_up(pieces: &StatePieces, held: &HeldShare) -> Vec<(PieceHash, Bytes)> {
    let parts = pieces.pieces_in(held.share).map(|range| held.bytes.slice(range));
    held.pieces.iter().copied().zip(parts).collect()
}

/// Tells the coordinator now and then that a share is still being written.
fn progress(driver: Arc<StepDriver>, snapshot: SnapshotId, attempt: u32) -> impl Fn() + Send + Sync {
    let last = Mutex::new(Instant::now());
    move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= STILL_AT_IT {
            *last = Instant::now();
            driver.say(WorkerMessage::Saving { snapshot, attempt });
        }
    }
}
