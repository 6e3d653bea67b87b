//! A worker's process is killed, as by SIGKILL or for want of memory; its agent sees it at once.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn kill(&mut self) -> Struck {
        let worker = self.pick()?;
        self.killed(worker);
        Some(())
    }
}
