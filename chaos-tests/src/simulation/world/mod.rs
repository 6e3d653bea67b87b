//! A simulated cluster: a coordinator, its workers and what lies between them. All decisions are those of the machines that ship; what
//! is here stands in for their shells, their hosts and the network.

mod acting;
mod breaks;
mod control;
mod coordinator;
mod depots;
mod direct;
mod disks;
mod hanging;
mod joining;
mod keeping;
mod links;
mod moving;
mod process;
mod restoring;
mod ring;
mod round;
mod saving;
mod stores;
mod training;
mod witness;
mod working;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::data::{DataFingerprint, DataHash};
use sardana_protocol::job::{Compression, JobSpec, LastBatch, Task};
use sardana_protocol::membership::{Config, Summary};
use sardana_protocol::messages::Tally;
use sardana_protocol::replacing::Replacing;
use sardana_protocol::state::StateHash;
use sardana_protocol::status::Stage;
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::calendar::{Beat, Calendar, Happening};
use super::coverage::Coverage;
use super::hostile::Liars;
use super::invariants::{Held, Law, Second, Violation};
use super::network::{IDLE, Network, Node, Transport};
use super::story::{Story, Telling};
use super::swarm::Swarm;
use super::tally::Counts;
use crate::dice::{Dice, mix};
pub(crate) use coordinator::Coordinator;
pub(crate) use depots::AtDepot;
pub(crate) use direct::Finished;
pub(crate) use process::{Data, Process};
pub(crate) use saving::OfCheckpoint;
pub(crate) use stores::Depot;

/// More processes than this are not started, whatever happens.
pub(crate) const CROWD: usize = 40;

/// What the job computes, and what computes it.
pub(crate) const TASK: Task = Task {
    settings: StateHash::new([1; 32]),
    data: DataHash::new([3; 32]),
};
pub(crate) const BUILD: StateHash = StateHash::new([2; 32]);

/// One job on one cluster. One type, as long as it is: a fault may reach any of it.
pub(crate) struct World {
    pub(crate) swarm: Swarm,
    pub(crate) dice: Dice,
    pub(crate) calendar: Calendar,
    pub(crate) network: Network,
    pub(crate) law: Law,
    pub(crate) coverage: Coverage,
    pub(crate) counts: Counts,
    pub(crate) story: Story,
    pub(crate) coordinator: Coordinator,
    pub(crate) processes: BTreeMap<WorkerId, Process>,
    pub(crate) depots: Vec<Depot>,
    /// What a piece has in it: the state and the number.
    vault: BTreeMap<PieceHash, (u64, u64)>,
    pub(crate) spec: JobSpec,
    serial: u64,
    /// Successors that are on their way.
    pub(crate) coming: usize,
    /// When successors are started, where one agent decides it. Else chance decides.
    pub(crate) replacing: Option<Replacing>,
    /// Whether the first member that has a sum is to be lost with it.
    pub(crate) loses_sum: bool,
    /// Whether faults have ended.
    pub(crate) healed: bool,
    /// Why the run is over before its time, if it is.
    pub(crate) broken: Option<Violation>,
    pub(crate) done: Option<Summary>,
    /// The job cannot go on, and that is no violation: all its checkpoints are gone.
    pub(crate) given_up: bool,
    /// The workers that the coordinator has dismissed.
    pub(crate) dismissed: Vec<WorkerId>,
    /// The peers that lie, in some runs.
    pub(crate) liars: Option<Liars>,
    /// Since when training waits for a checkpoint.
    in_want: Option<Duration>,
    counted_to: Duration,
    second: Second,
    /// The newest step of any worker, and how often it grew.
    pub(crate) high: Step,
    pub(crate) advances: u64,
}

impl World {
    pub(crate) fn new(seed: u64, minutes: u64, story: Story) -> Self {
        let mut dice = Dice::new(mix(seed));
        let swarm = Swarm::draw(&mut dice, seed, minutes);
        Self::of(swarm, dice, seed, story)
    }

