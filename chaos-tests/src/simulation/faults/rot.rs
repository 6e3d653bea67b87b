//! A piece on a depot's disk cannot be read any more. Nobody knows until somebody tries.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn rot(&mut self) -> Struck {
        let Some(place) = self.pick_depot() else {
            return Struck::Nobody;
        };
        let piece = {
            let pieces: Vec<_> = self.depots[place].pieces();
            self.dice.pick(&pieces)
        };
        let Some(piece) = piece else { return Struck::Nobody };
        self.depots[place].rots(piece);
        let id = self.depots[place].id;
        self.law.rots(id);
        Struck::Yes
    }
}
