//! A piece on a depot's disk cannot be read any more, which shows only when it is read; or a manifest cannot.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn rot(&mut self) -> Struck {
        let place = self.pick_depot()?;
        if self.dice.below(4) == 0 {
            return self.rot_manifest(place);
        }
        let pieces = self.depots[place].pieces();
        let piece = self.dice.pick(&pieces)?;
        self.depots[place].rotten.insert(piece);
        let id = self.depots[place].id;
        self.law.rots(id);
        Some(())
    }

    fn rot_manifest(&mut self, place: usize) -> Struck {
        let keys = self.depots[place].checkpoints();
        let key = self.dice.pick(&keys)?;
        self.depots[place].loses_manifest(key);
        let id = self.depots[place].id;
        self.law.rots(id);
        if self.depots[place].up {
            self.tell_heads(place);
        }
        Some(())
    }
}
