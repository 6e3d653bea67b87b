//! What a worker's machine is told, and what it wants done.

use strum::IntoStaticStr;

use super::saving::SavedShare;
use crate::checkpoint::DepotId;
use crate::messages::{
    CatchUp, CoordinatorMessage, Form, MemberAddress, Restore, Save, Snapshot, StepReport, Trailer, WorkerMessage,
};
use crate::snapshot::{Share, SnapshotId};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Pace, Rank, ShardRange, Step, WorkerId};

/// What happened.
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
    /// The coordinator has sent this message. Those that are about the worker's process, and not about its training, change nothing.
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
    /// What [`Command::Restore`] asked for could not be had.
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
    /// There is memory for the shares that [`Command::MakeRoom`] named.
    RoomMade,
    /// The shares that [`Command::Snapshot`] asked for are being hashed, and more of them are than when this was last said.
    Hashing {
        /// Of which snapshot.
        snapshot: SnapshotId,
    },
    /// The shares that [`Command::Snapshot`] asked for are copied and hashed.
    Snapshotted {
        /// Which snapshot.
        snapshot: SnapshotId,
        /// The index of each share, and its hash.
        shares: Vec<(u32, StateHash)>,
    },
    /// All shares that [`Command::Copy`] asked for are here, each with the hash it should have.
    Copied {
        /// Of which snapshot.
        snapshot: SnapshotId,
    },
    /// The sum that [`Command::Follow`] asked for is here.
    Followed {
        /// Its step.
        step: Step,
        /// The trailer that closed it.
        trailer: Trailer,
        /// Updates that the keeper had applied when it answered.
        keeper_at: Step,
    },
    /// No holder gave what [`Command::Copy`] or [`Command::Follow`] asked for.
    CopyFailed {
        /// Of which snapshot.
        snapshot: SnapshotId,
        /// Whom was asked, and what went wrong.
        reason: String,
    },
    /// All links of the generation, present or prepared, are made.
    LinksReady {
        /// Which generation.
        generation: Generation,
    },
    /// A link broke or could not be made, or a donor did not deliver.
    LinkBroken {
        /// Of which generation.
        generation: Generation,
        /// Whom it led to.
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

/// What is to be done, at once and without blocking.
#[derive(Debug, Clone, PartialEq, IntoStaticStr)]
pub enum Command {
    /// Tell the coordinator.
    Send(WorkerMessage),
    /// Make the ring's links of this generation, then say [`Event::LinksReady`].
    Connect(Box<Form>),
    /// End the ring of this generation: nothing of it is accepted any more.
    Abort {
        /// The generation.
        generation: Generation,
    },
    /// Let the ring work on this step.
    Begin {
        /// The step.
        step: Step,
    },
    /// Give a complete piece of the step under way to the ring.
    Offer {
        /// The piece.
        piece: ShardRange,
    },
    /// Drop the buffers of all pieces but these.
    Retain {
        /// Which to keep.
        pieces: Vec<ShardRange>,
    },
    /// There is no ring: add up these pieces, in order, to the sum of the step under way.
    SumAlone {
        /// All of 0..K.
        pieces: Vec<ShardRange>,
        /// The orders that it is closed with.
        trailer: Trailer,
    },
    /// Keep the sum, or state, that came with this event: it is the one to be applied, or loaded, next. A sum's trailer is kept
    /// with it, for those who follow.
    Accept {
        /// The trailer of a sum; `Continue` for a state.
        trailer: Trailer,
    },
    /// Lay the sum that came with this event aside: the one before it is still being applied.
    LayAside,
    /// The sum that was laid aside is the one to be applied next.
    AcceptAside {
        /// Its trailer.
        trailer: Trailer,
    },
    /// The ring's next closed sum says this.
    CloseWith {
        /// What.
        trailer: Trailer,
    },
    /// Make the links of a generation to come, beside the ring that runs, then say [`Event::LinksReady`]. Replaces what was
    /// prepared before.
    Prepare(Box<Form>),
    /// The generation that was prepared begins with this step. The ring before it has closed its last sum: it ends by itself once
    /// that is sent on. Who follows or copies no longer does.
    Switch {
        /// The generation that begins.
        generation: Generation,
        /// The step it begins with.
        step: Step,
    },
    /// What was prepared will not come: end it.
    Unprepare,
    /// A snapshot is to come: find memory for copies of these shares, beside the training thread, then say [`Event::RoomMade`].
    /// For none of them: it will not come.
    MakeRoom {
        /// Which shares.
        shares: Vec<Share>,
    },
    /// Before the next update: copy these shares of the state, then say [`Event::Snapshotted`]. Drops an older snapshot and the
    /// sums kept with it.
    Snapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Which shares.
        shares: Vec<Share>,
    },
    /// Write shares of the snapshot that is held to depots, then say [`Event::Saved`] for each, or [`Event::NotSaved`]. Keep all that are
    /// held of it until [`Command::EndSave`]. Given again for the same snapshot, with a higher attempt: begin anew. For another: forget
    /// the one before.
    Save(Box<Save>),
    /// What was kept for [`Command::Save`] is not needed any more.
    EndSave,
    /// Load the checkpoint that a generation starts from, this member's share (if it reads one) from the depots and the rest from the
    /// readers, then say [`Event::Fetched`] with the state, or [`Event::NotRestored`].
    Restore {
        /// For which generation.
        generation: Generation,
        /// This member's place.
        rank: Rank,
        /// What, and from whom.
        restore: Box<Restore>,
    },
    /// All members have what [`Command::Restore`] asked for: nothing of it need be kept for them.
    EndRestore,
    /// Keep the newest applied sum, with its trailer, for those who follow.
    KeepSum {
        /// Its step.
        step: Step,
    },
    /// Let go of what is kept: shares, and sums before a step.
    LetGo {
        /// The shares too.
        shares: bool,
        /// Sums of older steps; all of them if none.
        sums_before: Option<Step>,
    },
    /// From now on serve shares and sums to these workers only, besides the members of the present generation.
    Admit {
        /// The joiners.
        joiners: Vec<WorkerId>,
    },
    /// Copy all shares of this snapshot from their holders, then say [`Event::Copied`] with the state, or [`Event::CopyFailed`].
    /// Given again for the same snapshot when a holder is gone: go on with the others.
    Copy(Box<Snapshot>),
    /// Get the sum of this step from one of its keepers, who may have to wait for it, then say [`Event::Followed`] with the sum, or
    /// [`Event::CopyFailed`].
    Follow {
        /// The step.
        step: Step,
        /// Whom to ask, in this order.
        snapshot: Box<Snapshot>,
    },
    /// End what [`Command::Copy`] and [`Command::Follow`] have begun.
    EndCopy,
    /// Fetch from a donor, then say [`Event::Fetched`] or [`Event::LinkBroken`].
    Fetch {
        /// For which generation.
        generation: Generation,
        /// Sum or state.
        what: CatchUp,
        /// The step of the sum, or of the state.
        step: Step,
        /// The donor.
        donor: MemberAddress,
    },
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
    },
    /// Apply the sum of this step.
    Apply {
        /// The step.
        step: Step,
    },
    /// Load the state that was fetched or copied. If it was copied, its shares are then compared with their hashes once more.
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
