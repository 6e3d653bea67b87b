//! A worker's process stands still for a while, as by SIGSTOP or in a container that is paused, and then goes on as if nothing had happened.

use sardana_protocol::membership::Event;
use sardana_protocol::messages::Motion;
use sardana_protocol::words::WorkerId;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::{IDLE, Node};
use crate::simulation::world::{Process, World};

/// Whether what stops this worker's process is a signal, which its agent sees. Else it is in a container that is paused, which no agent sees.
pub(in crate::simulation) fn is_seen_by_its_agent(worker: WorkerId) -> bool {
    worker.get().is_multiple_of(2)
}

impl World {
    /// Agents say which workers stand still, and which do not any more, if the coordinator listens.
    pub(in crate::simulation) fn agents_look(&mut self) {
        let now = self.now();
        let reaches = |worker| self.network.reaches(now, Node::Worker(worker), Node::Coordinator);
        let seen = self
            .processes
            .iter_mut()
            .filter(|(worker, _)| is_seen_by_its_agent(**worker) && reaches(**worker));
        let looked = |(&worker, process): (&WorkerId, &mut Process)| {
            let motion = match process.frozen_until.filter(|thaw| *thaw > now) {
                Some(_) => Motion::Stopped,
                None => Motion::Runs,
            };
            let before = std::mem::replace(&mut process.seen, motion);
            ((before, motion) != (Motion::Runs, Motion::Runs)).then_some((worker, motion))
        };
        for (worker, motion) in seen.filter_map(looked).collect::<Vec<_>>() {
            self.decide(Event::Motion { worker, motion });
        }
    }

    pub(super) fn freeze(&mut self) -> Struck {
        let worker = self.pick()?;
        let lasts = self.lasting();
        let thaw = self.now() + lasts;
        let ring = self.processes.get(&worker).and_then(Process::ring_members);
        let session = self.coordinator.session_of(worker);
        let process = self.processes.get_mut(&worker)?;
        process.frozen_until = Some(thaw);
        if lasts > IDLE {
            // The others give it up; it learns that when it wakes.
            self.links_go_idle(worker, ring.clone());
            let (generation, peers) = ring.unwrap_or_default();
            for peer in peers {
                self.link_breaks(lasts, generation, worker, peer);
            }
            if let Some(session) = session {
                self.calendar.after(IDLE, Happening::SessionLost { worker, session });
                self.calendar.at(thaw, Happening::ControlLost { worker, session });
            }
        }
        Some(())
    }
}
