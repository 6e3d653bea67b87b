//! What goes wrong: processes die, connections break, messages are lost, strangers arrive.

use sardana_protocol::membership::{Event, Loss, Membership};
use sardana_protocol::words::{Incarnation, WorkerId};

use super::law::{Count, Memory};
use super::network::Mail;
use super::process::Process;
use super::{Operator, Story, World};

/// How much goes wrong. All but `events` and `losses` is so many times on average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chaos {
    /// How long it lasts.
    pub(crate) events: u32,
    /// Processes that die; every other one is replaced at once.
    pub(crate) kills: u32,
    /// Lost messages in a thousand.
    pub(crate) losses: u32,
    /// Control connections that break.
    pub(crate) cuts: u32,
    /// Workers that are asked to leave, by a signal on their host or through the coordinator; every other one is replaced at once.
    pub(crate) drains: u32,
    /// Coordinators that die and are started again, with or without what they have written down.
    pub(crate) crashes: u32,
}

impl World {
    /// Lets chaos reign for a while.
    pub(crate) fn suffer(&mut self, chaos: Chaos) {
        self.losses = chaos.losses;
        let per = |count: u32| u64::from(chaos.events / count.max(1)).max(1);
        for _ in 0..chaos.events {
            if self.is_over() {
                break;
            }
            if chaos.kills > 0 && self.dice.once_in(per(chaos.kills)) {
                self.kill();
            }
            if chaos.cuts > 0 && self.dice.once_in(per(chaos.cuts)) {
                self.cut();
            }
            if chaos.drains > 0 && self.dice.once_in(per(chaos.drains)) {
                self.drain();
            }
            if chaos.crashes > 0 && self.dice.once_in(per(chaos.crashes)) {
                self.crash();
            }
            if self.dice.once_in(60) && self.processes.len() < 8 {
                self.start();
            }
            self.event();
        }
        self.losses = 0;
    }

    fn is_over(&self) -> bool {
        self.summary.is_some() || self.stopped_in_vain
    }

    fn kill(&mut self) {
        let Some(worker) = self.pick() else { return };
        self.end(worker, "signal 9");
        if self.dice.once_in(2) {
            self.start();
        }
    }

    /// Somebody wants a worker to leave: its agent, or a signal.
    fn drain(&mut self) {
        let Some(worker) = self.pick() else { return };
        let reason = "test".to_owned();
        if self.dice.once_in(2) {
            self.member(worker, sardana_protocol::member::Event::Leave { reason }, None);
        } else {
            self.coordinate(Event::LeaveRequested { worker, reason });
        }
        if self.dice.once_in(2) && self.processes.len() < 8 {
            self.start();
        }
    }

    /// A process ends, and its agent sees it.
    pub(super) fn end(&mut self, worker: WorkerId, how: &str) -> Option<Process> {
        let process = self.processes.remove(&worker)?;
        let cause = Loss::Exited {
            how: how.to_owned(),
            tally: Some(process.member.tally()),
        };
        self.mail.push(Mail::Lost(worker, cause));
        Some(process)
    }

    /// The coordinator dies with all that is on its way, and is started again; agents keep what they could not report.
    fn crash(&mut self) {
        // The job may have ended in this very moment.
        if self.is_over() {
            return;
        }
        let (written, memory) = match self.dice.below(4) {
            0 => (None, Memory::Stale),
            1 => (self.record.clone(), Memory::Stale),
            _ => (Some(self.coordinator.record()), Memory::Fresh),
        };
        self.memory = memory;
        self.incarnation = Incarnation::new(self.incarnation.get() + 1);
        if self.story == Story::Told {
            println!(
                "the coordinator crashes; its next life is {} with {written:?}",
                self.incarnation
            );
        }
        self.coordinator = Membership::resume(self.config, self.incarnation, self.now, written);
        self.mail.retain(|mail| match mail {
            Mail::Lost(..) => true,
            Mail::ToWorker(..) | Mail::ToCoordinator(..) | Mail::Hello(_) | Mail::OfDepot(..) => false,
        });
        self.depots_say_hello();
        self.mail.extend(self.processes.keys().copied().map(Mail::Hello));
        if self.operator == Operator::HasAsked {
            self.operator = Operator::WantsToStop;
        }
    }

    /// A control connection breaks; the worker lives on and says hello again.
    fn cut(&mut self) {
        let Some(worker) = self.pick() else { return };
        self.count = Count::Unknown;
        let dismissed = self.mail.iter().any(|mail| mail.dismisses(worker));
        self.mail.retain(|mail| !mail.travels_with(worker));
        if dismissed {
            self.mail.push(Mail::Hello(worker));
        } else if self.coordinator.knows(worker) {
            let cause = Loss::ConnectionLost { why: "cut".to_owned() };
            self.coordinate(Event::Lost { worker, cause });
            self.mail.push(Mail::Hello(worker));
        }
    }
}
