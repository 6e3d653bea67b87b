//! Much of what is sent is lost for a while; over streams that only takes time.

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::swarm::between;
use crate::simulation::world::World;

/// The worst: so many of a thousand are lost.
const WORST: u64 = 300;

impl World {
    pub(super) fn make_noise(&mut self) -> Struck {
        self.network.loss = self.network.loss.max(between(&mut self.dice, 10, WORST));
        let lasts = self.lasting();
        self.calendar.after(lasts, Happening::Later(Later::Calm));
        Some(())
    }

    pub(super) fn calm(&mut self) {
        self.network.loss = self.swarm.network.loss;
    }
}
