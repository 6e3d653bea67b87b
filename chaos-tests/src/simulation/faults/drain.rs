//! A worker is asked to leave: by a signal on its host, or by an operator through the coordinator.

use sardana_protocol::membership;

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn drain(&mut self) -> Struck {
        let worker = self.pick()?;
        if self.dice.below(2) == 0 || !self.coordinator_listens() {
            self.signal(worker);
        } else {
            let reason = "an operator wants it".to_owned();
            self.decide(membership::Event::LeaveRequested { worker, reason });
        }
        Some(())
    }
}
