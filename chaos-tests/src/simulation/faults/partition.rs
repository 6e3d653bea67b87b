//! Some nodes cannot reach the others for a while, nor be reached.

use std::collections::BTreeSet;

use super::Struck;
use crate::simulation::network::{Cut, Node, Way};
use crate::simulation::world::World;

impl World {
    pub(super) fn partition(&mut self) -> Struck {
        let inside = self.some_nodes();
        self.cut_some(inside, Way::Both)
    }

    /// One node, or about half of them.
    pub(super) fn some_nodes(&mut self) -> BTreeSet<Node> {
        let nodes: Vec<Node> = self.nodes().into_iter().collect();
        if self.dice.below(2) == 0 {
            return self.dice.pick(&nodes).into_iter().collect();
        }
        nodes.into_iter().filter(|_| self.dice.below(2) == 0).collect()
    }

    pub(super) fn cut_some(&mut self, inside: BTreeSet<Node>, way: Way) -> Struck {
        if inside.is_empty() {
            return None;
        }
        let until = self.now() + self.lasting();
        self.cut_off(Cut { inside, way, until });
        Some(())
    }
}
