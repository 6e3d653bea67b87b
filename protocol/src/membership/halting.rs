//! Something broke: all workers that take part, or may have begun to, halt under a number that is newer still.

use super::change::{Plan, Planned};
use super::roster::Place;
use super::{GenerationEvent, Membership, Phase};
use crate::messages::CoordinatorMessage;
use crate::planted::{Bug, bites};
use crate::words::WorkerId;

impl Membership {
    /// Something broke: asks all workers to halt. People will be told how long no update was applied.
    pub(super) fn disturb(&mut self) {
        self.training.disturbed.get_or_insert(self.now);
        self.halt();
    }

    /// Asks all workers to halt for the next number.
    pub(super) fn halt(&mut self) {
        let plan = self.change.plan.take();
        let tellers = self.who_can_tell(plan.as_ref());
        self.change.tellers = self.change.tellers.take().or(tellers);
        // A member that halts for this number leaves no snapshot behind.
        if plan.as_ref().is_some_and(Plan::is_pause) {
            self.checkpoints.want_no_more();
        }
        self.change.switching.clear();
        self.round.broken_off();
        // Always a number of its own: others may have been given away to generations that were prepared in vain.
        self.generation = if bites(Bug::PlannedNumberReused) {
            self.formed.next()
        } else {
            self.generation.next()
        };
        let mut moved: Vec<(WorkerId, Place)> = Vec::new();
        for (&worker, record) in self.members.iter() {
            let part = plan.as_ref().map_or(Planned::No, |plan| plan.part_of(worker));
            match record.place() {
                // It may have begun what was planned.
                Place::Joining(_) if part == Planned::Ordered => moved.push((worker, Place::Called)),
                // A leaver that has not gone yet when something breaks takes part once more.
                Place::Left(_, standing) => moved.push((worker, Place::Quiet(standing.clone()))),
                Place::Quiet(_) | Place::Called | Place::Ready | Place::Finished(_) | Place::Joining(_) => {}
            }
        }
        for (worker, place) in moved {
            self.put(worker, place);
        }
        self.phase = Phase::Halting { since: self.now };
        let generation = self.generation;
        self.tell(GenerationEvent::Halting { generation });
        for worker in self.busy() {
            self.put(worker, Place::Called);
            self.send(worker, CoordinatorMessage::Halt { generation });
        }
    }

    pub(super) fn busy(&self) -> Vec<WorkerId> {
        self.members
            .iter()
            .filter(|(_, record)| record.is_busy())
            .map(|(&worker, _)| worker)
            .collect()
    }
}
