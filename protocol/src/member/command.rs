//! What a worker's machine wants done: at its side, with the buffers, or elsewhere, over the network.

use strum::{IntoStaticStr, VariantNames};

use crate::lineage::WantedSum;
use crate::messages::{Form, MemberAddress, Restore, Save, Snapshot, Trailer, WorkerMessage};
use crate::snapshot::{Share, SnapshotId};
use crate::words::{Generation, Rank, ShardRange, Step, WorkerId};

#[cfg(doc)]
use super::Event;

/// What is to be done, at once and without blocking, by the owner of the machine and of the buffers of gradients, sums and shares.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum Command {
    /// Tell the coordinator.
    Send(WorkerMessage),
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
        /// The pieces to keep.
        pieces: Vec<ShardRange>,
    },
    /// There is no ring: add up these pieces, in order, to the sum of the step under way.
    SumAlone {
        /// All of 0..K.
        pieces: Vec<ShardRange>,
        /// The orders that it is closed with.
        trailer: Trailer,
    },
    /// Keep the sum, or state, that came with this event: it is the one to be applied, or loaded, next. A sum's trailer is kept with it,
    /// for joiners that follow.
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
        /// The trailer.
        trailer: Trailer,
    },
    /// Keep the newest applied sum, with its trailer, for joiners that follow.
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
    /// Make the ring's links of this generation, then say [`Event::LinksReady`].
    Connect(Box<Form>),
    /// Make the links of a generation to come, beside the ring that runs, then say [`Event::LinksReady`]. Replaces what was
    /// prepared before.
    Prepare(Box<Form>),
    /// Before the next update: copy these shares of the state, then say [`Event::Snapshotted`]. Drops an older snapshot and the
    /// sums kept with it.
    Snapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The shares.
        shares: Vec<Share>,
    },
    /// Write shares of the snapshot that is held to depots, then say [`Event::Saved`] for each, or [`Event::NotSaved`]. Keep all that are
    /// held of it until [`NetworkCommand::EndSave`]. Given again for the same snapshot, with a higher attempt: begin anew. For another:
    /// forget the one before.
    Save(Box<Save>),
    /// Hand this on, as it is.
    Network(NetworkCommand),
}

impl Command {
    /// What is to be done, by name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if let Self::Network(command) = self {
            command.into()
        } else {
            self.into()
        }
    }
}

/// What is to be begun or ended over the network, and beside the training thread. No buffer goes with it. What needs one is a [`Command`].
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum NetworkCommand {
    /// End the ring of this generation: nothing of it is accepted any more.
    Abort {
        /// The generation.
        generation: Generation,
    },
    /// The generation that was prepared begins with this step. The ring before it has closed its last sum: it ends by itself once
    /// that is sent on. A worker that follows or copies no longer does.
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
        /// The shares.
        shares: Vec<Share>,
    },
    /// From now on serve shares and sums to these workers only, besides the members of the present generation.
    Admit {
        /// The joiners.
        joiners: Vec<WorkerId>,
    },
    /// Fetch from a donor, then say [`Event::Fetched`] or [`Event::LinkBroken`].
    Fetch {
        /// The generation.
        generation: Generation,
        /// Sum or state.
        what: Lacking,
        /// The donor.
        donor: MemberAddress,
    },
    /// Copy all shares of this snapshot from their holders, then say [`Event::Copied`] with the state, or [`Event::CopyFailed`].
    /// Given again for the same snapshot when a holder is gone: go on with the others.
    Copy(Box<Snapshot>),
    /// Get this sum from one of its keepers, which may have to wait for it, then say [`Event::Followed`] with the sum, or
    /// [`Event::CopyFailed`].
    Follow {
        /// Which.
        sum: WantedSum,
        /// The keepers to ask, in this order.
        snapshot: Box<Snapshot>,
    },
    /// End what [`NetworkCommand::Copy`] and [`NetworkCommand::Follow`] have begun.
    EndCopy,
    /// What was kept for [`Command::Save`] is not needed any more.
    EndSave,
    /// Load the checkpoint that a generation starts from, this member's share (if it reads one) from the depots and the rest from the
    /// readers, then say [`Event::Fetched`] with the state, or [`Event::NotRestored`].
    Restore {
        /// The generation.
        generation: Generation,
        /// This member's place.
        rank: Rank,
        /// What to load, and from which depots and members.
        restore: Box<Restore>,
    },
    /// All members have what [`NetworkCommand::Restore`] asked for: nothing of it need be kept for them.
    EndRestore,
}

/// What a member that is behind fetches from a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacking {
    /// The sum that is to be added to its own state.
    Sum(WantedSum),
    /// The state at this step.
    State(Step),
}

impl Lacking {
    /// The step of it.
    #[must_use]
    pub const fn step(self) -> Step {
        match self {
            Self::Sum(WantedSum { step, .. }) | Self::State(step) => step,
        }
    }
}
