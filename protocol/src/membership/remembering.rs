//! What the coordinator remembers of workers that are not connected: those that have left, by name as long as one of them may still ask,
//! and those that may be on their way back. Both are bounded.
//!
//! A worker that was let go and has not heard of it asks again: for seconds, if it was told to leave by its own host, and for as long as
//! it looks for its coordinator otherwise. So the last [`RELEASED_KEPT`] are known by name. The others are known by what they say of
//! themselves: a generation that is no newer than the one in which the last forgotten worker was let go. A worker that names such a
//! generation, is neither a member nor missed, and has no newer state than the others has left as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Arrival, Membership};
use crate::limits::{MISSED_KEPT, RELEASED_KEPT};
use crate::words::{Generation, Step, WorkerId};

/// Workers that are not connected, and known all the same.
#[derive(Debug, Default)]
pub(super) struct Absent {
    /// Workers that may be on their way back, and since when they are missed.
    pub(super) missed: BTreeMap<WorkerId, Duration>,
    /// Workers that have left in good order, and where. A worker that has not heard of it is told again.
    pub(super) released: Released,
}

/// How a worker was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Release {
    /// Where it stood.
    pub(super) step: Step,
    /// The newest generation then: the worker knows of no newer one.
    pub(super) generation: Generation,
}

/// Workers that have left in good order.
#[derive(Debug, Clone, Default)]
pub(super) struct Released {
    by_name: BTreeMap<WorkerId, Release>,
    /// The same, the first to leave in front.
    in_order: BTreeSet<(Generation, WorkerId)>,
    /// Of workers that are not known by name any more, none knows of a newer generation.
    forgotten: Generation,
}

impl Released {
    /// What a record has kept.
    pub(super) fn recall(by_name: BTreeMap<WorkerId, Release>, forgotten: Generation) -> Self {
        let mut this = Self {
            forgotten,
            ..Self::default()
        };
        for (worker, release) in by_name {
            this.insert(worker, release);
        }
        this
    }

    /// A worker has left. Returns the one that is forgotten for it.
    fn insert(&mut self, worker: WorkerId, release: Release) -> Option<WorkerId> {
        if let Some(before) = self.by_name.insert(worker, release) {
            self.in_order.remove(&(before.generation, worker));
        }
        self.in_order.insert((release.generation, worker));
        if self.by_name.len() <= RELEASED_KEPT {
            return None;
        }
        let (generation, first) = self.in_order.pop_first()?;
        self.by_name.remove(&first);
        self.forgotten = self.forgotten.max(generation);
        Some(first)
    }

    pub(super) const fn by_name(&self) -> &BTreeMap<WorkerId, Release> {
        &self.by_name
    }

    pub(super) const fn forgotten(&self) -> Generation {
        self.forgotten
    }
}

impl Membership {
    /// Where a worker that says hello was let go, if it was.
    pub(super) fn has_left(&self, arrival: &Arrival) -> Option<Step> {
        let (worker, introduction) = (arrival.worker, &arrival.introduction);
        if let Some(release) = self.absent.released.by_name.get(&worker) {
            return Some(release.step);
        }
        let (generation, step) = (introduction.generation, introduction.standing.step);
        let of_the_forgotten = generation.count() > 0 && generation <= self.absent.released.forgotten;
        let known = self.members.contains_key(&worker) || self.absent.missed.contains_key(&worker);
        (of_the_forgotten && !known && step <= self.training.reached).then_some(step)
    }

    /// Remembers that a worker has left.
    pub(super) fn remember_release(&mut self, worker: WorkerId, step: Step) {
        let release = Release {
            step,
            generation: self.generation,
        };
        if let Some(forgotten) = self.absent.released.insert(worker, release) {
            // Its count may still be waited for: it is not any more.
            self.forget_missed(forgotten);
        }
    }

    /// A worker may be on its way back, or its count may become known. Of too many, the one that is missed for longest is not waited for
    /// any more.
    pub(super) fn miss(&mut self, worker: WorkerId, since: Duration) {
        self.absent.missed.insert(worker, since);
        if self.absent.missed.len() <= MISSED_KEPT {
            return;
        }
        let longest = self.absent.missed.iter().min_by_key(|&(_, since)| *since);
        if let Some((&longest, _)) = longest {
            self.forget_missed(longest);
        }
    }

    fn forget_missed(&mut self, worker: WorkerId) {
        self.absent.missed.remove(&worker);
        self.earlier.asked_before.remove(&worker);
        self.ledger.forget(worker);
    }
}
