//! A link between two neighbours of a ring breaks, and both see it soon.

use std::time::Duration;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::world::{Process, World};

/// Both ends have noticed after this.
const NOTICED: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn cut_link(&mut self) -> Struck {
        let Some(worker) = self.pick() else { return Struck::Nobody };
        let ring = self.processes.get(&worker).and_then(Process::ring_members);
        let Some((generation, peers)) = ring else {
            return Struck::Nobody;
        };
        let Some(peer) = self.dice.pick(&peers) else {
            return Struck::Nobody;
        };
        for (worker, peer) in [(worker, peer), (peer, worker)] {
            let noticed = self.within(NOTICED);
            let broken = Happening::LinkBroken {
                worker,
                generation,
                peer,
            };
            self.calendar.after(noticed, broken);
        }
        Struck::Yes
    }
}
