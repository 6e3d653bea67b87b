//! For a while nothing passes between a depot and all others, or between it and the workers.

use super::Struck;
use crate::simulation::network::{Cut, Node, Way};
use crate::simulation::world::World;

impl World {
    pub(super) fn cut_depot(&mut self) -> Struck {
        let place = self.pick_depot()?;
        let until = self.now() + self.lasting();
        let inside = [Node::Depot(place)].into();
        let way = match self.dice.below(2) {
            0 => Way::Both,
            // The coordinator still reaches it, workers do not.
            _ => Way::Workers,
        };
        self.cut_off(Cut { inside, way, until });
        Some(())
    }
}
