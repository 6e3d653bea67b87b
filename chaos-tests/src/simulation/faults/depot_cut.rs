//! A depot cannot reach some others for a while, nor be reached: all of them, or one.

use super::Struck;
use crate::simulation::network::{Cut, Node, Way};
use crate::simulation::world::World;

impl World {
    pub(super) fn cut_depot(&mut self) -> Struck {
        let Some(place) = self.pick_depot() else {
            return Struck::Nobody;
        };
        let until = self.now() + self.lasting();
        let inside = match self.dice.below(2) {
            0 => [Node::Depot(place)].into(),
            // The coordinator still reaches it, workers do not.
            _ => [Node::Depot(place), Node::Coordinator].into(),
        };
        let way = Way::Both;
        self.cut_off(Cut { inside, way, until });
        Struck::Yes
    }
}
