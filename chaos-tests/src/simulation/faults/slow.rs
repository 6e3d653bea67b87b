//! A worker's work takes many times as long for a while: a neighbour takes its processor, or it is hot.

use sardana_protocol::words::WorkerId;

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::world::World;

/// A slow worker's work takes less than so many times as long.
pub(crate) const SLOWEST: u32 = 21;

impl World {
    pub(super) fn slow_down(&mut self) -> Struck {
        let worker = self.pick()?;
        let lasts = self.lasting();
        let times = 2 + u32::try_from(self.dice.below(u64::from(SLOWEST) - 2)).unwrap_or(0);
        if let Some(process) = self.processes.get_mut(&worker) {
            process.slow = times;
        }
        self.calendar.after(lasts, Happening::Later(Later::Recover(worker)));
        Some(())
    }

    pub(super) fn recover(&mut self, worker: WorkerId) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.slow = 1;
        }
    }
}
