//! A worker is asked to leave: by a signal on its host, or by an operator through the coordinator.

use sardana_protocol::membership;
use sardana_protocol::words::WorkerId;

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn drain(&mut self) -> Struck {
        let Some(worker) = self.pick() else { return Struck::Nobody };
        if self.dice.below(2) == 0 || !self.coordinator_listens() {
            self.ask_to_leave(worker);
        } else {
            let reason = "an operator wants it".to_owned();
            self.decide(membership::Event::LeaveRequested { worker, reason });
        }
        Struck::Yes
    }

    pub(super) fn ask_to_leave(&mut self, worker: WorkerId) {
        self.signal(worker);
    }
}
