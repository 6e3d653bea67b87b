//! A coordinator's machine among workers and checkpoint actors that answer at once, without a network. What is said is counted: how often,
//! and in how many bytes, as the wire encodes it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sardana_net::wire::limits::CONTROL_FRAME_BYTES;
use sardana_protocol::checkpoint::{Condition, DepotId, Manifest};
use sardana_protocol::codec::encode;
use sardana_protocol::job::{Compression, JobSpec, Order};
use sardana_protocol::limits::{MAX_SHARDS, MAX_WORKERS};
use sardana_protocol::membership::{
    Balance, CheckpointEvent, Command, Config, Contents, DepotEvent, Event, GenerationEvent, JobEvent, Loss, Membership,
    Saves,
};
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, DepotOrder, Trailer, WorkerMessage};
use sardana_protocol::words::{Incarnation, Step, WorkerId};
use sardana_storage::manifest::{encode as encode_manifest, head_of, key_of};
use serde::Serialize;

use super::job::{JOB, depot_ids, identity, kept_heads, spec, worker_id};
use super::worker::{Said, Worker};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Between two ticks of the coordinator's clock.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// A phase that takes more rounds than this goes nowhere.
const ROUNDS: u32 = 400;

const LIFE: Incarnation = Incarnation::new(2);

/// What a phase has cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cost {
    /// Messages in both directions, heartbeats not counted.
    pub(crate) messages: u64,
    /// The same by kind.
    pub(crate) kinds: BTreeMap<&'static str, u64>,
    /// Their payloads.
    pub(crate) bytes: u64,
    /// Inside the machine.
    pub(crate) deciding: Duration,
    /// Events that it was told for that, heartbeats and ticks among them.
    pub(crate) events: u64,
    /// The longest of them.
    pub(crate) longest: Duration,
    /// Making bytes of what the coordinator has said, one after the other.
    pub(crate) encoding: Duration,
}

/// What people were told that ends a phase.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Members of the generation that works.
    pub(crate) members: usize,
    pub(crate) saved: u32,
    pub(crate) resumed: u32,
}

pub(crate) struct Crowd {
    machine: Membership,
    now: Duration,
    job: JobSpec,
    workers: BTreeMap<WorkerId, Worker>,
    events: VecDeque<Event>,
    /// How the sum of each step was closed.
    closed: BTreeMap<Step, Trailer>,
    /// How the next sum will be closed.
    closing: Trailer,
    /// Whether what is copied comes at once, or not before this is so.
    pub(crate) copies: bool,
    pub(crate) heard: Heard,
    pub(crate) cost: Cost,
}

/// The bytes of a message's payload.
fn length<T: Serialize>(message: &T) -> Result<u64> {
    Ok(encode(message, CONTROL_FRAME_BYTES)?.len() as u64)
}

impl Crowd {
    /// A job for `members` workers, none of which has come yet.
    pub(crate) fn new(members: u32, saves: Option<Saves>) -> Self {
        let shards = members.clamp(1, MAX_SHARDS);
        let config = Config {
            min: 1,
            expected: members.min(MAX_WORKERS),
            max: members,
            shards,
            steps: spec(shards).steps,
            order: Order::Exact,
            compression: Compression::None,
            balance: Balance::Off,
            task: identity(shards).task(),
            build: identity(shards).build(),
            saves,
        };
        Self {
            machine: Membership::new(config, LIFE, Duration::ZERO),
            now: Duration::ZERO,
            job: spec(shards),
            workers: BTreeMap::new(),
            events: VecDeque::new(),
            closed: BTreeMap::new(),
            closing: Trailer::Continue,
            copies: true,
            heard: Heard::default(),
            cost: Cost::default(),
        }
    }

    /// The checkpoint actors come, and tell that they keep so many checkpoints.
    pub(crate) fn depots_come(&mut self, kept: u32) -> Result<()> {
        for depot in depot_ids() {
            let arrived = DepotEvent::Arrived {
                host: format!("host {depot}"),
                certified: depot.get(),
                address: SocketAddr::from(([10, 0, 1, 1], 40_000)),
            };
            self.events.push_back(Event::Depot { depot, event: arrived });
            let holds = DepotMessage::Holds {
                heads: kept_heads(kept, self.job.shards),
                is_last: true,
                unreadable: vec![],
            };
            self.depot_says(depot, holds)?;
        }
        self.settle()
    }

