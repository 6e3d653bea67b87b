//! The store of another job, or of another build, is put beside a depot's own: a checkpoint that is newer than all others, complete,
//! and of no use.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn foreign(&mut self) -> Struck {
        let place = self.pick_depot()?;
        self.adopt_foreign(place)?;
        self.depot_goes_down(place);
        Some(())
    }
}
