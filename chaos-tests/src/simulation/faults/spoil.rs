//! The copy of a share goes bad in a worker's memory, after it was hashed and before it is written.

use super::Struck;
use crate::simulation::model::PIECES;
use crate::simulation::world::World;

impl World {
    pub(super) fn spoil(&mut self) -> Struck {
        let number = self.dice.below(PIECES);
        let mut processes = self.processes.values_mut();
        processes.any(|process| process.saves.spoil(number)).then_some(())
    }
}
