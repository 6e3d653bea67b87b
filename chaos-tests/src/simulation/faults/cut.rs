//! A control connection breaks, and both ends see it soon.

use std::time::Duration;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::world::World;

/// Both ends have noticed after this.
const NOTICED: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn cut_control(&mut self) -> Struck {
        let worker = self.pick()?;
        let session = self.coordinator.session_of(worker)?;
        let (here, there) = (self.within(NOTICED), self.within(NOTICED));
        self.calendar.after(here, Happening::SessionLost { worker, session });
        self.calendar.after(there, Happening::ControlLost { worker, session });
        Some(())
    }
}
