//! A piece on a depot's disk cannot be read any more, which shows only when it is read; or a manifest cannot.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn rot(&mut self) -> Struck {
        let Some(place) = self.pick_depot() else {
            return Struck::Nobody;
        };
        if self.dice.below(4) == 0 {
            return self.rot_manifest(place);
        }
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

    fn rot_manifest(&mut self, place: usize) -> Struck {
        let keys = self.depots[place].checkpoints();
        let Some(key) = self.dice.pick(&keys) else {
            return Struck::Nobody;
        };
        self.depots[place].loses_manifest(key);
        let id = self.depots[place].id;
        self.law.rots(id);
        if self.depots[place].up {
            self.tell_heads(place);
        }
        Struck::Yes
    }
}
