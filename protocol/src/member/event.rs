//! What a worker's machine is told, and what the trainer does next.

use super::saving::SavedShare;
use crate::checkpoint::DepotId;
use crate::messages::{CoordinatorMessage, StepReport, Trailer};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Pace, ShardRange, Step, WorkerId};

#[cfg(doc)]
use super::{Command, NetworkCommand};

/// A sum that a keeper has handed to a joiner that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// Its step.
    pub step: Step,
    /// The generation whose sum it is.
    pub generation: Generation,
    /// The trailer that closed it.
    pub trailer: Trailer,
    /// Updates that the keeper had applied when it answered.
    pub keeper_at: Step,
}

/// What happened. One list, as all of it is one story to the machine: what each event does depends on those before it, from any side.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// This worker is about to say hello with its [`introduction`](super::Member::introduction).
    Introducing,
    /// A coordinator has welcomed this worker.
    Welcomed {
        /// Its incarnation.
        incarnation: Incarnation,
        /// The first step whose report it lacks.
        report_from: Step,
    },
    /// The coordinator has sent this message. Messages that are about the worker's process, and not about its training, change nothing.
    Ordered(CoordinatorMessage),
    /// A share that [`Command::Save`] named is durable where it should be.
    Saved(Box<SavedShare>),
    /// A share that [`Command::Save`] named could not be written.
    NotSaved {
        /// Its snapshot.
        snapshot: SnapshotId,
        /// Its attempt.
        attempt: u32,
        /// The depot that could not be written to; none if that was not the reason.
        depot: Option<DepotId>,
        /// What was wrong.
        reason: String,
    },
    /// What [`NetworkCommand::Restore`] asked for could not be had.
    NotRestored {
        /// The generation that asked for it.
        generation: Generation,
        /// What was wrong.
        reason: String,
    },
    /// This worker is asked to leave, by a signal on its host.
    Leave {
        /// Why, for people.
        reason: String,
    },
    /// There is memory for the shares that [`NetworkCommand::MakeRoom`] named.
    RoomMade,
    /// The shares that [`Command::Snapshot`] asked for are being hashed, and more of them are than when this was last said.
    Hashing {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The shares that [`Command::Snapshot`] asked for are copied and hashed.
    Snapshotted {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The index of each share, and its hash.
        shares: Vec<(u32, StateHash)>,
    },
    /// All shares that [`NetworkCommand::Copy`] asked for are here, each with the hash it should have.
    Copied {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The sum that [`NetworkCommand::Follow`] asked for is here.
    Followed(Followed),
    /// No holder gave what [`NetworkCommand::Copy`] or [`NetworkCommand::Follow`] asked for.
    CopyFailed {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Which holders were asked, and what went wrong.
        reason: String,
    },
    /// All links of the generation, present or prepared, are made.
    LinksReady {
        /// The generation.
        generation: Generation,
    },
    /// A link broke or could not be made, or a donor did not deliver.
    LinkBroken {
        /// The generation.
        generation: Generation,
        /// The worker that it led to.
        peer: WorkerId,
    },
    /// The ring has the whole sum of a step.
    Summed {
        /// The ring's generation.
        generation: Generation,
        /// The step.
        step: Step,
        /// The orders for its boundary.
        trailer: Trailer,
    },
    /// What was fetched to catch up is there, complete and checked.
    Fetched {
        /// The generation that asked for it.
        generation: Generation,
        /// The step of the sum, or of the state.
        step: Step,
    },
    /// The trainer has computed the gradient that [`Work::Gradient`] asked for.
    Computed {
        /// The step.
        step: Step,
        /// The piece.
        piece: ShardRange,
        /// The shard.
        shard: u32,
    },
    /// The trainer has applied the sum that [`Work::Apply`] asked for.
    Applied {
        /// The step's report.
        report: StepReport,
    },
    /// The trainer has loaded the state that [`Work::Load`] asked for.
    Loaded,
    /// The trainer has done what [`Work::Conclude`] asked for.
    Concluded {
        /// Hash of the final state.
        hash: StateHash,
        /// What the model's evaluation found.
        results: Vec<(String, f64)>,
    },
    /// So many bytes of states and sums were fetched, loaded or hashed in this process's whole life.
    Moved {
        /// How many.
        bytes: u64,
    },
    /// Reports are due; every so often a heartbeat as well.
    Beat {
        /// Whether to speak even without news.
        heartbeat: Heartbeat,
    },
}

/// Whether a beat must be sent although there is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// It is time to say something, and how fast this worker is, if that is measured.
    Due(Option<Pace>),
    /// Only if there is something to say.
    NotDue,
}

/// What the trainer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Compute the gradient of `shard` into the buffer of `piece`.
    Gradient {
        /// The step.
        step: Step,
        /// The buffer's piece.
        piece: ShardRange,
        /// The shard: the piece's first is stored, later ones are added.
        shard: u32,
        /// It completes the piece, and the ring may begin with what of the piece is written while the rest is being written. It must not be
        /// able to end before [`Event::Computed`] is handed in. No [`Command::Offer`] comes for it, unless by then there is another ring.
        offered: bool,
    },
    /// Apply the sum of this step.
    Apply {
        /// The step.
        step: Step,
    },
    /// Load the state that was fetched or copied. If it came with hashes of its shares the model is then compared with it, or with them.
    Load {
        /// Its step.
        step: Step,
    },
    /// The last update is applied: hash the state and evaluate the model.
    Conclude {
        /// The last step.
        step: Step,
    },
    /// Nothing until the next event.
    Wait,
}
