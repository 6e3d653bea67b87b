//! Training threads that hang while their processes live, and what becomes of those that the coordinator takes for such.

use std::time::Duration;

use sardana_protocol::member::Work;
use sardana_protocol::membership::Phases;
use sardana_protocol::words::WorkerId;

use super::{LastWords, World};
use crate::simulation::calendar::Happening;
use crate::simulation::invariants::Doing;
use crate::simulation::network::{IDLE, Node};

impl World {
    /// The coordinator's machine wants a worker killed: its agent is told so, if that can be reached. `before`: where the machine stood
    /// when it began to think.
    pub(super) fn order_kill(&mut self, worker: WorkerId, before: Phases) {
        if let Some(doing) = self.doing(worker) {
            let held = self.law.kills(worker, doing, before.membership == "halting");
            self.require(held);
        }
        let now = self.now();
        let cut = self.network.cut_until(now, Node::Coordinator, Node::Worker(worker));
        let passes = cut.unwrap_or(now);
        // An agent whose connection breaks meanwhile does not hear of it.
        if passes.saturating_sub(now) < IDLE {
            let delay = self.network.stream_delay(&mut self.dice);
            self.calendar.at(passes + delay, Happening::Kill { worker });
        }
    }

    /// An agent kills a child.
    pub(super) fn killed(&mut self, worker: WorkerId) {
        self.end_seen(worker, "signal 9", LastWords::No);
    }

    /// What a worker's training thread does.
    fn doing(&self, worker: WorkerId) -> Option<Doing> {
        let process = self.processes.get(&worker)?;
        let lasts: Duration = self.now().saturating_sub(process.began);
        Some(match process.working {
            _ if process.hung => Doing::Hangs,
            None | Some(Work::Wait) => Doing::Nothing,
            Some(Work::Gradient { .. } | Work::Conclude { .. }) => Doing::Computes(lasts),
            Some(Work::Apply { .. } | Work::Load { .. }) => Doing::Updates(lasts),
        })
    }
}
