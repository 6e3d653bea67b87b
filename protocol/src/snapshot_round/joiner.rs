//! The joiners, and how far each is. What is asked with every message is counted when one of them changes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::snapshot::SnapshotId;
use crate::words::{Step, WorkerId};

/// How far a joiner is.
#[derive(Debug, Clone, Default)]
pub(super) struct Joiner {
    /// What it was told to copy.
    pub(super) copies: Option<SnapshotId>,
    /// Where its state stood then.
    pub(super) began_at: Step,
    /// When it was last told so.
    pub(super) asked: Duration,
    /// Whether it has said that its order to copy has come.
    pub(super) answered: bool,
    /// Bytes that it has moved in its life, and when that was last news.
    pub(super) moved: (u64, Duration),
    /// Whether it has the state of that snapshot.
    pub(super) loaded: bool,
    /// Since when it follows the ring.
    pub(super) follows: Option<Duration>,
    /// Whether it follows without a lag.
    pub(super) caught_up: bool,
    /// Updates that its state has had.
    pub(super) step: Step,
    /// Copies that have failed.
    pub(super) attempts: u32,
    /// The last snapshot that could not be copied.
    pub(super) failed: Option<SnapshotId>,
}

impl Joiner {
    fn at(step: Step) -> Self {
        Self { step, ..Self::default() }
    }

    /// For how long it has moved nothing, since it was told to copy.
    pub(super) fn is_still_for(&self, now: Duration) -> Duration {
        now.saturating_sub(self.moved.1.max(self.asked))
    }

    /// It copies nothing any more.
    pub(super) fn forget_copy(&mut self) {
        self.copies = None;
        self.caught_up = false;
    }
}

/// All joiners.
#[derive(Debug, Default)]
pub(super) struct Joiners {
    joiners: BTreeMap<WorkerId, Joiner>,
    counts: Counts,
    /// A joiner has come, gone, or copies something else, since that was looked at last.
    stirred: bool,
    #[cfg(test)]
    visited: std::cell::Cell<usize>,
}

/// How many of the joiners are so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Were told to copy.
    pub(crate) copying: usize,
    /// Follow the ring without a lag.
    pub(crate) caught_up: usize,
}

impl Counts {
    fn of(joiner: &Joiner) -> Self {
        Self {
            copying: usize::from(joiner.copies.is_some()),
            caught_up: usize::from(joiner.caught_up),
        }
    }

    fn replace(&mut self, before: Self, after: Self) {
        self.copying = self.copying + after.copying - before.copying;
        self.caught_up = self.caught_up + after.caught_up - before.caught_up;
    }
}

impl Joiners {
    pub(super) fn insert(&mut self, worker: WorkerId, step: Step) {
        self.remove(worker);
        self.joiners.insert(worker, Joiner::at(step));
        self.stirred = true;
    }

    pub(super) fn remove(&mut self, worker: WorkerId) {
        if let Some(joiner) = self.joiners.remove(&worker) {
            self.counts.replace(Counts::of(&joiner), Counts::default());
            self.stirred = true;
        }
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<&Joiner> {
        self.joiners.get(&worker)
    }

    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.joiners.contains_key(&worker)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Joiner)> {
        #[cfg(test)]
        self.visited.set(self.visited.get() + self.joiners.len());
        self.joiners.iter().map(|(&worker, joiner)| (worker, joiner))
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes how far a joiner is. None if `worker` is none.
    pub(super) fn change<R>(&mut self, worker: WorkerId, change: impl FnOnce(&mut Joiner) -> R) -> Option<R> {
        let joiner = self.joiners.get_mut(&worker)?;
        let (counted, copied) = (Counts::of(joiner), (joiner.copies, joiner.failed));
        let changed = change(joiner);
        self.counts.replace(counted, Counts::of(joiner));
        self.stirred |= copied != (joiner.copies, joiner.failed);
        Some(changed)
    }

    /// Changes how far each is.
    pub(super) fn change_all(&mut self, change: impl Fn(&mut Joiner)) {
        for worker in self.joiners.keys().copied().collect::<Vec<_>>() {
            self.change(worker, &change);
        }
    }

    /// They are to be looked at.
    pub(super) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether they are to be looked at; from now on they are not.
    pub(super) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// How many were looked at, since this was asked last.
    #[cfg(test)]
    pub(super) fn take_visited(&self) -> usize {
        self.visited.take()
    }
}
