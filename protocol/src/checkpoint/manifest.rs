//! What a checkpoint says of itself.

use serde::{Deserialize, Serialize};

use super::{DepotId, ManifestKey, PieceHash};
use crate::job::{JobIdentity, Task};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Incarnation, JobId, Step};

/// A checkpoint: the state of a job at a step. It names all that is needed to load it, and nothing of how many workers made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run that made it. A job that is started again has another one.
    pub run: JobId,
    /// The snapshot that it was made of.
    pub snapshot: SnapshotId,
    /// What the job computes: only the same one may resume from it.
    pub identity: JobIdentity,
    /// Pieces that say what the state's tensors are called: their bytes, one after the other, are a [`Description`] as the codec of
    /// messages writes it.
    pub description: Vec<PieceHash>,
    /// The pieces of the state in order: see [`crate::state::StatePieces`].
    pub pieces: Vec<PieceHash>,
    /// Bytes of the state.
    pub bytes: u64,
    /// On so many hosts its pieces should be.
    pub replicas: u32,
    /// The depots that they were placed on when it was committed: see [`super::placement`].
    pub depots: Vec<DepotId>,
    /// Which placing that was.
    pub placing: Placing,
}

/// One placing of a snapshot on depots. What is placed anew has another manifest, also on the same depots: one that was deleted is never
/// wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placing {
    /// Of the coordinator that placed it.
    pub incarnation: Incarnation,
    /// Its own number for that.
    pub number: u32,
}

impl Placing {
    /// The placing of a checkpoint that no coordinator has placed: a person put it into one directory.
    pub const BY_HAND: Self = Self {
        incarnation: Incarnation::ZERO,
        number: 0,
    };
}

/// The names, dtypes and shapes of a state's tensors, in order.
pub type Description = Vec<crate::state::TensorSpec>;

impl Manifest {
    /// The step of the state.
    #[must_use]
    pub fn step(&self) -> Step {
        self.snapshot.step
    }

    /// All pieces that are needed to load it, those of the description first. One may occur more than once.
    pub fn needs(&self) -> impl Iterator<Item = PieceHash> + '_ {
        self.description.iter().chain(&self.pieces).copied()
    }
}

/// A checkpoint as a depot tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// What it is called.
    pub key: ManifestKey,
    /// The run that made it.
    pub run: JobId,
    /// The snapshot that it was made of.
    pub snapshot: SnapshotId,
    /// [`JobIdentity::task`] of the job.
    pub task: Task,
    /// [`JobIdentity::build`] of what computed it.
    pub build: StateHash,
    /// On so many hosts its pieces should be.
    pub replicas: u32,
    /// The depots that they were placed on.
    pub depots: Vec<DepotId>,
    /// Which placing that was.
    pub placing: Placing,
    /// Whether all pieces that this depot should have of it are there, as far as is known without reading them.
    pub condition: Condition,
}

impl Head {
    /// How many of its depots keep each piece.
    #[must_use]
    pub fn is_kept_by(&self) -> usize {
        (self.replicas.max(1) as usize).min(self.depots.len())
    }
}

/// Whether a depot has all that it should have of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// It has.
    Whole,
    /// Something is missing or damaged there.
    Lacking,
}

/// A whole manifest as the coordinator hands it to depots in parts, since it may be longer than a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Bytes of the manifest before this part.
    pub start: u64,
    /// Bytes of the whole manifest.
    pub of: u64,
}