    /// These workers come, one after the other, before any has answered anything.
    pub(crate) fn come(&mut self, numbers: std::ops::Range<u32>) {
        for worker in numbers.map(worker_id) {
            let mut process = Worker::new(&self.job);
            let arrival = process.arrives(worker, self.job.shards, LIFE);
            self.workers.insert(worker, process);
            self.events.push_back(Event::Arrived(Box::new(arrival)));
        }
    }

    /// These workers are seen to end.
    pub(crate) fn end(&mut self, numbers: impl Iterator<Item = u32>) {
        for worker in numbers.map(worker_id) {
            let tally = self.workers.remove(&worker).map(|process| process.member.tally());
            let how = "signal 9".to_owned();
            let cause = Loss::Exited { how, tally };
            self.events.push_back(Event::Lost { worker, cause });
        }
    }

    /// Goes on, boundary by boundary and tick by tick, until `done`.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Heard) -> bool) -> Result<()> {
        for round in 0..ROUNDS {
            self.settle()?;
            if done(&self.heard) {
                return Ok(());
            }
            self.boundary()?;
            self.settle()?;
            self.passes(round)?;
        }
        let (heard, stage) = (&self.heard, self.machine.stage());
        Err(format!("{what} did not come to its end: {heard:?}, {stage}").into())
    }

    /// A tick, and a heartbeat of each worker now and then, which is not counted as a message.
    pub(crate) fn passes(&mut self, round: u32) -> Result<()> {
        self.now += TICK;
        if round.is_multiple_of(5) {
            for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                let said = self.workers.get_mut(&worker).map(Worker::beats).unwrap_or_default();
                let said = said.messages.into_iter();
                self.events.extend(said.map(|message| Event::Said { worker, message }));
            }
        }
        self.events.push_back(Event::Tick);
        self.settle()
    }

    /// The ring of the newest generation closes the next sum.
    pub(crate) fn boundary(&mut self) -> Result<()> {
        let at = |process: &Worker| {
            let introduction = process.member.introduction();
            let seat = introduction.seat?;
            Some((introduction.generation, seat.world_size, process.member.step()))
        };
        let Some(newest @ (generation, world_size, step)) = self.workers.values().filter_map(at).max() else {
            return Ok(());
        };
        let ring: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, process)| at(process) == Some(newest))
            .map(|(&worker, _)| worker)
            .collect();
        if ring.len() < world_size as usize {
            return Ok(());
        }
        let trailer = std::mem::replace(&mut self.closing, Trailer::Continue);
        self.closed.insert(step, trailer);
        for worker in ring {
            let said = self.workers.get_mut(&worker).map(|one| one.summed(generation, step, trailer));
            self.says(worker, said.unwrap_or_default())?;
        }
        Ok(())
    }

    /// The workers that copy and follow get what is there, until nothing is.
    fn follow(&mut self) -> Result<bool> {
        let mut followed = false;
        if self.copies {
            for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                let said = self.workers.get_mut(&worker).map(Worker::copied).unwrap_or_default();
                followed |= !said.messages.is_empty();
                self.says(worker, said)?;
            }
        }
        let keeper_at = self.closed.keys().next_back().map_or(Step::ZERO, |step| step.next());
        let following = self.workers.iter().filter_map(|(&worker, process)| {
            let step = process.follows?;
            Some((worker, step, *self.closed.get(&step)?))
        });
        for (worker, step, trailer) in following.collect::<Vec<_>>() {
            followed = true;
            let said = self
                .workers
                .get_mut(&worker)
                .map(|one| one.followed(step, trailer, keeper_at));
            self.says(worker, said.unwrap_or_default())?;
        }
        Ok(followed)
    }

    /// Lets all answer until nothing is left to be said.
    pub(crate) fn settle(&mut self) -> Result<()> {
        loop {
            while let Some(event) = self.events.pop_front() {
                let began = Instant::now();
                let commands = self.machine.handle(self.now, event);
                let took = began.elapsed();
                self.cost.deciding += took;
                self.cost.longest = self.cost.longest.max(took);
                self.cost.events += 1;
                commands.into_iter().try_for_each(|command| self.does(command))?;
            }
            if !self.follow()? && self.events.is_empty() {
                return Ok(());
            }
        }
    }

    fn does(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Send { worker, message } => self.tells(worker, message),
            Command::Order { order, .. } => self.count::<DepotOrder>(&order),
            Command::Commit { to, contents } => self.commits(&to, *contents),
            Command::Kill { worker } => Err(format!("{worker} does not hang").into()),
            Command::Tell(event) => self.heard.hears(event),
        }
    }

    fn tells(&mut self, worker: WorkerId, message: CoordinatorMessage) -> Result<()> {
        if let CoordinatorMessage::Dismiss { reason } = &message {
            return Err(format!("{worker} is dismissed: {reason}").into());
        }
        let began = Instant::now();
        self.count(&message)?;
        self.cost.encoding += began.elapsed();
        let said = self.workers.get_mut(&worker).map(|process| process.told(message));
        self.says(worker, said.unwrap_or_default())
    }

    fn says(&mut self, worker: WorkerId, said: Said) -> Result<()> {
        if let Some(trailer) = said.closing {
            self.closing = self.closing.and(trailer);
        }
        for message in said.messages {
            self.count::<WorkerMessage>(&message)?;
            self.events.push_back(Event::Said { worker, message });
        }
        Ok(())
    }

    fn depot_says(&mut self, depot: DepotId, message: DepotMessage) -> Result<()> {
        // What is told at first grows with what is kept, which is not what is looked at here.
        if !matches!(message, DepotMessage::Holds { .. }) {
            self.count(&message)?;
        }
        let event = DepotEvent::Said(Box::new(message));
        self.events.push_back(Event::Depot { depot, event });
        Ok(())
    }

    fn commits(&mut self, to: &[DepotId], contents: Contents) -> Result<()> {
        let snapshot = contents.snapshot;
        let manifest = Manifest {
            run: JOB,
            snapshot,
            identity: identity(self.job.shards),
            description: contents.description,
            pieces: contents.pieces,
            bytes: contents.bytes,
            replicas: contents.replicas,
            depots: contents.depots,
            placing: contents.placing,
        };
        let bytes = encode_manifest(&manifest)?;
        let head = head_of(&manifest, key_of(&manifest, &bytes), Condition::Whole);
        for &depot in to {
            let frames = (bytes.len() as u64).div_ceil(CONTROL_FRAME_BYTES as u64 / 4);
            self.cost.messages += frames;
            *self.cost.kinds.entry("Commit").or_default() += frames;
            self.cost.bytes += bytes.len() as u64;
            let head = head.clone();
            self.depot_says(depot, DepotMessage::Committed { snapshot, head })?;
        }
        Ok(())
    }

    fn count<'a, T: Serialize>(&mut self, message: &'a T) -> Result<()>
    where
        &'static str: From<&'a T>,
    {
        self.cost.messages += 1;
        *self.cost.kinds.entry(message.into()).or_default() += 1;
        self.cost.bytes += length(message)?;
        Ok(())
    }
}

