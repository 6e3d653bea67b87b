//! Who does what when, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::member::GroupEvent;
use sardana_protocol::messages::{CoordinatorMessage, Introduction, WorkerMessage};
use sardana_protocol::words::{Generation, Incarnation, WorkerId};

use super::Grouped;
use super::coordinator::Coordinator;
use super::ending::Ending;
use super::oracle::Oracle;
use super::process::{Group, Process, Seat};
use crate::dice::Dice;
use crate::simulation::invariants::Violation;

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Tick {
        life: Incarnation,
    },
    Revive,
    Start,
    Dial {
        worker: WorkerId,
    },
    Hello {
        worker: WorkerId,
        session: u64,
        introduction: Box<Introduction>,
    },
    Greeting {
        worker: WorkerId,
        session: u64,
        incarnation: Incarnation,
    },
    ToCoordinator {
        worker: WorkerId,
        session: u64,
        message: Box<WorkerMessage>,
    },
    ToWorker {
        worker: WorkerId,
        session: u64,
        message: Box<CoordinatorMessage>,
    },
    /// The coordinator, or the worker, notices that a connection is gone.
    SessionLost {
        worker: WorkerId,
        session: u64,
    },
    ControlLost {
        worker: WorkerId,
        session: u64,
    },
    /// An agent tells of an end.
    Exited {
        worker: WorkerId,
    },
    Beat {
        worker: WorkerId,
    },
    /// A worker looks whether its links are made.
    Link {
        worker: WorkerId,
        generation: Generation,
        since: Duration,
    },
    /// Its program calls the next operation.
    Call {
        worker: WorkerId,
        generation: Generation,
    },
    /// All have called: the result is there.
    Result {
        worker: WorkerId,
        generation: Generation,
        number: u64,
    },
    /// A link of its has broken.
    Breaks {
        worker: WorkerId,
        generation: Generation,
    },
    Fault,
    /// The coordinator crashes.
    Crash,
    /// An operator asks for the end.
    Stop,
    /// A worker that dials is told that the job is over.
    Over {
        worker: WorkerId,
    },
}

pub(super) struct World {
    pub(super) dice: Dice,
    now: Duration,
    calendar: BTreeMap<(Duration, u64), Happening>,
    entries: u64,
    pub(super) coordinator: Coordinator,
    pub(super) processes: BTreeMap<WorkerId, Process>,
    pub(super) ids: u64,
    pub(super) sessions: u64,
    /// When the last message over a session comes: none overtakes another.
    lines: BTreeMap<(u64, bool), Duration>,
    /// How many processes there are to be.
    pub(super) wanted: usize,
    /// Pairs that cannot be linked now.
    pub(super) apart: BTreeSet<(WorkerId, WorkerId)>,
    pub(super) faults_end: Duration,
    pub(super) ending: Ending,
    pub(super) oracle: Oracle,
    pub(super) counts: Grouped,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {:?} the coordinator is {:?}", self.now, self.coordinator)?;
        for (worker, process) in &self.processes {
            let seat = process
                .seat
                .as_ref()
                .map(|seat| (seat.form.generation, seat.form.rank, seat.group, seat.ended));
            writeln!(
                f,
                "{worker}: {seat:?}, session {:?}, leaves {}",
                process.session, process.leaves
            )?;
        }
        Ok(())
    }
}

impl World {
    pub(super) fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let wanted = 1 + dice.index(6);
        let mut world = Self {
            coordinator: Coordinator::drawn(&mut dice, wanted),
            dice,
            now: Duration::ZERO,
            calendar: BTreeMap::new(),
            entries: 0,
            processes: BTreeMap::new(),
            ids: 0,
            sessions: 0,
            lines: BTreeMap::new(),
            wanted,
            apart: BTreeSet::new(),
            faults_end: Duration::ZERO,
            ending: Ending::default(),
            oracle: Oracle::default(),
            counts: Grouped::default(),
        };
        world.begin_life();
        for _ in 0..wanted {
            let wait = world.between(0, 2_000);
            world.after(wait, Happening::Start);
        }
        world
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn newest(&self) -> Generation {
        self.oracle.newest()
    }

