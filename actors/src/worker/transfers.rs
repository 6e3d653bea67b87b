//! What a worker fetches and what it hashes for others, as tasks beside the actor. Takes no decision.

use std::sync::Arc;

use bytes::Bytes;
use ractor::ActorRef;
use sardana_collectives::gradient::Sum;
use sardana_protocol::member::Event;
use sardana_protocol::messages::{CatchUp, MemberAddress, Restore, Snapshot};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Generation, Rank, Step};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::actor::{Message, cut};
use super::desk::{Data, Desk};
use super::give_back::given_back_aside;
use super::hashing::hashed;
use super::restoring::Reader;
use crate::fault::{self, Point};
use crate::peers::{CopyError, FetchError, FollowedSum, Peers};
use crate::watched::Watched;

/// Tells a transfer from those before it, which may say their end late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Serial(u64);

/// What a joiner waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    State,
    Sum(Step),
}

/// What a worker fetches: at most one thing to join, and one to catch up.
pub(super) struct Transfers {
    desk: Arc<Desk>,
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
    pub(super) fn new(desk: Arc<Desk>, peers: Arc<Peers>, pieces: Arc<StatePieces>) -> Self {
        Self {
            desk,
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

    /// Gets the sum of `step` from a keeper. If that is under way, only the keepers have changed.
    pub(super) fn follow(&mut self, worker: &ActorRef<Message>, snapshot: Snapshot, step: Step) {
        self.join(worker, snapshot, Goal::Sum(step));
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
        let (desk, peers, worker) = (Arc::clone(&self.desk), Arc::clone(&self.peers), worker.clone());
        let task = tokio::spawn(async move {
            let shares = known.read(|snapshot| snapshot.shares.clone());
            let (event, data) = match goal {
                Goal::State => copied(id, peers.copy_state(&known).await.map(|bytes| Data::State { bytes, shares })),
                Goal::Sum(step) => followed(id, step, &desk, peers.follow(&known, step, desk.layout().bytes()).await),
            };
            // The worker is gone only when the process ends.
            let _ = worker.cast(Message::Transferred { serial, event, data });
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
    pub(super) fn fetch(
        &mut self,
        worker: &ActorRef<Message>,
        generation: Generation,
        what: CatchUp,
        step: Step,
        donor: MemberAddress,
    ) {
        let (peers, desk, worker) = (Arc::clone(&self.peers), Arc::clone(&self.desk), worker.clone());
        let fetching = async move {
            fault::reached(Point::Fetch, step);
            let message = match fetched(&peers, &desk, what, step, donor).await {
                Ok(data) => Message::Fetched { generation, step, data },
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
                Ok(data) => Message::Fetched { generation, step, data },
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
        let (desk, pieces, peers) = (Arc::clone(&self.desk), Arc::clone(&self.pieces), Arc::clone(&self.peers));
        let make = move || {
            let room = shares.iter().map(|&share| touched(pieces.bytes_of(share).len()));
            desk.room_made(room.collect());
        };
        tokio::spawn(async move { peers.ground().beside(make).await });
    }

    /// Hashes the copies of a snapshot's shares when they come, beside the thread that others' steps wait for.
    pub(super) fn hash(&self, snapshot: SnapshotId, shares: Vec<Share>, copies: oneshot::Receiver<Vec<Bytes>>) {
        let (desk, pieces, peers) = (Arc::clone(&self.desk), Arc::clone(&self.pieces), Arc::clone(&self.peers));
        tokio::spawn(async move {
            let Ok(copies) = copies.await else { return };
            let copies = shares.into_iter().zip(copies.into_iter().map(given_back_aside)).collect();
            // It is cancelled only when the process ends.
            let sign = || desk.still_hashing(snapshot);
            if let Some(held) = hashed(peers.ground(), pieces, copies, sign).await {
                desk.snapshotted(snapshot, held);
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

/// An empty buffer whose memory is there already: the system finds a page only when it is first written to, which takes longer
/// than to copy into it.
fn touched(bytes: usize) -> Vec<u8> {
    let mut room = vec![1; bytes];
    room.clear();
    room
}

fn copied(snapshot: SnapshotId, copied: Result<Data, CopyError>) -> (Event, Data) {
    match copied {
        Ok(data) => {
            fault::reached(Point::Copied, snapshot.step);
            (Event::Copied { snapshot }, data)
        }
        Err(error) => failed(snapshot, &error),
    }
}

fn followed(snapshot: SnapshotId, step: Step, desk: &Desk, followed: Result<FollowedSum, CopyError>) -> (Event, Data) {
    match followed {
        Ok(FollowedSum {
            bytes,
            trailer,
            keeper_at,
        }) => {
            let event = Event::Followed {
                step,
                trailer,
                keeper_at,
            };
            // It has been compared with the layout's length.
            let sum = Sum::from_bytes(step, desk.layout(), bytes);
            (event, sum.map_or(Data::None, Data::Sum))
        }
        Err(error) => failed(snapshot, &error),
    }
}

fn failed(snapshot: SnapshotId, error: &CopyError) -> (Event, Data) {
    tracing::warn!(%snapshot, %error, "joining failed");
    let reason = cut(error.to_string());
    (Event::CopyFailed { snapshot, reason }, Data::None)
}

async fn fetched(
    peers: &Arc<Peers>,
    desk: &Desk,
    what: CatchUp,
    step: Step,
    donor: MemberAddress,
) -> Result<Data, FetchError> {
    let layout = desk.layout();
    Ok(match what {
        CatchUp::Sum { .. } => {
            let bytes = peers.fetch_sum(donor, step, layout.bytes()).await?;
            Sum::from_bytes(step, layout, bytes).map_or(Data::None, Data::Sum)
        }
        CatchUp::State { .. } => Data::State {
            bytes: peers.fetch_state(donor, step).await?,
            shares: Vec::new(),
        },
        // Not fetched from a member.
        CatchUp::Checkpoint | CatchUp::None => Data::None,
    })
}
