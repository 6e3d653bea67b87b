//! In fast order: the first member that has the sum of a step is lost or cut off before any other has it, though a joiner that waited for the sum is given it.
//! The others compute that step again, and come to another state.

use std::collections::BTreeSet;
use std::time::Duration;

use sardana_protocol::words::{Step, WorkerId};

use super::{Fault, Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::network::{Cut, IDLE, Node, Way};
use crate::simulation::world::{Process, World};

/// How long such a member is still there.
const STAYS: Duration = Duration::from_millis(1);

/// Of so many sums that no joiner waits for, one is lost.
const UNAWAITED_ONE_OF: u64 = 8;

impl World {
    /// Its moment comes with a sum.
    pub(super) fn lose_sum(&mut self) -> Struck {
        self.loses_sum = true;
        None
    }

    /// A member has this sum. Whether it is lost before it has passed the sum on.
    pub(in crate::simulation) fn is_lost_with(&mut self, worker: WorkerId, step: Step) -> bool {
        let has = |(other, process): (&WorkerId, &Process)| *other != worker && process.has_sum_of(step);
        if !self.loses_sum || self.healed || self.processes.iter().any(has) {
            return false;
        }
        if !self.is_awaited(step) && self.dice.below(UNAWAITED_ONE_OF) != 0 {
            return false;
        }
        self.loses_sum = false;
        self.counts.struck(Fault::SumLost.name());
        self.calendar.after(STAYS, Happening::Later(Later::SumLost { worker, step }));
        true
    }

    pub(super) fn sum_lost(&mut self, worker: WorkerId, step: Step) {
        self.hand_to_joiners(step);
        if self.dice.below(2) == 0 {
            return self.take_away(worker);
        }
        // Long enough that what it was sending is given up.
        let until = self.now() + IDLE + self.lasting();
        let inside = BTreeSet::from([Node::Worker(worker)]);
        let way = Way::Both;
        self.cut_off(Cut { inside, way, until });
    }
}
