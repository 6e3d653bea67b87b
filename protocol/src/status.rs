//! What an operator asks of the coordinator, and sees.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::checkpoint::DepotId;
use crate::job::JobSpec;
use crate::memory::DeviceMemory;
use crate::messages::{LinkKind, LinkPath, StepReport};
use crate::words::{Generation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

/// From operator to coordinator. [`OperatorAnswer`] comes back for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperatorRequest {
    /// Say how the job stands. Changes nothing.
    Status,
    /// Let a worker, or all workers of a host, leave at the next boundary.
    Drain {
        /// A worker's id, a host's name, or an address.
        whom: String,
    },
    /// Kill a worker at once, as a test.
    Kill {
        /// A worker's id.
        whom: String,
    },
    /// Start or drain workers until there are so many.
    Scale {
        /// How many.
        workers: u32,
    },
    /// End the job at the next boundary.
    Stop,
}

/// From coordinator to operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OperatorAnswer {
    /// Answer to `Status`.
    Status(Box<JobStatus>),
    /// It is being done.
    Done {
        /// What, for people.
        what: String,
    },
    /// It is not done.
    Refused {
        /// Expected, found, and what to do.
        reason: String,
    },
}

/// How a job stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    pub job: JobId,
    /// Its constants; none before its first worker came.
    pub spec: Option<JobSpec>,
    /// Names of the sums in `last`.
    pub auxiliary: Vec<String>,
    /// The workers that take part, and how.
    pub overview: Overview,
    /// The newest step report.
    pub last: Option<StepReport>,
    /// Steps applied per second, over the last seconds; 0 while nothing advances.
    pub steps_per_second: f64,
    /// Since the coordinator started.
    pub age: Duration,
    /// One per host.
    pub agents: Vec<AgentStatus>,
    /// Round trip to each worker's host over its control connection, by worker.
    pub round_trips: Vec<(WorkerId, Duration)>,
    /// What happened last, oldest first: how long ago, and what, for people.
    pub events: Vec<(Duration, String)>,
    /// Whether the coordinator's next life would know of all this.
    pub recording: Recording,
    /// What passes the links between members.
    pub links: LinksView,
    /// What workers compute on, each device with those that do.
    pub devices: Vec<DeviceView>,
    /// What workers have of GPUs' memory, by worker, as far as they have told.
    pub device_memory: Vec<(WorkerId, DeviceMemory)>,
}

/// Some workers' device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// `cpu`, or what it is, in the workers' words.
    pub device: String,
    /// The workers that compute on one of this kind.
    pub workers: Vec<WorkerId>,
}

/// Whether what the coordinator's next life should know is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recording {
    /// There is no next life, as the coordinator has no state directory.
    Off,
    /// It is, or is being.
    On,
    /// It cannot be, and is tried again and again.
    Failing {
        /// For so long.
        since: Duration,
        /// What was wrong the last time, and what to do.
        reason: String,
    },
}

/// An agent as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// What people call its host.
    pub host: String,
    /// Where it dials from.
    pub address: SocketAddr,
    /// Its children that run, with their processes if it has told.
    pub children: Vec<(WorkerId, Option<u32>)>,
}

/// The membership at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// What is going on.
    pub stage: Stage,
    /// The newest generation that was formed.
    pub generation: Generation,
    /// The newest step that any worker has reached.
    pub step: Step,
    /// All workers that are connected: members in rank order, then the others.
    pub workers: Vec<WorkerView>,
    /// What is saved; none where no checkpoints are taken.
    pub checkpoints: Option<CheckpointsView>,
}

/// The job's checkpoints at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointsView {
    /// The newest, if there is one.
    pub newest: Option<SavedView>,
    /// The step of the checkpoint that is being written, and for how long it has been.
    pub writing: Option<(Step, Duration)>,
    /// On how many hosts one should be.
    pub replicas: u32,
    /// Since the coordinator started: committed.
    pub committed: u64,
    /// Begun and given up.
    pub given_up: u64,
    /// Due while another was being written, and so one with the next.
    pub merged: u64,
    /// The most steps that were applied between the step of a checkpoint and its commit.
    pub largest_lag: u64,
    /// The depots that are connected.
    pub depots: Vec<DepotView>,
}

