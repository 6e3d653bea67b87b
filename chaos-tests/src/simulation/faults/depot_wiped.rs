//! A depot's disk is lost: it is back some time later, empty, as the same depot or as another one.

use sardana_protocol::checkpoint::DepotId;

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn wipe_depot(&mut self) -> Struck {
        let place = self.pick_depot()?;
        self.depot_goes_down(place);
        let before = self.depots[place].id;
        self.law.loses_disk(before);
        let id = match self.dice.below(2) {
            0 => before,
            _ => DepotId::new(self.dice.bits()),
        };
        self.depots[place].forgets(id);
        Some(())
    }
}
