//! A worker's process is killed, as by SIGKILL or for want of memory; its agent sees it at once.

use super::Struck;
use crate::simulation::world::{LastWords, World};

impl World {
    pub(super) fn kill(&mut self) -> Struck {
        let Some(worker) = self.pick() else { return Struck::Nobody };
        self.end_seen(worker, "signal 9", LastWords::No);
        Struck::Yes
    }
}
