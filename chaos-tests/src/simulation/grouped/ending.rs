//! How the job of a simulated group ends: all its programs have done their work, or an operator stops it, while faults go on.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_protocol::member::GroupEvent;
use sardana_protocol::membership::Event;
use sardana_protocol::words::{Generation, WorkerId};

use super::process::Group;
use super::world::{Happening, World};

/// What is to end the job, and how far that is.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Whether the programs have no work but to finish.
    finishes: bool,
    /// The operation of each generation that closes it.
    closing: BTreeMap<Generation, u64>,
    /// Whether an operator wants the job to stop.
    pub(super) stops: bool,
    /// Whether a coordinator has been asked to stop it.
    asked: bool,
    /// Whether the coordinator has told people that the job is done.
    pub(super) done: bool,
}

impl World {
    /// Something is to end the job: soon, and often just after the coordinator has begun another life, or while a generation forms.
    pub(super) fn begin_to_end(&mut self) {
        if self.dice.once_in(2) {
            self.ending.finishes = true;
            // Often some have said so to a coordinator that is gone by the time the others do.
            if self.dice.once_in(2) {
                let wait = self.between(0, 5_000);
                self.after(wait, Happening::Crash);
            }
            return;
        }
        self.ending.stops = true;
        let most = if self.dice.once_in(2) {
            self.crash_coordinator();
            5_000
        } else {
            // While the others form the next generation, if it comes so soon.
            self.kill_one();
            100
        };
        let wait = self.between(0, most);
        self.after(wait, Happening::Stop);
    }

    /// An operator asks the coordinator that is there, once.
    pub(super) fn stop(&mut self) {
        if !self.coordinator.is_there() {
            let again = self.between(1, 1_000);
            return self.after(again, Happening::Stop);
        }
        self.ending.asked = true;
        self.decide(Event::StopRequested);
    }

    /// Whether this operation is the last one of its generation: the first rank that has a result of it decides for all.
    pub(super) fn closes(&mut self, generation: Generation, number: u64) -> bool {
        let finishes = self.ending.finishes;
        finishes && *self.ending.closing.entry(generation).or_insert(number + 1) == number
    }

    /// A program has closed its group, as all others have. It finishes, or leaves instead.
    pub(super) fn closed(&mut self, worker: WorkerId, generation: Generation) {
        let leaves = self.dice.once_in(5);
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        process.leaves |= leaves;
        let leaves = process.leaves;
        if let Some(seat) = process.in_generation(generation) {
            seat.group = if leaves { Group::Over } else { Group::Done };
        }
        if leaves {
            let reason = "its program leaves".to_owned();
            self.handle(worker, GroupEvent::Leave { reason });
        } else {
            self.handle(worker, GroupEvent::Done { generation });
        }
    }

    /// The coordinator tells people that the job is done: so all living members that it is connected with have finished, or it was stopped.
    pub(super) fn completed(&mut self) {
        self.ending.done = true;
        if self.ending.asked {
            self.counts.stopped += 1;
            return;
        }
        self.counts.finished += 1;
        let generation = self.newest();
        let has_finished = |worker: &WorkerId| {
            let living = self.processes.get(worker).filter(|_| self.coordinator.hears(*worker));
            living.is_none_or(|process| process.seat_of(generation).is_some_and(|seat| seat.group == Group::Done))
        };
        let members = self.oracle.members(generation);
        if let Some(worker) = members.iter().find(|worker| !has_finished(worker)) {
            self.violates(
                "CONTROL",
                format!("done, and {worker} of {generation} has not finished: {self:?}"),
            );
        }
    }

    /// A worker hears that the job is done.
    pub(super) fn hears_of_the_end(&mut self, worker: WorkerId) {
        if !self.ending.done {
            self.violates("CONTROL", format!("{worker} is told that the job is done"));
        }
        self.vanish(worker);
    }

    /// Whether the job is done, and all processes have heard of it.
    pub(super) fn has_ended(&self) -> bool {
        self.ending.done && self.processes.is_empty()
    }

    /// Lets things happen for so long, or until the job has ended, which is then true.
    pub(super) fn ends_within(&mut self, wait: Duration) -> bool {
        let end = self.now() + wait;
        self.until(end, Self::has_ended)
    }
}