impl Heard {
    /// People are told this.
    pub(crate) fn hears(&mut self, event: JobEvent) -> Result<()> {
        match event {
            JobEvent::Generation(event) => self.hears_of_generation(&event),
            JobEvent::Checkpoint(CheckpointEvent::Saved { .. }) => self.saved += 1,
            JobEvent::Checkpoint(CheckpointEvent::Resumes { .. }) => self.resumed += 1,
            JobEvent::Failed { reason } | JobEvent::Checkpoint(CheckpointEvent::NotSaved { reason, .. }) => {
                return Err(reason.into());
            }
            JobEvent::Worker(_)
            | JobEvent::Checkpoint(_)
            | JobEvent::Steps(_)
            | JobEvent::Snapshot { .. }
            | JobEvent::Waiting { .. }
            | JobEvent::StateLost { .. }
            | JobEvent::Fenced { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. }
            | JobEvent::Done(_) => {}
        }
        Ok(())
    }

    const fn hears_of_generation(&mut self, event: &GenerationEvent) {
        match event {
            GenerationEvent::Formed { world_size, .. } => self.members = *world_size as usize,
            GenerationEvent::Switched { members, .. } => self.members = members.len(),
            GenerationEvent::Halting { .. } => self.members = 0,
            GenerationEvent::Forming { .. } | GenerationEvent::Resumed { .. } | GenerationEvent::Adopted { .. } => {}
        }
    }
}
