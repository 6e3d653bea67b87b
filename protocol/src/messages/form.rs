//! A generation as one member of it is told: its own part, and the members that it has to do with.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Restore;
use crate::lineage::Lineage;
use crate::plan::Part;
use crate::words::{Generation, Rank, Step, WorkerId};

/// A generation as one member sees it. It grows with what the member has to do, not with the number of members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// Its number.
    pub generation: Generation,
    /// The receiver's place.
    pub rank: Rank,
    /// How many members there are.
    pub world_size: u32,
    /// Of the members: the coordinator's next life can tell from it whether all mean the same ones.
    pub digest: MembersDigest,
    /// The members that the receiver has links with, fetches from, or is fetched from by, in rank order. It knows no others.
    pub peers: Vec<Peer>,
    /// The step it starts from: all members' state once they have caught up.
    pub step: Step,
    /// Of that state. What is prepared says whose sum leads to it: that of the generation before.
    pub lineage: Lineage,
    /// What the receiver does in the first step. In a retry the running sum may come by twice.
    pub first: Part,
    /// What it does in every later step: it has one range of shards (GEN-2).
    pub steady: Part,
    /// How the receiver gets to `step`.
    pub catch_up: CatchUp,
    /// The checkpoint that it starts from, if it does.
    pub restore: Option<Box<Restore>>,
    /// The first step whose report the coordinator lacks.
    pub report_from: Step,
    /// The step at which the job ends early, if a trailer has already said so.
    pub stop_at: Option<Step>,
    /// Whether the state at the end is to be kept: all copy their shares of it before they conclude, and a member that is left out at a
    /// boundary copies its own, since the others may leave as well.
    pub last: Last,
}

impl Form {
    /// The member at `rank`, if the receiver has to do with it.
    #[must_use]
    pub fn peer(&self, rank: Rank) -> Option<MemberAddress> {
        let peer = self.peers.iter().find(|peer| peer.rank == rank);
        peer.map(|peer| peer.member)
    }
}

/// What becomes of the state when the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Last {
    /// Only its hash is told.
    Forgotten,
    /// It is a snapshot, of which a checkpoint is made.
    Snapshot,
}

/// Another member as one member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its place.
    pub rank: Rank,
    /// Its id and address.
    pub member: MemberAddress,
}

/// Names the members of a generation, in rank order: BLAKE3 of their ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MembersDigest([u8; 32]);

impl MembersDigest {
    /// The digest with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Of these members, in rank order.
    #[must_use]
    pub fn of(members: impl IntoIterator<Item = WorkerId>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("sardana members of a generation");
        for worker in members {
            hasher.update(&worker.get().to_le_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for MembersDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// A member of a generation and where it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddress {
    /// The worker.
    pub worker: WorkerId,
    /// Its address.
    pub address: SocketAddr,
}

/// How a member comes to the step that its generation starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    /// It is there.
    None,
    /// It is one step behind: fetch the sum of that step from this rank and apply it.
    Sum {
        /// The donor.
        from: Rank,
    },
    /// It has no usable state: fetch it from this rank.
    State {
        /// The donor.
        from: Rank,
    },
    /// No worker has the state: load it from the checkpoint that [`Form::restore`] names.
    Checkpoint,
}

impl CatchUp {
    /// The rank that it is fetched from.
    #[must_use]
    pub const fn donor(self) -> Option<Rank> {
        match self {
            Self::None | Self::Checkpoint => None,
            Self::Sum { from } | Self::State { from } => Some(from),
        }
    }
}
