//! The simulated cluster: processes, their network, and a scheduler that does whatever a seed says.

mod dice;
mod faults;
mod joining;
mod law;
mod lives;
mod network;
mod process;
mod stores;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use dice::Dice;
use law::{Count, End, Law, Memory};
use network::Mail;
use process::Process;
use sardana_protocol::job::{JobSpec, Order};
use sardana_protocol::member::{self, Heartbeat};
use sardana_protocol::membership::{Balance, Calm, Config, Event, JobRecord, Membership, Summary};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Incarnation, Pace, Step, WorkerId};
use stores::Stores;

use crate::hostile::alone::saves;
use crate::hostile::among::Liars;
use crate::ring::Sums;

pub(crate) use faults::Chaos;

/// More workers than this are not in the ring.
const MAX: u32 = 5;

/// A job whose last fault is over ends within this many events (LIVE-1).
const PATIENCE: u32 = 400_000;

pub(crate) struct World {
    law: Law,
    dice: Dice,
    now: Duration,
    spec: JobSpec,
    min: u32,
    config: Config,
    incarnation: Incarnation,
    coordinator: Membership,
    /// What the coordinator has written down, some time ago.
    record: Option<JobRecord>,
    memory: Memory,
    processes: BTreeMap<WorkerId, Process>,
    sums: Sums,
    mail: Vec<Mail>,
    next_worker: u64,
    /// Lost messages in a thousand.
    losses: u32,
    count: Count,
    operator: Operator,
    story: Story,
    /// Of the newest generation.
    members: Vec<WorkerId>,
    /// How often shards have moved although no worker came or went.
    pub(crate) moved: u32,
    summary: Option<Summary>,
    /// The newest state that the coordinator has told of, as far as it is not lost.
    reached: Step,
    /// Whether the job was asked to stop while none that was connected had its state: then it fails, and nothing is lost by it.
    stopped_in_vain: bool,
    pub(crate) stores: Stores,
    /// Who lies, in some runs.
    pub(crate) liars: Option<Liars>,
    /// The longest text that the coordinator's machine was.
    pub(crate) largest: usize,
}

/// Whether a run tells what happens. Beats, ticks and progress are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    Untold,
    Told,
}

/// What the operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Watches,
    /// Stops the job, whatever it is doing.
    WantsToStop,
    HasAsked,
}

impl World {
    pub(crate) fn new(seed: u64, workers: u32, shards: u32, steps: u64, story: Story) -> Self {
        let min = 1 + u32::try_from(seed % u64::from(workers)).expect("below a u32");
        let config = Config {
            min,
            expected: workers,
            max: MAX,
            shards,
            steps: Step::new(steps),
            order: Order::Exact,
            // Soon, so that shards move again and again among all that happens.
            balance: Balance::After(Calm {
                time: Duration::from_millis(100),
                steps: 1,
            }),
            task: StateHash::new([0; 32]),
            build: StateHash::new([0; 32]),
            saves: None,
        };
        let spec = JobSpec {
            name: "cluster".to_owned(),
            seed,
            shards,
            steps: Step::new(steps),
            samples: 100,
            batch: 10,
            order: Order::Exact,
        };
        let mut world = Self {
            law: Law::new(seed, shards, steps),
            dice: Dice::new(seed),
            now: Duration::ZERO,
            spec,
            min,
            config,
            incarnation: Incarnation::new(1),
            coordinator: Membership::new(config, Incarnation::new(1), Duration::ZERO),
            record: None,
            memory: Memory::Fresh,
            processes: BTreeMap::new(),
            sums: Sums::default(),
            mail: Vec::new(),
            next_worker: 1,
            losses: 0,
            count: Count::Exact,
            operator: Operator::Watches,
            story,
            members: Vec::new(),
            moved: 0,
            summary: None,
            reached: Step::ZERO,
            stopped_in_vain: false,
            stores: Stores::default(),
            liars: None,
            largest: 0,
        };
        for _ in 0..workers {
            world.start();
        }
        world
    }

    /// With checkpoints, and with workers among the first that lie, one in `rarity` times.
    pub(crate) fn besieged(seed: u64, workers: u32, liars: u64, rarity: u64, steps: u64, story: Story) -> Self {
        let mut world = Self::new(seed, workers, 8, steps, story);
        world.config.saves = Some(saves());
        world.coordinator = Membership::new(world.config, world.incarnation, Duration::ZERO);
        // What they say of what they have computed is all that is known of it.
        world.count = Count::Unknown;
        world.open_depots(2);
        let first = world.dice.below(u64::from(workers));
        let which = (0..liars).map(|number| 1 + (first + number) % u64::from(workers));
        world.liars = Some(Liars::new(which.map(WorkerId::new), rarity));
        world
    }

    fn start(&mut self) {
        let worker = WorkerId::new(self.next_worker);
        self.next_worker += 1;
        let pace = self.any_pace();
        let mut process = Process::new(&self.spec, pace);
        process.member.hold_at_most(self.law.memory.pieces());
        self.processes.insert(worker, process);
        self.mail.push(Mail::Hello(worker));
    }

    /// Machines are of unequal speed.
    fn any_pace(&mut self) -> Pace {
        Pace::new(Duration::from_millis(10 * (1 + self.dice.below(5))))
    }

    /// An operator wants the job to end at the next boundary, or where it stands if it waits for workers.
    pub(crate) fn stop(&mut self) {
        self.operator = Operator::WantsToStop;
    }