    /// A cluster as `draw` says, of which nothing is told.
    pub(crate) fn drawn(seed: u64, draw: impl FnOnce(&mut Dice) -> Swarm) -> Self {
        let mut dice = Dice::new(mix(seed));
        let swarm = draw(&mut dice);
        Self::of(swarm, dice, seed, Story::new(Telling::No))
    }

    /// A cluster like that.
    pub(crate) fn of(swarm: Swarm, dice: Dice, seed: u64, story: Story) -> Self {
        let steps = Step::new(swarm.steps);
        let config = Config {
            min: swarm.min,
            expected: swarm.workers,
            max: swarm.max,
            shards: swarm.shards,
            steps,
            order: swarm.order,
            compression: Compression::None,
            balance: swarm.balance,
            task: TASK,
            build: BUILD,
            saves: swarm.saves,
        };
        let spec = JobSpec {
            name: "simulated".to_owned(),
            seed,
            shards: swarm.shards,
            steps,
            samples: 100,
            batch: 10,
            last_batch: LastBatch::Short,
            order: swarm.order,
            compression: Compression::None,
            data: DataFingerprint::default(),
        };
        let mut world = Self {
            network: swarm.network.clone(),
            law: Law::new(swarm.shards, steps, swarm.order),
            coverage: Coverage::default(),
            counts: Counts::default(),
            story,
            coordinator: Coordinator::new(config),
            processes: BTreeMap::new(),
            depots: Vec::new(),
            vault: BTreeMap::new(),
            calendar: Calendar::default(),
            spec,
            serial: 0,
            coming: 0,
            replacing: None,
            loses_sum: false,
            healed: false,
            broken: None,
            done: None,
            given_up: false,
            dismissed: Vec::new(),
            liars: None,
            in_want: None,
            counted_to: Duration::ZERO,
            second: Second::default(),
            high: Step::ZERO,
            advances: 0,
            swarm,
            dice,
        };
        world.law.doubts.scarce = world.swarm.memory.is_known() || world.swarm.capacity < world.swarm.shards;
        world.law.doubts.uncountable = world.network.transport == Transport::Datagrams;
        world.story.tell(Duration::ZERO, || format!("{:?}", world.swarm));
        world.begin_life();
        world.law.is_saved(world.swarm.saves);
        world.set_up_depots();
        for _ in 0..world.swarm.workers {
            world.start_after(Duration::from_secs(1));
        }
        for index in 0..world.swarm.faults.len() {
            let (fault, _) = world.swarm.faults[index];
            world.strike_again(fault);
        }
        world
    }

