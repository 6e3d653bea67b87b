//! What a worker fetches and what it hashes for others, as tasks beside the actor. Takes no decision.

use std::sync::Arc;

use bytes::Bytes;
use ractor::ActorRef;
use sardana_collectives::gradient::Sum;
use sardana_protocol::limits::HASHING_SIGN;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::{Event, Lacking};
use sardana_protocol::messages::{MemberAddress, Restore, Snapshot};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::{StateHash, StatePieces};
use sardana_protocol::words::{Generation, Rank, Step};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::actor::{Message, cut};
use super::driver::{Arrival, Moved, SavedState, StepDriver};
use super::hashing::hashed;
use super::restoring::Reader;
use crate::fault::{self, Point};
use crate::peers::{CopyError, FollowedSum, Peers};
use crate::watched::Watched;

/// Tells a transfer from those before it, which may say their end late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Serial(u64);

/// What a joiner waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    State,
    Sum(WantedSum),
}

/// What a worker fetches: at most one thing to join, and one to catch up.
pub(super) struct Transfers {
    driver: Arc<StepDriver>,
    peers: Arc<Peers>,
    pieces: Arc<StatePieces>,
    serial: u64,
    joining: Option<Joining>,
    catching_up: Option<AbortHandle>,
}

struct Joining {
    serial: Serial,
    snapshot: SnapshotId,
    goal: Goal,
    holders: Arc<Watched<Snapshot>>,
    task: AbortHandle,
}

impl Transfers {
    pub(super) fn new(driver: Arc<StepDriver>, peers: Arc<Peers>, pieces: Arc<StatePieces>) -> Self {
        Self {
            driver,
            peers,
            pieces,
            serial: 0,
            joining: None,
            catching_up: None,
        }
    }

    /// Copies a snapshot. If that is under way, or its sums are followed already, only its holders have changed.
    pub(super) fn copy(&mut self, worker: &ActorRef<Message>, snapshot: Snapshot) {
        self.join(worker, snapshot, Goal::State);
    }

    /// Gets a sum from a keeper. If that is under way, only the keepers have changed.
    pub(super) fn follow(&mut self, worker: &ActorRef<Message>, snapshot: Snapshot, sum: WantedSum) {
        self.join(worker, snapshot, Goal::Sum(sum));
    }

    fn join(&mut self, worker: &ActorRef<Message>, snapshot: Snapshot, goal: Goal) {
        if let Some(joining) = &self.joining
            && joining.snapshot == snapshot.id
            && (joining.goal == goal || goal == Goal::State)
        {
            joining.holders.replace(snapshot);
            return;
        }
        self.end_copy();
        self.serial += 1;
        let (serial, id) = (Serial(self.serial), snapshot.id);
        let holders = Arc::new(Watched::new(snapshot));
        let known = Arc::clone(&holders);
        let (driver, peers, worker) = (Arc::clone(&self.driver), Arc::clone(&self.peers), worker.clone());
        let task = tokio::spawn(async move {
            let shares = known.read(|snapshot| snapshot.shares.clone());
            let came = match goal {
                Goal::State => copied(id, peers.copy_state(&known).await, shares),
                Goal::Sum(sum) => followed(&driver, peers.follow(&known, sum, driver.layout().bytes()).await),
            };
            let came = came.map_err(|reason| {
                tracing::warn!(snapshot = %id, error = %reason, "joining failed");
                let (snapshot, reason) = (id, cut(reason));
                Event::CopyFailed { snapshot, reason }
            });
            // The worker is gone only when the process ends.
            let _ = worker.cast(Message::Transferred { serial, came });
        });
        self.joining = Some(Joining {
            serial,
            snapshot: id,
            goal,
            holders,
            task: task.abort_handle(),
        });
    }

    /// Whether this is the end of the transfer that is under way; from then on none is.
    pub(super) fn take(&mut self, serial: Serial) -> bool {
        self.joining.take_if(|joining| joining.serial == serial).is_some()
    }

    /// Ends what is copied or followed.
    pub(super) fn end_copy(&mut self) {
        if let Some(joining) = self.joining.take() {
            joining.task.abort();
        }
    }

    /// Fetches what a member of `generation` lacks.
    pub(super) fn fetch(&mut self, worker: &ActorRef<Message>, generation: Generation, what: Lacking, donor: MemberAddress) {
        let (peers, driver, worker) = (Arc::clone(&self.peers), Arc::clone(&self.driver), worker.clone());
        let fetching = async move {
            let step = what.step();
            fault::reached(Point::Fetch, step);
            let fetched = match what {
                Lacking::Sum(wanted) => fetched_sum(&peers, &driver, generation, wanted, donor).await,
                Lacking::State(step) => fetched_state(&peers, generation, step, donor).await,
            };
            let message = match fetched {
                Ok(arrival) => Message::Fetched(arrival),
                Err(error) => {
                    tracing::warn!(%generation, %step, %error, "catching up failed");
                    Message::LinkBroken {
                        generation,
                        peer: donor.worker,
                    }
                }
            };
            let _ = worker.cast(message);
        };
        self.end_fetch();
        self.catching_up = Some(tokio::spawn(fetching).abort_handle());
    }

