//! Some nodes cannot be heard for a while, or cannot hear, though the other direction works.

use super::Struck;
use crate::simulation::network::Way;
use crate::simulation::world::World;

impl World {
    pub(super) fn one_way(&mut self) -> Struck {
        let inside = self.some_nodes();
        let way = if self.dice.below(2) == 0 { Way::Out } else { Way::In };
        self.cut_some(inside, way)
    }
}
