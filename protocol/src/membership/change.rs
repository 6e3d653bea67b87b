//! A change of the generation that stops no member: what is planned, and how far that is.

use std::collections::BTreeSet;
use std::time::Duration;

use super::formation::Formation;
use crate::words::{Generation, Step, WorkerId};

/// A change of the generation that stops no member.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The generation to come, if one is planned.
    pub(super) plan: Option<Plan>,
    /// When the plan's orders were last said.
    pub(super) said: Duration,
    /// Members of the generation that a trailer has switched to, which have not said that they have.
    pub(super) switching: BTreeSet<WorkerId>,
    /// The step at which that generation begins, by the first word of a member.
    pub(super) begins: Option<Step>,
    /// Members of the generation that a trailer has switched to that were members of the one before.
    pub(super) stayed: BTreeSet<WorkerId>,
    /// Who can tell how far the others can be, since all were told to halt: see `who_can_tell`. None where all of the last generation can.
    pub(super) tellers: Option<BTreeSet<WorkerId>>,
}

impl Change {
    /// None is under way.
    pub(super) fn none(now: Duration) -> Self {
        Self {
            said: now,
            ..Self::default()
        }
    }

    /// Whether this member of the last generation can tell how far the others can be.
    pub(super) fn can_tell(&self, worker: WorkerId) -> bool {
        self.tellers.as_ref().is_none_or(|tellers| tellers.contains(&worker))
    }
}

/// The generation to come.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) generation: Generation,
    pub(super) purpose: Purpose,
    /// None if too few are left to train: all halt at the boundary.
    pub(super) next: Option<Formation>,
    pub(super) ready: BTreeSet<WorkerId>,
    /// When the closer was last asked to switch, if it was.
    pub(super) ordered: Option<Duration>,
}

/// Why there is a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A worker comes or goes.
    Change,
    /// The same members are to have other ranges. It gives way to a change, and costs no joiner its place.
    Balance,
}

/// What a worker has to do with the generation to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planned {
    /// Nothing.
    No,
    /// It prepares for it.
    Prepared,
    /// It may begin it at any moment, or has begun it.
    Ordered,
}

impl Plan {
    /// Where it stands, by name.
    pub(super) fn phase(&self) -> &'static str {
        match (self.is_pause(), self.is_ordered()) {
            (true, _) => "pausing",
            (false, false) => "prepared",
            (false, true) => "ordered",
        }
    }

    /// Whether the switch may happen at any moment.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered.is_some()
    }

    /// Whether all halt at the boundary.
    pub(super) fn is_pause(&self) -> bool {
        self.next.is_none()
    }

    /// What `worker` has to do with it.
    pub(super) fn part_of(&self, worker: WorkerId) -> Planned {
        match (self.has(worker), self.is_ordered()) {
            (false, _) => Planned::No,
            (true, false) => Planned::Prepared,
            (true, true) => Planned::Ordered,
        }
    }

    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.next.as_ref().is_some_and(|next| next.rank_of(worker).is_some())
    }
}
