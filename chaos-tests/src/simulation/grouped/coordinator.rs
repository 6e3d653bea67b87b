//! The coordinator of a simulated group: its machine, what it has written down, and what reaches it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sardana_protocol::job::{Compression, Order, Task};
use sardana_protocol::membership::{
    Arrival, Balance, Command, Config, Event, GenerationEvent, JobEvent, JobRecord, Loss, Membership,
};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{CoordinatorMessage, Introduction, WorkerMessage};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Incarnation, Step, WorkerId};

use super::world::{Happening, World};
use crate::dice::Dice;

/// How often it looks at its clock.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct Coordinator {
    config: Config,
    life: Incarnation,
    machine: Option<Membership>,
    record: Option<JobRecord>,
    /// The connection of each worker.
    sessions: BTreeMap<WorkerId, u64>,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phases = self.machine.as_ref().map(Membership::phases);
        let generation = self.machine.as_ref().map(Membership::generation);
        write!(
            f,
            "{phases:?} at {generation:?}, {:?}, sessions {:?}",
            self.config, self.sessions
        )
    }
}

impl Coordinator {
    pub(super) fn drawn(dice: &mut Dice, wanted: usize) -> Self {
        let wanted = u32::try_from(wanted).expect("a few");
        let task = Task {
            settings: StateHash::of(b"group"),
            data: sardana_protocol::data::DataFingerprint::default().hash(),
        };
        Self {
            config: Config {
                min: 1 + u32::try_from(dice.index(wanted as usize)).expect("a few"),
                expected: wanted,
                // Now and then some wait for a place.
                max: if dice.once_in(4) { wanted.max(2) - 1 } else { 8 }.max(1),
                shards: 0,
                steps: Step::ZERO,
                order: Order::Fast,
                compression: Compression::None,
                balance: Balance::default(),
                task,
                build: StateHash::of(b"build"),
                saves: None,
            }
            .consistent(),
            life: Incarnation::ZERO,
            machine: None,
            record: None,
            sessions: BTreeMap::new(),
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.machine.is_some()
    }

    /// Whether it has a connection with this worker, as far as it knows.
    pub(super) fn hears(&self, worker: WorkerId) -> bool {
        self.sessions.contains_key(&worker)
    }

    /// Whether this connection with this worker is there, as far as it knows.
    pub(super) fn has(&self, worker: WorkerId, session: u64) -> bool {
        self.sessions.get(&worker) == Some(&session)
    }

    pub(super) fn most(&self) -> usize {
        self.config.max as usize
    }
}

/// Settings that a launcher would take.
trait Consistent {
    fn consistent(self) -> Self;
}

impl Consistent for Config {
    fn consistent(self) -> Self {
        Self {
            min: self.min.min(self.max),
            ..self
        }
    }
}

impl World {
    pub(super) fn begin_life(&mut self) {
        if self.coordinator.is_there() {
            return;
        }
        let coordinator = &mut self.coordinator;
        let first = coordinator.life == Incarnation::ZERO;
        coordinator.life = Incarnation::new(coordinator.life.get() + 1);
        let (config, life) = (coordinator.config, coordinator.life);
        let now = self.now();
        // What was written down may be lost.
        let record = self.coordinator.record.take().filter(|_| !self.dice.once_in(3));
        // An operator who sees that it does not stop asks again.
        if self.ending.stops && record.is_none() {
            self.after(TICK, Happening::Stop);
        }
        self.coordinator.machine = Some(if first {
            Membership::new(config, life, now)
        } else {
            Membership::resume(config, life, now, record)
        });
        self.after(TICK, Happening::Tick { life });
    }

    /// It crashes; another life begins later.
    pub(super) fn crash_coordinator(&mut self) {
        // One whose job is done goes by itself, once all have heard of it.
        let Some(machine) = self.coordinator.machine.take_if(|_| !self.ending.done) else {
            return;
        };
        self.coordinator.record = Some(machine.record());
        for (worker, session) in std::mem::take(&mut self.coordinator.sessions) {
            let noticed = self.between(1, 3_000);
            self.after(noticed, Happening::ControlLost { worker, session });
        }
        let away = self.between(100, 20_000);
        self.after(away, Happening::Revive);
    }