    pub(super) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.dice.below(most - least + 1))
    }

    /// Messages take milliseconds, now and then much longer.
    pub(super) fn delay(&mut self) -> Duration {
        if self.dice.once_in(50) && self.now < self.faults_end {
            return self.between(50, 1_500);
        }
        Duration::from_micros(100 + self.dice.below(4_000))
    }

    pub(super) fn after(&mut self, wait: Duration, what: Happening) {
        self.entries += 1;
        self.calendar.insert((self.now + wait, self.entries), what);
    }

    /// A message that does not overtake another of its session and direction.
    pub(super) fn send(&mut self, session: u64, onwards: bool, what: Happening) {
        let at = (self.now + self.delay()).max(self.lines.get(&(session, onwards)).copied().unwrap_or_default());
        self.lines.insert((session, onwards), at);
        self.entries += 1;
        self.calendar.insert((at, self.entries), what);
    }

    pub(super) fn violates(&mut self, invariant: &'static str, text: String) {
        self.counts.violation.get_or_insert_with(|| Violation::new(invariant, text));
    }

    pub(super) fn held(&mut self, held: Result<(), Violation>) {
        if let Err(violation) = held {
            let text = format!("at {:?}: {}", self.now, violation.text);
            self.violates(violation.invariant, text);
        }
    }

    /// Lets things happen until `end`, or until `is_so`, which is then true.
    pub(super) fn until(&mut self, end: Duration, is_so: impl Fn(&Self) -> bool) -> bool {
        while self.counts.violation.is_none() && !is_so(self) {
            let Some(entry) = self.calendar.first_entry().filter(|entry| entry.key().0 <= end) else {
                self.now = end;
                return is_so(self);
            };
            self.now = entry.key().0;
            let what = entry.remove();
            self.happens(what);
        }
        self.counts.generations = self.oracle.generations();
        self.counts.violation.is_none()
    }

    /// Whether all processes that may be members are in one generation that works, and those that wanted to leave are gone.
    pub(super) fn is_whole(&self) -> bool {
        let most = self.wanted.min(self.coordinator.most());
        let newest = self.newest();
        let in_it: Vec<&Seat> = self
            .processes
            .values()
            .filter_map(|process| process.seat_of(newest))
            .collect();
        let works = in_it
            .iter()
            .all(|seat| seat.group == Group::Works && seat.form.world_size as usize == most);
        let none_leaves = !self.processes.values().any(|process| process.leaves);
        self.processes.len() == self.wanted && in_it.len() == most && works && none_leaves
    }

    fn happens(&mut self, what: Happening) {
        if let Some(until) = self.frozen_until(&what) {
            return self.after(until.saturating_sub(self.now), what);
        }
        match what {
            Happening::Tick { life } => self.tick(life),
            Happening::Revive => self.begin_life(),
            Happening::Start => self.start(),
            Happening::Dial { worker } => self.dial(worker),
            Happening::Hello {
                worker,
                session,
                introduction,
            } => self.hello(worker, session, *introduction),
            Happening::Greeting {
                worker,
                session,
                incarnation,
            } => self.greeted(worker, session, incarnation),
            Happening::ToCoordinator {
                worker,
                session,
                message,
            } => self.said(worker, session, *message),
            Happening::ToWorker {
                worker,
                session,
                message,
            } => self.told(worker, session, *message),
            Happening::SessionLost { worker, session } => self.session_lost(worker, session),
            Happening::ControlLost { worker, session } => self.control_lost(worker, session),
            Happening::Exited { worker } => self.exited(worker),
            Happening::Beat { worker } => {
                if self.processes.contains_key(&worker) {
                    self.handle(worker, GroupEvent::Beat);
                    self.after(HEARTBEAT, Happening::Beat { worker });
                }
            }
            Happening::Link {
                worker,
                generation,
                since,
            } => self.link(worker, generation, since),
            Happening::Call { worker, generation } => self.call(worker, generation),
            Happening::Result {
                worker,
                generation,
                number,
            } => self.result(worker, generation, number),
            Happening::Breaks { worker, generation } => self.breaks(worker, generation),
            Happening::Fault => self.fault(),
            Happening::Crash => self.crash_coordinator(),
            Happening::Stop => self.stop(),
            Happening::Over { worker } => self.hears_of_the_end(worker),
        }
    }

    /// Until when the process stands still that this happens to.
    fn frozen_until(&self, what: &Happening) -> Option<Duration> {
        let worker = match what {
            Happening::Dial { worker }
            | Happening::Greeting { worker, .. }
            | Happening::ToWorker { worker, .. }
            | Happening::ControlLost { worker, .. }
            | Happening::Beat { worker }
            | Happening::Link { worker, .. }
            | Happening::Call { worker, .. }
            | Happening::Result { worker, .. }
            | Happening::Breaks { worker, .. }
            | Happening::Over { worker } => worker,
            Happening::Tick { .. }
            | Happening::Revive
            | Happening::Start
            | Happening::Hello { .. }
            | Happening::ToCoordinator { .. }
            | Happening::SessionLost { .. }
            | Happening::Exited { .. }
            | Happening::Fault
            | Happening::Crash
            | Happening::Stop => return None,
        };
        let frozen = self.processes.get(worker)?.frozen;
        (frozen > self.now).then_some(frozen)
    }
}
