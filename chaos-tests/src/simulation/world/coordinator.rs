//! The coordinator's process and its disk: lives that end and begin, a clock that may go wrong, records that are lost unless synced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::limits::{RECORD_EVERY, TICK};
use sardana_protocol::membership::{Command, Config, Event, JobRecord, Membership};
use sardana_protocol::messages::{CoordinatorMessage, WorkerMessage};
use sardana_protocol::words::{Incarnation, WorkerId};

use super::World;
use super::control::is_last;
use super::depots::DepotSession;
use crate::simulation::calendar::Happening;

/// What the coordinator's process and host have.
pub(crate) struct Coordinator {
    pub(crate) config: Config,
    /// None while it is down.
    pub(crate) machine: Option<Membership>,
    pub(crate) incarnation: Incarnation,
    started: Duration,
    /// What its clock showed when it `started`, and how fast it goes, in thousandths.
    origin: Duration,
    rate: u64,
    pub(crate) frozen_until: Option<Duration>,
    sessions: BTreeMap<WorkerId, Session>,
    /// The workers that it has seen end.
    pub(super) gone: BTreeSet<WorkerId>,
    disk: Disk,
    /// Whether its present life does not know all that counts of the one before.
    pub(crate) forgetful: bool,
    /// Whether its present life has read that training had begun.
    pub(crate) remembers: bool,
    /// The connections of depots, as it sees them.
    pub(crate) depots: BTreeMap<DepotId, DepotSession>,
}

/// The connection of a worker, as the coordinator sees it.
struct Session {
    number: u64,
    /// When the last message over it arrives.
    downstream: Duration,
}

/// Records, and when each is safe.
#[derive(Default)]
struct Disk {
    written: Vec<(Duration, JobRecord)>,
    at: Duration,
    /// Something has happened since that is more than progress.
    news: bool,
}

impl Coordinator {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            machine: None,
            incarnation: Incarnation::ZERO,
            started: Duration::ZERO,
            origin: Duration::ZERO,
            rate: 1_000,
            frozen_until: None,
            sessions: BTreeMap::new(),
            gone: BTreeSet::new(),
            disk: Disk::default(),
            forgetful: false,
            remembers: false,
            depots: BTreeMap::new(),
        }
    }

    /// What its clock shows.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        let since = u64::try_from(now.saturating_sub(self.started).as_micros()).unwrap_or(u64::MAX);
        self.origin + Duration::from_micros(since.saturating_mul(self.rate) / 1_000)
    }

    /// Its clock goes on at another rate, from what it shows.
    pub(crate) fn skew(&mut self, now: Duration, rate: u64) {
        self.origin = self.clock(now);
        self.started = now;
        self.rate = rate;
    }

    pub(crate) fn session_of(&self, worker: WorkerId) -> Option<u64> {
        self.sessions.get(&worker).map(|session| session.number)
    }

    pub(crate) fn sessions(&self) -> Vec<(WorkerId, u64)> {
        let numbers = self.sessions.iter();
        numbers.map(|(&worker, session)| (worker, session.number)).collect()
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.sessions.remove(&worker);
    }

    pub(crate) fn welcome(&mut self, worker: WorkerId, number: u64, downstream: Duration) {
        self.sessions.insert(worker, Session { number, downstream });
    }

    /// When a message arrives that cannot overtake those before it.
    pub(crate) fn in_order(&mut self, worker: WorkerId, at: Duration) -> Duration {
        match self.sessions.get_mut(&worker) {
            Some(session) => {
                session.downstream = session.downstream.max(at);
                session.downstream
            }
            None => at,
        }
    }

    /// The process is gone, and what was not safe on the disk with it; all of the disk, if it is lost.
    pub(crate) fn die(&mut self, now: Duration, disk_lost: bool) {
        let newest = self.machine.take().map(|machine| machine.record());
        self.sessions.clear();
        self.depots.clear();
        self.gone.clear();
        self.frozen_until = None;
        self.disk.written.retain(|(safe, _)| !disk_lost && *safe <= now);
        let kept = self.disk.written.last().map(|(_, record)| record);
        let forgets = |newest: &JobRecord| kept.is_none_or(|kept| newest.differs_from(kept));
        if let Some(newest) = &newest {
            self.forgetful = forgets(newest);
        }
    }
}