    /// Some time up to this.
    pub(crate) fn within(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.dice.below(most.max(1)))
    }

    pub(crate) fn now(&self) -> Duration {
        self.calendar.now()
    }

    pub(crate) fn pick(&mut self) -> Option<WorkerId> {
        let index = usize::try_from(self.dice.below(self.processes.len() as u64)).ok()?;
        self.processes.keys().nth(index).copied()
    }

    /// What must hold does, or the run is over.
    pub(crate) fn require(&mut self, held: Held) {
        if let (Err(violation), None) = (held, &self.broken)
            && !self.is_by_a_lie(&violation)
        {
            self.story.tell(self.calendar.now(), || format!("VIOLATION {violation}"));
            self.broken = Some(violation);
        }
    }

    pub(crate) fn start_after(&mut self, most: Duration) {
        let delay = self.within(most);
        self.coming += 1;
        self.calendar.after(delay, Happening::Start);
    }

    fn start(&mut self) {
        self.coming = self.coming.saturating_sub(1);
        if self.processes.len() >= CROWD || self.done.is_some() {
            return;
        }
        let worker = WorkerId::new(self.dice.bits());
        let rate = 990 + self.dice.below(21);
        let mut process = Process::new(&self.spec, self.swarm.keeps, rate, self.now());
        process.member.hold_at_most(self.swarm.memory.pieces());
        if let Some(liars) = &mut self.liars {
            liars.comes(worker, |other| self.processes.contains_key(other));
        }
        self.processes.insert(worker, process);
        self.calendar.after(Duration::ZERO, Happening::Dial { worker });
        let heartbeat = Beat::Heart;
        self.calendar
            .after(Duration::from_millis(1), Happening::Beat { worker, heartbeat });
    }

    /// A process ends, whether or not its end is told.
    pub(crate) fn end(&mut self, worker: WorkerId) -> Option<Tally> {
        let process = self.processes.remove(&worker)?;
        let (lived, tally) = (self.now().saturating_sub(process.started), process.member.tally());
        // The fleet is kept at its size.
        if self.processes.len() + self.coming < self.swarm.workers as usize {
            self.replace(lived, tally);
        }
        self.story.tell(self.calendar.now(), || format!("{worker} ends"));
        Some(tally)
    }

    /// A process is killed: it says nothing more, and its agent sees it.
    pub(crate) fn killed(&mut self, worker: WorkerId) {
        let ring = self.end_seen(worker, "signal 9");
        self.links_go_idle(worker, ring);
    }

    /// A process ends by itself: it closes its connections, and its agent sees it.
    pub(super) fn exits(&mut self, worker: WorkerId, how: &'static str) {
        if !self.processes.contains_key(&worker) {
            return;
        }
        let session = self.coordinator.session_of(worker);
        let ring = self.end_seen(worker, how);
        self.reset_links(worker, ring);
        if let Some(session) = session {
            let delay = self.network.delay(&mut self.dice);
            self.calendar.after(delay, Happening::SessionLost { worker, session });
        }
    }

    /// Returns with which others it had links.
    fn end_seen(&mut self, worker: WorkerId, how: &'static str) -> Option<(Generation, Vec<WorkerId>)> {
        let ring = self.processes.get(&worker).and_then(Process::ring_members);
        let tally = self.end(worker)?;
        let seen = self.within(self.swarm.seen);
        self.calendar.after(seen, Happening::Exited { worker, how, tally });
        ring
    }

    /// Ends all faults: from now on everything works (LIVE-1).
    pub(crate) fn heal(&mut self) {
        let now = self.now();
        self.healed = true;
        self.story.tell(now, || "HEALED: from now on everything works".to_owned());
        self.calendar
            .forget(|what| matches!(what, Happening::Strike(_) | Happening::Later(_)));
        self.network.cuts.clear();
        self.network.loss = 0;
        self.network.replay = 0;
        self.heal_depots();
        // A worker that stands still wakes by itself.
        self.coordinator.skew(now, 1_000);
        for process in self.processes.values_mut() {
            process.slow = 1;
        }
        self.fill_up();
    }

    /// As many workers as the job needs. Workers that were asked to leave still do.
    pub(crate) fn fill_up(&mut self) {
        let wanted = (self.swarm.min.max(2)) as usize;
        while self.processes.len() + self.coming < wanted {
            self.start_after(Duration::from_secs(1));
        }
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        self.coordinator
            .machine
            .as_ref()
            .map(sardana_protocol::membership::Membership::stage)
    }

    /// Whether something passes between two nodes now, there and back.
    pub(crate) fn reaches(&self, one: Node, other: Node) -> bool {
        self.network.reaches(self.now(), one, other)
    }

    /// Until when nothing passes, if so.
    fn cut_until(&self, from: Node, to: Node) -> Option<Duration> {
        self.network.cut_until(self.now(), from, to)
    }

    /// How long the other end of a connection takes to notice that `from` has closed it. If nothing passes, it only hears nothing any more.
    fn is_noticed_after(&mut self, from: Node, to: Node) -> Duration {
        match self.cut_until(from, to) {
            Some(_) => IDLE,
            None => self.network.delay(&mut self.dice),
        }
    }

    /// All that can be cut off.
    pub(crate) fn nodes(&self) -> BTreeSet<Node> {
        let workers = self.processes.keys().copied().map(Node::Worker);
        let depots = (0..self.depots.len()).map(Node::Depot);
        workers.chain(depots).chain([Node::Coordinator]).collect()
    }
}
