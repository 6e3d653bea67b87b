//! The store of another job, or of another build, is put beside a depot's own: a checkpoint that is newer than all others, complete,
//! and of no use.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn foreign(&mut self) -> Struck {
        match self.pick_depot() {
            Some(place) if self.adopt_foreign(place) => {
                self.depot_goes_down(place);
                Struck::Yes
            }
            Some(_) | None => Struck::Nobody,
        }
    }
}
