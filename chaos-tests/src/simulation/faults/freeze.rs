//! A worker's process stands still for a while, as by SIGSTOP, and then goes on as if nothing had happened.

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::world::{Process, World};

impl World {
    pub(super) fn freeze(&mut self) -> Struck {
        let Some(worker) = self.pick() else { return Struck::Nobody };
        let lasts = self.lasting();
        let thaw = self.now() + lasts;
        let ring = self.processes.get(&worker).and_then(Process::ring_members);
        let session = self.coordinator.session_of(worker);
        let Some(process) = self.processes.get_mut(&worker) else {
            return Struck::Nobody;
        };
        process.frozen_until = Some(thaw);
        if lasts > IDLE {
            // The others give it up; it learns that when it wakes.
            self.links_go_idle(worker, ring.clone());
            let (generation, peers) = ring.unwrap_or_default();
            for peer in peers {
                let broken = Happening::LinkBroken {
                    worker,
                    generation,
                    peer,
                };
                self.calendar.at(thaw, broken);
            }
            if let Some(session) = session {
                self.calendar.after(IDLE, Happening::SessionLost { worker, session });
                self.calendar.at(thaw, Happening::ControlLost { worker, session });
            }
        }
        Struck::Yes
    }
}
