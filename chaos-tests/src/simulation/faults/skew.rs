//! The coordinator's clock goes too fast or too slowly for a while: half as fast to twice as fast.

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::world::World;

impl World {
    pub(super) fn skew(&mut self) -> Struck {
        let rate = 500 + self.dice.below(1_501);
        let now = self.now();
        self.coordinator.skew(now, rate);
        let lasts = self.lasting();
        self.calendar.after(lasts, Happening::Later(Later::Unskew));
        Some(())
    }
}
