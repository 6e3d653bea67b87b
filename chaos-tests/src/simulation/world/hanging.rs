//! Training threads that hang while their processes live, and what becomes of workers that the coordinator believes to hang.

use std::time::Duration;

use sardana_protocol::member::Work;
use sardana_protocol::membership::{Balance, Phases};
use sardana_protocol::messages::Motion;
use sardana_protocol::words::WorkerId;

use super::{Process, World};
use crate::simulation::calendar::Happening;
use crate::simulation::invariants::{Doing, given};
use crate::simulation::network::{IDLE, Node};

impl World {
    /// The coordinator's machine wants a worker killed: its agent is told so, if that can be reached. `before`: where the machine stood
    /// when it began to think.
    pub(super) fn order_kill(&mut self, worker: WorkerId, before: Phases) {
        self.counts.killed += 1;
        // Of one that lies how fast it is, nothing is known.
        let honest = self.liars.as_ref().is_none_or(|liars| !liars.lies_to_the_coordinator(worker));
        if let Some(doing) = self.doing(worker).filter(|_| honest) {
            let paced = self
                .processes
                .get(&worker)
                .filter(|process| self.swarm.balance != Balance::Off && process.member.tally().total > 0);
            // What it tells is at least what a gradient takes on a host that is not slow, less what figures wander.
            let gradient = paced.map(|_| self.swarm.gradient * 9 / 10);
            let held = self.law.kills(worker, doing, given(gradient, before.membership == "halting"));
            self.require(held);
        }
        let now = self.now();
        let passes = self.cut_until(Node::Coordinator, Node::Worker(worker)).unwrap_or(now);
        // An agent whose connection breaks meanwhile does not hear of it.
        if passes.saturating_sub(now) < IDLE {
            let delay = self.network.stream_delay(&mut self.dice);
            self.calendar.at(passes + delay, Happening::Kill { worker });
        }
    }

    /// How many training threads hang.
    pub(crate) fn hanging(&self) -> u32 {
        let hung = self.processes.values().filter(|process| process.hung).count();
        u32::try_from(hung).unwrap_or(u32::MAX)
    }

    /// People end what no machine can judge. Where all members hang, none waits, and they may all read from one disk that hangs; how long
    /// an evaluation takes is not known; and a worker that has computed in vain, for an earlier generation of the same step, as many
    /// gradients as it owes now, seems to have done its part.
    pub(crate) fn people_end_what_hangs(&mut self) {
        if self.hanging() == 0 {
            return;
        }
        let seated = |process: &Process| !matches!(process.member.phases().seat, "none" | "halting");
        let nobody_waits = !self.processes.values().any(|process| seated(process) && !process.hung);
        let concludes = |process: &Process| matches!(process.working, Some(Work::Conclude { .. }));
        let hopeless = |process: &Process| {
            process.hung && ((nobody_waits && seated(process)) || concludes(process) || process.seems_done())
        };
        let hopeless = self.processes.iter().filter(|(_, process)| hopeless(process));
        for worker in hopeless.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            self.story.tell(self.now(), || format!("people end {worker}, which hangs"));
            self.killed(worker);
        }
    }

    /// People who have asked the job to stop, and still wait, end all that hangs.
    pub(crate) fn people_end_all_that_hangs(&mut self) {
        let hung = self.processes.iter().filter(|(_, process)| process.hung);
        for worker in hung.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            self.story
                .tell(self.now(), || format!("people end {worker}, which hangs while the job stops"));
            self.killed(worker);
        }
    }

    /// Whether its donor hangs. The coordinator cannot tell which of the two does, and the worker that lacks the state is missed less.
    fn awaits_one_that_hangs(&self, process: &Process) -> bool {
        let fetching = process.fetching.as_ref();
        let donor = fetching.and_then(|fetching| self.processes.get(&fetching.donor.worker));
        donor.is_some_and(|donor| donor.hung)
    }

    /// What a worker's training thread does.
    fn doing(&self, worker: WorkerId) -> Option<Doing> {
        let process = self.processes.get(&worker)?;
        // A process that its agent has seen stopped may have gone on since, which the coordinator has not heard of yet.
        let stood_still = process.frozen_until.is_some_and(|thaw| thaw + IDLE > self.now());
        let seen_to = process.seen == Motion::Stopped && !self.reaches(Node::Worker(worker), Node::Coordinator);
        if stood_still || seen_to || process.hung || self.awaits_one_that_hangs(process) {
            return Some(Doing::Hangs);
        }
        let now = self.now();
        if let Some(since) = self.loads_since(process) {
            return Some(Doing::Loads(now.saturating_sub(since)));
        }
        let present = match process.working {
            None | Some(Work::Wait) => Duration::ZERO,
            Some(Work::Gradient { .. } | Work::Conclude { .. } | Work::Apply { .. } | Work::Load { .. }) => {
                now.saturating_sub(process.began)
            }
        };
        // The coordinator may not have heard yet that it is done.
        let (ended, lasted) = process.did;
        let unheard = if now.saturating_sub(ended) <= IDLE {
            lasted
        } else {
            Duration::ZERO
        };
        Some(Doing::Works(present.max(unheard)))
    }
}