    /// Ends all faults; the job must then end, within a bound. None if it was stopped where there was nothing to keep.
    pub(crate) fn heal(&mut self) -> Option<Summary> {
        let end = self.end_of_it();
        if self.stopped_in_vain {
            return None;
        }
        let Some(summary) = end else {
            panic!("LIVE-1: seed {} makes no progress: {:#?}", self.law.seed, self.coordinator);
        };
        let end = match self.operator {
            Operator::Watches | Operator::WantsToStop => End::Last,
            Operator::HasAsked => End::AnyBoundary,
        };
        self.law.ended_well(&summary, end, self.count);
        Some(summary)
    }

    /// How the job ends, if it does so within a bound.
    fn end_of_it(&mut self) -> Option<Summary> {
        for _ in 0..PATIENCE {
            // Those that were asked to leave still do.
            while self.processes.len() < (self.min as usize).max(2) {
                self.start();
            }
            if self.summary.is_some() {
                return self.summary.clone();
            }
            if self.stopped_in_vain || self.liars.as_ref().is_some_and(|liars| liars.failed.is_some()) {
                return None;
            }
            self.event();
        }
        None
    }

    /// Those who lie go on with it, and the job ends all the same: well, or with a word of theirs that says why.
    pub(crate) fn outlive_the_liars(&mut self) -> Result<Summary, String> {
        let end = self.end_of_it();
        self.measure();
        let failed = self.liars.as_ref().and_then(|liars| liars.failed.clone());
        match (end, failed.or_else(|| self.never_began())) {
            (Some(summary), _) => {
                self.law.ended_well(&summary, End::Last, Count::Unknown);
                Ok(summary)
            }
            (None, Some(reason)) => Err(reason),
            (None, None) => panic!("LIVE-1: seed {} makes no progress: {:#?}", self.law.seed, self.coordinator),
        }
    }

    /// A depot that lies can keep a job from beginning, by checkpoints that no worker can load: they are tried, or waited for.
    fn never_began(&self) -> Option<String> {
        let depot = self.liars.as_ref()?.depot()?;
        let mut states = self.processes.values().map(|process| process.state);
        states
            .all(|state| state == self.law.state_at(Step::ZERO))
            .then(|| format!("{depot} tells of checkpoints again and again, none of which can be resumed from"))
    }

    /// One thing happens, somewhere.
    pub(crate) fn event(&mut self) {
        self.operate();
        self.lie();
        match self.dice.below(8) {
            0..=2 => self.deliver(),
            3 | 4 => self.train(),
            5 => self.pass_sums(),
            6 => self.link_and_fetch(),
            _ => self.pass_time(),
        }
    }

    fn operate(&mut self) {
        if self.operator == Operator::WantsToStop {
            self.operator = Operator::HasAsked;
            self.coordinate(Event::StopRequested);
        }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis(self.dice.below(40));
        let due = self.dice.once_in(4);
        let paces = self.processes.iter().map(|(&worker, process)| (worker, process.pace()));
        for (worker, pace) in paces.collect::<Vec<_>>() {
            let heartbeat = if due { Heartbeat::Due(pace) } else { Heartbeat::NotDue };
            self.member(worker, member::Event::Beat { heartbeat }, None);
        }
        // A machine is slowed down by its neighbours, or left alone by them.
        if self.dice.once_in(60)
            && let Some(worker) = self.pick()
        {
            let pace = self.any_pace();
            self.processes.get_mut(&worker).expect("it was picked").set_pace(pace);
        }
        self.coordinate(Event::Tick);
        if self.liars.is_some() && self.dice.once_in(50) {
            self.measure();
        }
        if self.dice.once_in(20) {
            self.record = Some(self.coordinator.record());
        }
    }

    fn measure(&mut self) {
        self.largest = self.largest.max(format!("{:?}", self.coordinator).len());
    }

    /// One that lies says something that it was not asked for.
    fn lie(&mut self) {
        let invented = self.liars.as_mut().and_then(|liars| liars.invents(&mut self.dice));
        if let Some((worker, message)) = invented.filter(|(worker, _)| self.processes.contains_key(worker)) {
            self.mail.push(Mail::ToCoordinator(worker, message));
        }
        self.others_invent();
    }

    fn pick(&mut self) -> Option<WorkerId> {
        let index = self.dice.index(self.processes.len());
        self.processes.keys().nth(index).copied()
    }

    /// A trainer does its next piece of work.
    fn train(&mut self) {
        let Some(worker) = self.pick() else { return };
        let process = self.processes.get_mut(&worker);
        if let Some(event) = process.and_then(|process| process.work(&self.law)) {
            self.member(worker, event, None);
        }
    }

    /// Gives a worker's machine an event, and does what it commands.
    fn member(&mut self, worker: WorkerId, event: member::Event, data: Option<process::Data>) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let before = process.member.step();
        if self.story == Story::Told && !matches!(event, member::Event::Beat { .. }) {
            println!("  {worker} at {before}: {event:?}");
        }
        let commands = process.member.handle(event);
        let after = process.member.step();
        assert!(after >= before, "STEP-1: {worker} went back, seed {}", self.law.seed);
        if self.liars.is_none() {
            self.law.holds(worker, &process.member);
        }
        let mut data = data;
        for command in commands {
            if let Some(mut message) = process.obey(command, &mut data) {
                if let Some(liars) = &mut self.liars {
                    message = liars.says(worker, message, &mut self.dice);
                }
                self.mail.push(Mail::ToCoordinator(worker, message));
            }
        }
    }
}