    pub(super) fn decide(&mut self, event: Event) {
        let now = self.now();
        let Some(machine) = &mut self.coordinator.machine else {
            return;
        };
        for command in machine.handle(now, event) {
            match command {
                Command::Send { worker, message } => self.orders(worker, message),
                Command::Kill { worker } => self.end_process(worker),
                Command::Tell(JobEvent::Failed { reason }) => self.violates("CONTROL", format!("the job fails: {reason}")),
                Command::Tell(JobEvent::Generation(GenerationEvent::Adopted { .. })) => self.counts.adopted += 1,
                Command::Tell(JobEvent::Done(_)) => self.completed(),
                Command::Tell(_) => {}
                Command::Order { .. } | Command::Commit { .. } => {
                    self.violates("CONTROL", "a group has no checkpoints".to_owned())
                }
            }
        }
    }

    fn orders(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        if let CoordinatorMessage::Form(form) = &message {
            self.oracle.orders(form.generation);
        }
        let is_last = matches!(
            message,
            CoordinatorMessage::Released { .. } | CoordinatorMessage::Dismiss { .. }
        );
        let Some(&session) = self.coordinator.sessions.get(&worker) else {
            return;
        };
        if is_last {
            self.coordinator.sessions.remove(&worker);
        }
        let told = Happening::ToWorker {
            worker,
            session,
            message: Box::new(message),
        };
        self.send(session, false, told);
    }

    pub(super) fn tick(&mut self, life: Incarnation) {
        if life == self.coordinator.life && self.coordinator.is_there() {
            self.decide(Event::Tick);
            self.after(TICK, Happening::Tick { life });
        }
    }

    pub(super) fn hello(&mut self, worker: WorkerId, session: u64, introduction: Introduction) {
        if !self.coordinator.is_there() {
            return;
        }
        if self.ending.done {
            return self.send(session, false, Happening::Over { worker });
        }
        // A later call of the same process.
        if let Some(&before) = self.coordinator.sessions.get(&worker) {
            if before > session {
                return;
            }
            self.session_lost(worker, before);
            // The worker may have that one, and not this one.
            let (noticed, session) = (self.between(1, 3_000), before);
            self.after(noticed, Happening::ControlLost { worker, session });
        }
        self.oracle.arrives(worker);
        self.coordinator.sessions.insert(worker, session);
        let incarnation = self.coordinator.life;
        let greeting = Happening::Greeting {
            worker,
            session,
            incarnation,
        };
        self.send(session, false, greeting);
        let octet = u8::try_from(worker.get() % 250).expect("it is less");
        self.decide(Event::Arrived(Box::new(Arrival {
            worker,
            address: SocketAddr::from((Ipv4Addr::new(10, 0, 0, octet), 1)),
            capacity: 1,
            memory: GradientMemory::unbounded(1),
            host_hash: None,
            on_device: false,
            introduction,
        })));
    }

    pub(super) fn said(&mut self, worker: WorkerId, session: u64, message: WorkerMessage) {
        if self.coordinator.sessions.get(&worker) == Some(&session) {
            self.decide(Event::Said { worker, message });
        }
    }

    pub(super) fn session_lost(&mut self, worker: WorkerId, session: u64) {
        if self.coordinator.sessions.get(&worker) == Some(&session) {
            self.coordinator.sessions.remove(&worker);
            let why = "reset".to_owned();
            self.decide(Event::Lost {
                worker,
                cause: Loss::ConnectionLost { why },
            });
        }
    }

    pub(super) fn exited(&mut self, worker: WorkerId) {
        if !self.coordinator.is_there() {
            // An agent keeps what it has to report.
            return self.after(Duration::from_millis(500), Happening::Exited { worker });
        }
        self.coordinator.sessions.remove(&worker);
        self.oracle.ends(worker);
        let how = "signal 9".to_owned();
        self.decide(Event::Lost {
            worker,
            cause: Loss::Exited { how, tally: None },
        });
    }
}
