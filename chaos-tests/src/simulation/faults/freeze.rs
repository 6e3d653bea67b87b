//! A worker's process stands still for a while, as by SIGSTOP or in a container that is paused, and then goes on as if nothing had happened.

use std::time::Duration;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::world::{Process, World};

/// An agent sees a child stop, or go on, after this.
const LOOKS: Duration = Duration::from_millis(20);

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
        // Its agent sees a signal; nobody sees a container that is paused.
        if worker.get().is_multiple_of(2) {
            self.calendar.after(LOOKS, Happening::Looked { worker });
            self.calendar.at(thaw + LOOKS, Happening::Looked { worker });
        }
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
