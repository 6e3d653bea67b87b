//! A depot's disk takes no more for a while.

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::world::World;

impl World {
    pub(super) fn fill_depot(&mut self) -> Struck {
        let place = self.pick_depot()?;
        self.depots[place].full = true;
        let lasts = self.lasting() * 4;
        self.calendar.after(lasts, Happening::Later(Later::DepotEmptied(place)));
        Some(())
    }
}
