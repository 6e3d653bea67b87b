//! A worker's training thread hangs for ever: in a kernel that never ends, or a file system that is gone. Its process beats on and
//! answers what it is told, as far as that needs no training thread.

use super::Struck;
use crate::simulation::world::World;

impl World {
    pub(super) fn hang(&mut self) -> Struck {
        let worker = self.pick()?;
        let process = self.processes.get_mut(&worker).filter(|process| !process.hung)?;
        process.hung = true;
        Some(())
    }
}