impl World {
    /// The coordinator starts, for the first time or once more. Its incarnation is on the disk before any other process hears of it.
    pub(crate) fn begin_life(&mut self) {
        if self.coordinator.machine.is_some() || self.done.is_some() {
            return;
        }
        let now = self.now();
        let uptime = self.within(Duration::from_secs(10));
        let coordinator = &mut self.coordinator;
        coordinator.incarnation = Incarnation::new(coordinator.incarnation.get() + 1);
        coordinator.started = now;
        coordinator.origin = uptime;
        let (config, life) = (coordinator.config, coordinator.incarnation);
        let record = coordinator.disk.written.last().map(|(_, record)| record.clone());
        coordinator.remembers = record.as_ref().is_some_and(JobRecord::has_begun);
        coordinator.machine = Some(if life == Incarnation::new(1) {
            Membership::new(config, life, uptime)
        } else {
            Membership::resume(config, life, uptime, record)
        });
        self.law.no_depots();
        self.law.begins_life(uptime, !self.coordinator.forgetful);
        self.story.tell(now, || format!("the coordinator begins its life {life}"));
        self.calendar.after(TICK, Happening::Tick { life });
    }

    /// Whether the coordinator is there and awake.
    pub(crate) fn coordinator_listens(&self) -> bool {
        let awake = self.coordinator.frozen_until.is_none_or(|thaw| thaw <= self.now());
        awake && self.coordinator.machine.is_some()
    }

    pub(crate) fn tick(&mut self, life: Incarnation) {
        if self.coordinator.machine.is_none() || self.coordinator.incarnation != life {
            return;
        }
        self.decide(Event::Tick);
        self.agents_look();
        self.write_down();
        self.calendar.after(TICK, Happening::Tick { life });
    }

    /// The coordinator's machine is told something, and does what it wants done.
    pub(crate) fn decide(&mut self, event: Event) {
        let now = self.now();
        let clock = self.coordinator.clock(now);
        let Some(machine) = &mut self.coordinator.machine else {
            return;
        };
        self.coordinator.disk.news |= !is_routine(&event);
        if let Event::Depot { depot, event } = &event {
            self.law.depot_is_heard(*depot, event);
        }
        let (before, numbered) = (machine.phases(), machine.generation());
        let (says, reached) = (matches!(event, Event::Said { .. }), machine.reached());
        let commands = machine.handle(clock, event);
        if says && machine.reached() > reached {
            self.law.advances(clock);
        }
        self.coverage.moved(before, machine.phases());
        let changed = machine.generation() != numbered;
        for command in commands {
            match command {
                Command::Send { worker, message } => self.order(worker, message),
                Command::Kill { worker } => self.order_kill(worker, before),
                Command::Order { depot, order } => self.order_depot(depot, *order),
                Command::Commit { to, contents } => self.order_commit(&to, *contents),
                Command::Tell(event) => self.told(event, before),
            }
        }
        if changed {
            self.write_down();
        }
    }

    fn order(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        if let Some(liars) = &mut self.liars {
            liars.hear(&message);
        }
        self.coverage.ordered(&message);
        self.story
            .tell(self.calendar.now(), || format!("coordinator to {worker}: {message:?}"));
        let held = self.law.orders(worker, &message);
        self.require(held);
        let last = is_last(&message);
        if matches!(message, CoordinatorMessage::Dismiss { .. }) {
            self.dismissed.push(worker);
        }
        self.send_down(worker, message);
        if last {
            self.coordinator.forget(worker);
        }
    }

    /// Writes down what the next life should know, as the shell does: at once if it matters, else every so often. Safe only later.
    fn write_down(&mut self) {
        let now = self.now();
        let sync = self.within(self.swarm.sync);
        let coordinator = &mut self.coordinator;
        let Some(machine) = &coordinator.machine else { return };
        let disk = &mut coordinator.disk;
        if !std::mem::take(&mut disk.news) && now.saturating_sub(disk.at) < RECORD_EVERY {
            return;
        }
        let record = machine.record();
        let due = disk.written.last().is_none_or(|(_, before)| {
            record.differs_from(before) || (now.saturating_sub(disk.at) >= RECORD_EVERY && record != *before)
        });
        if due {
            // All that is safe already but the newest of it is history.
            let safe = disk.written.iter().rposition(|(safe, _)| *safe <= now).unwrap_or(0);
            disk.written.drain(..safe);
            let after = disk.written.last().map_or(now, |(safe, _)| now.max(*safe));
            disk.written.push((after + sync, record));
            disk.at = now;
        }
    }
}

/// Whether an event only says that all goes on: the record would not differ by more than steps.
fn is_routine(event: &Event) -> bool {
    matches!(
        event,
        Event::Tick
            | Event::Motion { .. }
            | Event::Said {
                message: WorkerMessage::Progress { .. },
                ..
            }
    )
}
