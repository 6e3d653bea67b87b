//! What is remembered of checkpoints, and of the one that is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checkpoint::{DepotAddress, DepotId, Every, Head, Keep, PieceHash, Placing};
use crate::holders::Taken;
use crate::laggards::Laggards;
use crate::planted::{Bug, bites};
use crate::snapshot::SnapshotId;
use crate::state::StateSize;
use crate::words::{Step, WorkerId};

/// When checkpoints are taken, where they are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saves {
    /// How often.
    pub every: Every,
    /// On how many hosts. Where there are fewer, on those that there are.
    pub replicas: u32,
    /// How long.
    pub keep: Keep,
}

/// What a checkpoint consists of, when all of it is durable: its manifest follows from this and from the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The pieces that describe the state's tensors.
    pub description: Vec<PieceHash>,
    /// The pieces of the state, in order.
    pub pieces: Vec<PieceHash>,
    /// Bytes of the state.
    pub bytes: u64,
    /// On so many hosts its pieces should be.
    pub replicas: u32,
    /// The depots that they are placed on.
    pub depots: Vec<DepotId>,
    /// Which placing that is.
    pub placing: Placing,
}

/// What has become of checkpoints so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SaveCounts {
    /// Committed.
    pub committed: u64,
    /// Begun and given up.
    pub given_up: u64,
    /// Not taken when they were due, since the one before was under way, or no member had reported that step: they are one with the next.
    pub merged: u64,
    /// The most steps between the step of a checkpoint and where training was when it was committed, as far as reported.
    pub largest_lag: u64,
}

/// What is remembered of checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Saved {
    /// The newest that was committed, or where training began, and when.
    pub(super) last: (Step, Duration),
    /// A checkpoint is wanted at once, of any step from this one on.
    pub(super) wanted: Option<Step>,
    /// The newest snapshot that was to become a checkpoint.
    pub(super) tried: Option<SnapshotId>,
    /// When the end of the job was first held back for the last one.
    pub(super) awaited: Option<Duration>,
    /// Which snapshot was to be the last checkpoint, and since when it waits for depots that have just come.
    pub(super) held_back: Option<(SnapshotId, Duration)>,
    /// When a holder last said that it has come further with hashing a snapshot, or is done.
    pub(super) hashed: Duration,
    pub(super) counts: SaveCounts,
    pub(super) attempt: u32,
}

impl Saved {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            last: (Step::ZERO, now),
            hashed: now,
            ..Self::default()
        }
    }
}

/// A checkpoint under way.
#[derive(Debug, Clone)]
pub(super) struct Saving {
    pub(super) taken: Taken,
    pub(super) attempt: u32,
    pub(super) tries: u32,
    pub(super) depots: Vec<DepotAddress>,
    /// Depots that could not keep what they should: it is tried without them.
    pub(super) refused: BTreeSet<DepotId>,
    /// Depots that could not be written to, each with the workers that could not: others write in their place.
    pub(super) accused: BTreeMap<DepotId, BTreeSet<WorkerId>>,
    pub(super) shares: BTreeMap<u32, Written>,
    /// How long others took to write what they were to, in this attempt.
    pub(super) others: Laggards,
    pub(super) stage: Stage,
    /// When the orders were last said, and when something was last heard.
    pub(super) asked: Duration,
    pub(super) heard: Duration,
    pub(super) begun: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum Stage {
    Writing,
    Committing {
        awaited: BTreeSet<DepotId>,
        head: Option<Box<Head>>,
    },
}

/// What a holder has said of a share.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) by: WorkerId,
    pub(super) bytes: u64,
    pub(super) described: Described,
    pub(super) pieces: Vec<PieceHash>,
    /// Whether all of its pieces are told.
    pub(super) whole: bool,
}

/// What a holder says of the whole state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Described {
    /// The pieces that describe its tensors.
    pub(crate) description: Vec<PieceHash>,
    pub(crate) state: StateSize,
}

/// One part of what a holder says.
#[derive(Debug)]
pub(crate) struct WrittenPart {
    pub(crate) attempt: u32,
    pub(crate) share: u32,
    pub(crate) bytes: u64,
    pub(crate) described: Described,
    pub(crate) start: u64,
    pub(crate) pieces: Vec<PieceHash>,
    pub(crate) is_last: bool,
}

