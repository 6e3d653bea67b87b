//! All workers are lost at once while a checkpoint is written: what a mass preemption does at the worst moment. So does the coordinator's
//! end.

use sardana_protocol::words::WorkerId;

use super::Struck;
use crate::simulation::world::{LastWords, World};

impl World {
    pub(super) fn massacre(&mut self) -> Struck {
        if !self.is_saving() || self.dice.below(8) > 0 {
            return Struck::Nobody;
        }
        let fleet: Vec<WorkerId> = self.processes.keys().copied().collect();
        for worker in fleet {
            self.end_seen(worker, "signal 9", LastWords::No);
        }
        Struck::Yes
    }

    pub(super) fn crash_while_saving(&mut self) -> Struck {
        if !self.is_saving() || self.dice.below(8) > 0 {
            return Struck::Nobody;
        }
        self.crash()
    }

    fn is_saving(&self) -> bool {
        let machine = self.coordinator.machine.as_ref();
        machine.is_some_and(|machine| machine.phases().saving != "none")
    }
}