    /// Loads the checkpoint that a generation starts from.
    pub(super) fn restore(
        &mut self,
        worker: &ActorRef<Message>,
        reader: Reader,
        (generation, rank): (Generation, Rank),
        restore: Restore,
    ) {
        let (worker, step) = (worker.clone(), restore.key.step);
        let loading = async move {
            let message = match reader.load(generation, rank, restore).await {
                Ok(state) => Message::Fetched(Arrival::FetchedState { generation, step, state }),
                Err(reason) => {
                    tracing::warn!(%generation, %step, %reason, "the checkpoint could not be loaded");
                    let reason = cut(reason);
                    Message::NotRestored { generation, reason }
                }
            };
            let _ = worker.cast(message);
        };
        self.end_fetch();
        self.catching_up = Some(tokio::spawn(loading).abort_handle());
    }

    /// Ends what a member fetches.
    pub(super) fn end_fetch(&mut self) {
        if let Some(task) = self.catching_up.take() {
            task.abort();
        }
    }

    /// Finds memory for copies of these shares, beside the thread that others' steps wait for.
    pub(super) fn make_room(&self, shares: Vec<Share>) {
        let (driver, pieces, peers) = (Arc::clone(&self.driver), Arc::clone(&self.pieces), Arc::clone(&self.peers));
        let make = move || {
            let bytes = shares.iter().map(|&share| pieces.bytes_of(share).len());
            let mut room = driver.reserve().room(bytes.sum());
            room.find_pages();
            driver.room_made(room);
        };
        tokio::spawn(async move { peers.environment().blocking(make).await });
    }

    /// Hashes the copies of a snapshot's shares when they come, beside the thread that others' steps wait for.
    pub(super) fn hash(&self, snapshot: SnapshotId, shares: Vec<Share>, copies: oneshot::Receiver<Vec<Bytes>>) {
        let (driver, pieces, peers) = (Arc::clone(&self.driver), Arc::clone(&self.pieces), Arc::clone(&self.peers));
        tokio::spawn(async move {
            let sign = || driver.still_hashing(snapshot);
            let Some(copies) = come(copies, &driver.mover(), sign).await else {
                return;
            };
            let copies = shares.into_iter().zip(copies).collect();
            // It is cancelled only when the process ends.
            if let Some(held) = hashed(peers.environment(), pieces, copies, sign).await {
                driver.snapshotted(snapshot, held);
            }
        });
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.end_copy();
        self.end_fetch();
    }
}

/// The copies, once they are made; none if they are not. `sign` is called from time to time, if something has been moved since the last time: those
/// of a large state may take longer than a holder that says nothing is waited for, and several steps.
async fn come(mut copies: oneshot::Receiver<Vec<Bytes>>, moved: &Moved, sign: impl Fn()) -> Option<Vec<Bytes>> {
    let mut told = moved.bytes();
    loop {
        if let Ok(copies) = timeout(HASHING_SIGN, &mut copies).await {
            return copies.ok();
        }
        let bytes = moved.bytes();
        if bytes > std::mem::replace(&mut told, bytes) {
            sign();
        }
    }
}

fn copied(snapshot: SnapshotId, copied: Result<Bytes, CopyError>, shares: Vec<StateHash>) -> Result<Arrival, String> {
    let bytes = copied.map_err(|error| error.to_string())?;
    fault::reached(Point::Copied, snapshot.step);
    let state = SavedState {
        bytes,
        shares,
        compared_here: true,
    };
    Ok(Arrival::Copied { snapshot, state })
}

fn followed(driver: &StepDriver, followed: Result<FollowedSum, CopyError>) -> Result<Arrival, String> {
    let FollowedSum { bytes, told } = followed.map_err(|error| error.to_string())?;
    let sum = Sum::from_bytes(told.step, driver.layout(), bytes).map_err(|error| error.to_string())?;
    Ok(Arrival::Followed { told, sum })
}

async fn fetched_sum(
    peers: &Arc<Peers>,
    driver: &StepDriver,
    generation: Generation,
    wanted: WantedSum,
    donor: MemberAddress,
) -> Result<Arrival, String> {
    let layout = driver.layout();
    let bytes = peers.fetch_sum(donor, wanted, layout.bytes()).await;
    let bytes = bytes.map_err(|error| error.to_string())?;
    let sum = Sum::from_bytes(wanted.step, layout, bytes).map_err(|error| error.to_string())?;
    Ok(Arrival::FetchedSum { generation, sum })
}

async fn fetched_state(
    peers: &Arc<Peers>,
    generation: Generation,
    step: Step,
    donor: MemberAddress,
) -> Result<Arrival, String> {
    let bytes = peers.fetch_state(donor, step).await.map_err(|error| error.to_string())?;
    let state = SavedState {
        bytes,
        shares: Vec::new(),
        compared_here: true,
    };
    Ok(Arrival::FetchedState { generation, step, state })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sign_is_given_while_a_copy_goes_on_and_none_while_it_stands_still() {
        let (reply, copies) = oneshot::channel();
        let (moved, signs) = (Moved::default(), Cell::new(0));
        let copying = async {
            // Past the next look of the task that waits, however its instant is rounded.
            for bytes in [1, 0, 0, 7] {
                moved.add(bytes);
                advance(HASHING_SIGN * 3 / 2).await;
            }
            reply.send(vec![Bytes::from_static(b"share")]).unwrap();
        };
        // The task that waits looks before the copying goes on.
        let (come, ()) = tokio::join!(biased; come(copies, &moved, || signs.set(signs.get() + 1)), copying);
        assert_eq!((come.unwrap(), signs.get()), (vec![Bytes::from_static(b"share")], 2));
    }
}