impl Saving {
    pub(super) fn snapshot(&self) -> SnapshotId {
        self.taken.id
    }

    /// Where it stands, by name.
    pub(super) fn phase(&self) -> &'static str {
        match self.stage {
            Stage::Writing => "writing",
            Stage::Committing { .. } => "committing",
        }
    }

    /// Whether its pieces are durable and only the manifest is not.
    pub(super) fn is_committing(&self) -> bool {
        matches!(self.stage, Stage::Committing { .. })
    }

    /// Whether a worker that holds a share may say that it cannot write to this depot, and has not yet.
    pub(super) fn may_accuse(&self, worker: WorkerId, depot: DepotId) -> bool {
        let named = self.depots.iter().any(|one| one.depot == depot);
        let holds = self.taken.workers().any(|one| one == worker);
        named && holds && !self.accused.get(&depot).is_some_and(|workers| workers.contains(&worker))
    }

    /// The writer of a share: the first of its holders that is there and has found no depot out of reach.
    pub(super) fn writer(&self, share: u32) -> Option<WorkerId> {
        let cut_off = |worker: &WorkerId| self.accused.values().any(|workers| workers.contains(worker));
        self.taken.writers(share).find(|worker| !cut_off(worker))
    }

    /// Whether all of a share is written.
    fn has(&self, share: u32) -> bool {
        self.shares.get(&share).is_some_and(|written| written.whole)
    }

    /// Whether this worker has yet to write a share.
    pub(super) fn owes(&self, worker: WorkerId) -> bool {
        (0..self.taken.holders()).any(|share| !self.has(share) && self.writer(share) == Some(worker))
    }

    /// The workers that take too long to write what they are to, as far as others that are done can stand in for them.
    pub(super) fn late(&self, now: Duration) -> Vec<WorkerId> {
        if self.is_committing() || !self.others.are_late(now) {
            return Vec::new();
        }
        let owed: Vec<u32> = (0..self.taken.holders()).filter(|share| !self.has(*share)).collect();
        let owing: BTreeSet<WorkerId> = owed.iter().filter_map(|share| self.writer(*share)).collect();
        let cut_off = |worker: &WorkerId| self.accused.values().any(|workers| workers.contains(worker));
        let stands_in = |worker: &WorkerId| !owing.contains(worker) && !cut_off(worker);
        let replaced = |worker: &WorkerId| {
            let mut own = owed.iter().filter(|share| self.writer(**share) == Some(*worker));
            own.all(|share| self.taken.writers(*share).any(|other| stands_in(&other)))
        };
        owing.iter().copied().filter(replaced).collect()
    }

    /// A share is whole.
    pub(super) fn one_more_is_whole(&mut self, now: Duration) {
        let whole = self.shares.values().filter(|share| share.whole).count();
        self.others.done(whole, self.taken.holders() as usize, now);
    }

    /// Whether each share that is not written yet has a holder that can write it.
    pub(super) fn has_writers(&self) -> bool {
        (0..self.taken.holders()).all(|share| self.has(share) || self.writer(share).is_some())
    }

    /// What was written of a share in part is written again: by another holder, or from the beginning.
    pub(super) fn drop_halves(&mut self, now: Duration) {
        self.shares.retain(|_, one| one.whole);
        self.others.again(now);
    }

    pub(super) fn is_written(&self) -> bool {
        if bites(Bug::CommittedTooEarly) {
            return !self.shares.is_empty();
        }
        (0..self.taken.holders()).all(|share| self.has(share))
    }

    /// What a holder writes: the shares of which it is the first holder that is there.
    pub(super) fn orders(&self) -> BTreeMap<WorkerId, Vec<u32>> {
        let mut orders: BTreeMap<WorkerId, Vec<u32>> = self.taken.workers().map(|worker| (worker, Vec::new())).collect();
        for share in 0..self.taken.holders() {
            if let Some(writer) = self.writer(share).filter(|_| !self.has(share)) {
                orders.entry(writer).or_default().push(share);
            }
        }
        orders
    }
}
