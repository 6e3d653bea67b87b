//! A link between two neighbours of a ring breaks, and both see it soon.

use std::time::Duration;

use super::Struck;
use crate::simulation::world::{Process, World};

/// Both ends have noticed after this.
const NOTICED: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn cut_link(&mut self) -> Struck {
        let worker = self.pick()?;
        let (generation, peers) = self.processes.get(&worker).and_then(Process::ring_members)?;
        let peer = self.dice.pick(&peers)?;
        for (worker, peer) in [(worker, peer), (peer, worker)] {
            let noticed = self.within(NOTICED);
            self.link_breaks(noticed, generation, worker, peer);
        }
        Some(())
    }
}
