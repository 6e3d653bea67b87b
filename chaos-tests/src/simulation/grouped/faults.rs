//! What goes wrong in a simulated group.

use std::time::Duration;

use sardana_protocol::member::GroupEvent;
use sardana_protocol::membership::Event;
use sardana_protocol::words::WorkerId;
use strum::VariantArray;

use super::world::{Happening, World};

/// What may strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, strum::IntoStaticStr)]
enum Fault {
    /// A process is killed; its agent tells.
    Kill,
    /// A host is gone, with its agent.
    Vanish,
    /// A connection to the coordinator breaks, and both ends notice some time.
    CutOff,
    /// A process stands still for a while.
    Freeze,
    /// Two workers cannot be linked.
    Apart,
    /// All can be linked again.
    Together,
    /// A program wants the next generation.
    GiveUp,
    /// A program wants to leave.
    Leave,
    /// An operator wants a worker to leave.
    Drain,
    /// One more process comes, or one less is wanted.
    Scale,
    /// The coordinator crashes.
    Crash,
}

impl World {
    /// Faults come until `end`.
    pub(super) fn faults_until(&mut self, end: Duration) {
        self.faults_end = end;
        let wait = self.between(100, 20_000);
        self.after(wait, Happening::Fault);
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.apart.clear();
        for process in self.processes.values_mut() {
            process.frozen = Duration::ZERO;
        }
    }

    fn any(&mut self) -> Option<WorkerId> {
        let all: Vec<WorkerId> = self.processes.keys().copied().collect();
        self.dice.pick(&all)
    }

    /// A process is killed.
    pub(super) fn kill_one(&mut self) {
        if let Some(worker) = self.any() {
            self.end_process(worker);
        }
    }

    pub(super) fn fault(&mut self) {
        if self.now() >= self.faults_end || self.ending.done {
            return;
        }
        if let (Some(fault), Some(worker)) = (self.dice.pick(Fault::VARIANTS), self.any()) {
            *self.counts.faults.entry(fault.into()).or_default() += 1;
            self.strike(fault, worker);
        }
        // Several at once, or none for a while.
        let wait = if self.dice.once_in(3) {
            self.between(0, 30)
        } else {
            self.between(100, 30_000)
        };
        self.after(wait, Happening::Fault);
    }

    fn strike(&mut self, fault: Fault, worker: WorkerId) {
        let generation = self
            .processes
            .get(&worker)
            .and_then(|process| Some(process.seat.as_ref()?.form.generation));
        match fault {
            Fault::Kill => self.end_process(worker),
            Fault::Vanish => self.vanish(worker),
            Fault::CutOff => {
                if let Some(session) = self.processes.get(&worker).and_then(|process| process.session) {
                    let (one, other) = (self.between(0, 5_000), self.between(0, 5_000));
                    self.after(one, Happening::SessionLost { worker, session });
                    self.after(other, Happening::ControlLost { worker, session });
                }
            }
            Fault::Freeze => {
                let until = self.now() + self.between(100, 20_000);
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.frozen = until;
                }
            }
            Fault::Apart => {
                if let Some(other) = self.any().filter(|other| *other != worker) {
                    self.apart.insert((worker.min(other), worker.max(other)));
                }
            }
            Fault::Together => self.apart.clear(),
            Fault::GiveUp => {
                if let Some(generation) = generation {
                    self.breaks(worker, generation);
                }
            }
            Fault::Leave => {
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.leaves = true;
                }
                let reason = "its program leaves".to_owned();
                self.handle(worker, GroupEvent::Leave { reason });
            }
            Fault::Drain => {
                let reason = "an operator wants it".to_owned();
                self.decide(Event::LeaveRequested { worker, reason });
            }
            Fault::Scale => {
                // A process more; one that ends later is replaced like any.
                if self.wanted < 8 {
                    self.wanted += 1;
                    self.after(Duration::ZERO, Happening::Start);
                }
            }
            Fault::Crash => self.crash_coordinator(),
        }
    }
}
