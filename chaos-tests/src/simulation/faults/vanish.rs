//! A worker's host is gone, and its agent with it: connections only fall silent.

use sardana_protocol::words::WorkerId;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::world::{Process, World};

impl World {
    pub(super) fn vanish(&mut self) -> Struck {
        let worker = self.pick()?;
        self.vanishes(worker);
        Some(())
    }

    pub(super) fn vanishes(&mut self, worker: WorkerId) {
        let session = self.coordinator.session_of(worker);
        let ring = self.processes.get(&worker).and_then(Process::ring_members);
        if self.end(worker).is_some() {
            self.law.ends_unseen(worker);
        }
        self.links_go_idle(worker, ring);
        if let Some(session) = session {
            self.calendar.after(IDLE, Happening::SessionLost { worker, session });
        }
    }
}
