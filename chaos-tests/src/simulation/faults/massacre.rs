//! All workers are lost at once while a checkpoint is written: what a mass preemption does at the worst moment. So do
//! the ends of the coordinator and of a depot.

use sardana_protocol::words::WorkerId;

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn massacre(&mut self) -> Struck {
        if !self.is_saving() {
            return None;
        }
        let fleet: Vec<WorkerId> = self.processes.keys().copied().collect();
        for worker in fleet {
            self.killed(worker);
        }
        Some(())
    }

    pub(super) fn crash_while_saving(&mut self) -> Struck {
        if !self.is_saving() {
            return None;
        }
        match self.dice.below(2) {
            0 => self.crash(),
            _ => self.crash_depot(),
        }
    }

    /// Whether a checkpoint is under way, now and then: more often in its short last part.
    fn is_saving(&mut self) -> bool {
        let machine = self.coordinator.machine.as_ref();
        let one_of = match machine.map(|machine| machine.phases().saving) {
            Some("committing") => 2,
            Some("writing") => 16,
            Some(_) | None => return false,
        };
        self.dice.below(one_of) == 0
    }
}
