//! The coordinator's process stands still for a while, or its machine is suspended: its clock jumps, and all comes at once.

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::world::World;

impl World {
    pub(super) fn stall(&mut self) -> Struck {
        self.coordinator.machine.as_ref()?;
        let lasts = self.lasting();
        let thaw = self.now() + lasts;
        self.coordinator.frozen_until = Some(thaw);
        if lasts > IDLE {
            self.depots_hear_nothing_until(thaw);
            for (worker, session) in self.coordinator.sessions() {
                self.calendar.after(IDLE, Happening::ControlLost { worker, session });
                self.calendar.at(thaw, Happening::SessionLost { worker, session });
            }
        }
        Some(())
    }
}
