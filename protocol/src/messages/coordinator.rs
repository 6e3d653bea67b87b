//! What the coordinator says to workers.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{Form, MemberAddress, Save};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Step, WorkerId};

/// From coordinator to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
pub enum CoordinatorMessage {
    /// Accept nothing older than `generation` any more. `Halted` comes back.
    Halt {
        /// The generation that will be formed next.
        generation: Generation,
    },
    /// The next generation. `Ready` comes back.
    Form(Box<Form>),
    /// A generation that a trailer will switch to while the present one trains. Its first and steady plans are the same, and its
    /// `step` is 0: it begins at the boundary of that trailer. `Ready` comes back. Once it has begun, it is said again with the
    /// step that it began with, to members that have not said so: a joiner that stands there already sees no such trailer.
    Prepare(Box<Form>),
    /// To the rank that closes the sums of `generation`: the next sum's trailer.
    CloseWith {
        /// The generation meant.
        generation: Generation,
        /// What its next trailer says, unless it says stop already.
        trailer: Trailer,
    },
    /// To members that hold a snapshot, or are to: which workers they serve besides members, and what of it these may still need.
    /// `RoomMade` comes back if the snapshot is yet to be taken. To every member: it is over.
    Serve(Serve),
    /// To a holder of a snapshot: write it down. `Saved` comes back for each share, or `NotSaved`.
    Save(Box<Save>),
    /// To a holder: the checkpoint of this snapshot is committed, or given up. It keeps nothing for its sake any more.
    SaveOver {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// To a joiner: copy this snapshot, then follow. `Copying` comes back. Sent again when a holder is gone.
    Copy(Box<Snapshot>),
    /// The worker has left in good order: its shares are others' now. It ends well.
    Released {
        /// The step at which it left.
        step: Step,
    },
    /// Answer to `Renew`.
    Renewed {
        /// The new certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// The job is done: all members reported this step and hash. The worker ends.
    Complete {
        /// Updates applied.
        step: Step,
        /// Hash of the final state.
        hash: StateHash,
    },
    /// The worker is no longer part of the job and ends.
    Dismiss {
        /// Why, and what to do.
        reason: String,
    },
}

/// A snapshot as a joiner needs it. Shares are numbered by place: see [`crate::snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The snapshot.
    pub id: SnapshotId,
    /// The members that hold it, by place; none for a member that is gone.
    pub holders: Vec<Option<MemberAddress>>,
    /// The hash of each share, by place.
    pub shares: Vec<StateHash>,
}

/// Which workers a member serves, and what it keeps for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Joiners that may fetch shares and sums. A worker that is not named is served nothing.
    pub joiners: Joiners,
    /// The snapshot that they copy; older ones are dropped. None if it is yet to be taken.
    pub snapshot: Option<SnapshotId>,
    /// What becomes of its shares.
    pub shares: Shares,
    /// Sums of older steps are not needed any more.
    pub sums_from: Step,
}

/// Workers that may fetch of a snapshot. They may be many, so that only the first order for a snapshot names all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joiners {
    /// These, and no other worker.
    Only(Vec<WorkerId>),
    /// As before, but for these.
    Changed {
        /// They may from now on.
        came: Vec<WorkerId>,
        /// They may no longer.
        gone: Vec<WorkerId>,
    },
}

impl Joiners {
    /// Whether no worker may.
    #[must_use]
    pub fn are_none(&self) -> bool {
        matches!(self, Self::Only(joiners) if joiners.is_empty())
    }
}

/// What becomes of the shares of a snapshot at its holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shares {
    /// They are kept: some joiner may still copy them.
    Keep,
    /// They are dropped: no joiner needs them any more.
    Drop,
}

/// The orders for a boundary, which close every sum, so that all members agree on them without asking the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trailer {
    /// Go on with the next step.
    Continue,
    /// The job ends after this update.
    Stop,
    /// Every member copies its shares of the state after this update.
    Snapshot,
    /// This generation ends after this update. Members that were given an order to prepare for this one go on in it; the others are
    /// halted for it.
    Switch(Generation),
}

impl Trailer {
    /// What a closer says next when it was to say this, and is asked to say `asked`: a stop is final, a switch gives way to a stop
    /// or to another switch, and all of them to nothing less.
    #[must_use]
    pub const fn and(self, asked: Self) -> Self {
        match (self, asked) {
            (Self::Stop, _) | (_, Self::Stop) => Self::Stop,
            (Self::Switch(_), Self::Switch(next)) | (Self::Switch(next), _) | (_, Self::Switch(next)) => Self::Switch(next),
            (Self::Snapshot, _) | (_, Self::Snapshot) => Self::Snapshot,
            (Self::Continue, Self::Continue) => Self::Continue,
        }
    }

    /// What is left to be said once it is said: a snapshot is asked for once.
    #[must_use]
    pub const fn after_closing(self) -> Self {
        match self {
            Self::Continue | Self::Snapshot => Self::Continue,
            Self::Stop => Self::Stop,
            Self::Switch(next) => Self::Switch(next),
        }
    }
}