/// A checkpoint from which the job could be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedView {
    /// The step that comes next after it.
    pub step: Step,
    /// Since it was committed, or since the job was resumed from it.
    pub ago: Duration,
    /// On so many hosts it was placed.
    pub placed: u32,
    /// On so many of those, by what their depots say that are connected, nothing of it is missing.
    pub whole: u32,
}

/// A depot as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotView {
    /// The checkpoint actor.
    pub depot: DepotId,
    /// What people call its host.
    pub host: String,
    /// Where it is reached.
    pub address: SocketAddr,
    /// How many checkpoints it says it has.
    pub checkpoints: u32,
}

/// One worker at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// The worker.
    pub worker: WorkerId,
    /// Where others reach it.
    pub address: SocketAddr,
    /// Its rank in the newest generation, if it is a member.
    pub rank: Option<Rank>,
    /// What it computes in every step, if it is a member.
    pub shards: Option<ShardRange>,
    /// How fast it is, once it has computed some shards and told.
    pub pace: Option<Pace>,
    /// What it does.
    pub doing: Doing,
    /// Whether it leaves at the next boundary.
    pub leaving: bool,
    /// Updates that its state has had, as far as it has told.
    pub step: Step,
    /// Gradients that it has computed, as far as it has told.
    pub computed: u64,
    /// Since it last said something.
    pub silent: Duration,
}

/// The links between members at one moment, by what these have told last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinksView {
    /// The sums over all of a kind, for each kind that there is.
    pub kinds: Vec<KindView>,
    /// One for each sender, receiver and kind, the worst first: those that lose most, then the slowest, and those last on which nothing moves.
    pub lines: Vec<LinkView>,
    /// So many lines more there are; `kinds` counts them.
    pub unlisted: u32,
    /// Of so many links their workers have not told, as they have too many. Nothing counts them.
    pub untold: u32,
}

/// All links of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindView {
    /// What they pass through.
    pub kind: LinkKind,
    /// How many.
    pub links: u64,
    /// Bytes that were sent on them, in their generation.
    pub sent: u64,
    /// Bytes a second, where it is known.
    pub rate: f64,
    /// Packets that were sent over the connections under them.
    pub sent_packets: u64,
    /// Those of them that were lost.
    pub lost_packets: u64,
}

/// The links of one kind from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkView {
    /// The worker that sends.
    pub from: WorkerId,
    /// The worker that receives.
    pub to: WorkerId,
    /// What they pass through.
    pub kind: LinkKind,
    /// How many: one for each hop of the generation's plans.
    pub links: u32,
    /// Bytes that were sent, in this generation.
    pub sent: u64,
    /// Bytes that have come, if the receiver has told.
    pub received: Option<u64>,
    /// Bytes sent a second over the last seconds; none before it is known, or once its worker says no more.
    pub rate: Option<f64>,
    /// The sender's end of the connection that they go over, if it is a network. All that the two say to each other shares it.
    pub path: Option<LinkPath>,
}

impl LinkView {
    /// The part of all packets that was lost, from 0 to 1.
    #[must_use]
    pub fn lost(&self) -> f64 {
        let Some(path) = self.path else { return 0.0 };
        #[expect(clippy::cast_precision_loss, reason = "a part for people")]
        let lost = path.lost_packets as f64 / path.sent_packets.max(1) as f64;
        lost.min(1.0)
    }
}

/// What a worker does, as far as the coordinator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    /// It waits for a generation to be formed.
    Waiting,
    /// It was asked something that it has not answered.
    Answering,
    /// It computes shards.
    Training,
    /// It is in the ring and holds the state, and computes nothing.
    Standby,
    /// It waits for a snapshot, or copies one.
    Copying,
    /// It has the state and follows the ring.
    Following,
    /// It has finished the job.
    Finished,
    /// It is in a group, and makes the calls of its program.
    Calling,
}

/// Where the membership was when something happened.
#[derive(Debug, Display, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum Stage {
    /// Waiting for enough workers.
    Gathering,
    /// All workers were asked to halt.
    Halting,
    /// The next generation's ring is being made.
    Forming,
    /// Training.
    Running,
    /// The job is over.
    Done,
}
