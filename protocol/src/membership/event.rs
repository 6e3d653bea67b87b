//! What the coordinator's machine is told, what it wants done, and what it tells people.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::depots::DepotEvent;
use super::saves::{Contents, SaveCounts};
use crate::checkpoint::{DepotId, ManifestKey};
use crate::job::Order;
use crate::memory::{Bytes, GradientMemory};
use crate::messages::{CoordinatorMessage, DepotOrder, Introduction, Motion, Senseless, StepReport, Tally, WorkerMessage};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Rank, ShardRange, Step, WorkerId, count};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker was admitted.
    Arrived(Box<Arrival>),
    /// A worker said something.
    Said {
        /// Who.
        worker: WorkerId,
        /// What.
        message: WorkerMessage,
    },
    /// A worker is gone.
    Lost {
        /// Who.
        worker: WorkerId,
        /// How it was noticed.
        cause: Loss,
    },
    /// A worker is to leave at the next boundary: an operator, its agent, or a signal wants it.
    LeaveRequested {
        /// Who.
        worker: WorkerId,
        /// Who wants it, and why, for people.
        reason: String,
    },
    /// The agent of a worker sees that its process stands still, or goes on.
    Motion {
        /// Who.
        worker: WorkerId,
        /// What it does.
        motion: Motion,
    },
    /// An operator wants the job to end at the next boundary.
    StopRequested,
    /// A depot came, spoke, or went.
    Depot {
        /// Which.
        depot: DepotId,
        /// What happened to it.
        event: DepotEvent,
    },
    /// Nothing; time has passed.
    Tick,
}

/// An admitted worker, as its hello describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Who.
    pub worker: WorkerId,
    /// Where others reach it.
    pub address: SocketAddr,
    /// How many shards it may be given at most.
    pub capacity: u32,
    /// How much memory it has for gradients.
    pub memory: GradientMemory,
    /// Where it stands, and in which generation.
    pub introduction: Introduction,
}

/// How a loss was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Its agent saw it end: certain, and at once.
    Exited {
        /// `signal 9`, `exit code 1`.
        how: String,
        /// What it had computed, if that is known.
        tally: Option<Tally>,
    },
    /// Its control connection broke. It may live.
    ConnectionLost {
        /// What the transport said.
        why: String,
    },
    /// It said nothing for this long while nothing advanced. It may live.
    Silent {
        /// How long.
        silence: Duration,
    },
    /// Its agent sees that its process stands still, for this long.
    Stopped {
        /// How long.
        stood: Duration,
    },
    /// It lives, and did nothing for this long while the others waited for it: its training thread hangs.
    Stalled {
        /// How long.
        stood: Duration,
    },
    /// Others could not be linked with it, several times in a row.
    Unreachable,
    /// Its model or its data failed, and another one tries.
    Failed {
        /// What it said.
        reason: String,
    },
    /// It has said what cannot be: it is at fault, and nothing that it says is believed any more.
    Senseless(Senseless),
}

impl Loss {
    /// Whether the process has certainly ended.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Exited { .. } => true,
            Self::ConnectionLost { .. }
            | Self::Silent { .. }
            | Self::Stopped { .. }
            | Self::Stalled { .. }
            | Self::Unreachable
            | Self::Failed { .. }
            | Self::Senseless(_) => false,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { how, .. } => write!(f, "its agent saw it end ({how})"),
            Self::ConnectionLost { why } => write!(f, "its connection broke ({why})"),
            Self::Silent { silence } => write!(f, "it was silent for {:.1} s", silence.as_secs_f64()),
            Self::Stopped { stood } => write!(
                f,
                "its agent saw it stand still for {:.1} s, as by SIGSTOP",
                stood.as_secs_f64()
            ),
            Self::Stalled { stood } => write!(
                f,
                "it did nothing for {:.1} s while the others waited for it",
                stood.as_secs_f64()
            ),
            Self::Unreachable => f.write_str("others could not link with it"),
            Self::Failed { reason } => write!(f, "its model or its data failed ({reason})"),
            Self::Senseless(what) => write!(f, "{what}"),
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Tell a worker.
    Send {
        /// Whom.
        worker: WorkerId,
        /// What.
        message: CoordinatorMessage,
    },
    /// End a worker's process, if it runs under an agent: it hangs or stands still, and would end by itself never.
    Kill {
        /// Whose.
        worker: WorkerId,
    },
    /// Tell a depot.
    Order {
        /// Which.
        depot: DepotId,
        /// What.
        order: Box<DepotOrder>,
    },
    /// Make a manifest of these contents and of the job, and give it to these depots by [`DepotOrder::Commit`].
    Commit {
        /// Whom.
        to: Vec<DepotId>,
        /// What.
        contents: Box<Contents>,
    },
    /// Tell people.
    Tell(JobEvent),
}

/// Where the membership was when something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Waiting for enough workers.
    Gathering,
    /// Everybody was asked to halt.
    Halting,
    /// The next generation's ring is being made.
    Forming,
    /// Training.
    Running,
    /// The job is over.
    Done,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gathering => "gathering",
            Self::Halting => "halting",
            Self::Forming => "forming",
            Self::Running => "running",
            Self::Done => "done",
        })
    }
}

/// What people are told about a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobEvent {
    /// A worker was admitted.
    Joined {
        /// Who.
        worker: WorkerId,
        /// Updates its state has had.
        step: Step,
    },
    /// A coordinator that was away has found a generation that trains, and leaves it as it is.
    Adopted {
        /// Its number, of an earlier incarnation.
        generation: Generation,
        /// Its members in rank order.
        members: Vec<WorkerId>,
        /// The newest step that any of them has reached.
        step: Step,
    },
    /// A worker knows of a later coordinator: this one has no say any more, and ends. The job goes on with the other.
    Fenced {
        /// This one.
        own: Incarnation,
        /// The other.
        by: Incarnation,
    },
    /// A worker is gone.
    Lost {
        /// Who.
        worker: WorkerId,
        /// The rank it had.
        rank: Option<Rank>,
        /// How that was noticed.
        cause: Loss,
        /// What was going on.
        stage: Stage,
    },
    /// A worker is to leave at the next boundary.
    Leaving {
        /// Who.
        worker: WorkerId,
        /// Who wants it, and why.
        reason: String,
    },
    /// A worker has left in good order.
    Left {
        /// Who.
        worker: WorkerId,
        /// Updates its state had had.
        step: Step,
    },
    /// A snapshot is there for those who join.
    Snapshot {
        /// Updates that its state has had.
        step: Step,
        /// How many members hold it.
        holders: u32,
    },
    /// A joiner has the state and follows the ring without a lag.
    CaughtUp {
        /// Who.
        worker: WorkerId,
        /// Updates its state has had.
        step: Step,
    },
    /// A joiner could not keep up, or its donors are gone: it begins anew.
    JoinsAnew {
        /// Who.
        worker: WorkerId,
        /// Why.
        reason: String,
    },
    /// A joiner could not keep up time and again, or the others cannot train without it: all wait at a boundary until it has the
    /// state.
    Held {
        /// For whom.
        worker: WorkerId,
    },
    /// The membership, or who computes which shards, changed at a boundary, as planned: nobody waited.
    Switched {
        /// The new generation.
        generation: Generation,
        /// Members in rank order.
        members: Vec<WorkerId>,
        /// What each of them computes in a step.
        shards: Vec<ShardRange>,
        /// The step it begins with.
        step: Step,
    },
    /// Everybody was told to halt.
    Halting {
        /// The generation to come.
        generation: Generation,
    },
    /// A generation's orders have gone out.
    Forming {
        /// Its number.
        generation: Generation,
        /// Members in rank order.
        members: Vec<WorkerId>,
        /// The step it starts from.
        step: Step,
        /// Shard gradients that are computed again because their first computation was lost.
        recomputed: u64,
        /// Members that fetch the state.
        fetching: u32,
    },
    /// A newcomer is taken in later: members at its address were left out again and again.
    CoolsDown {
        /// Who.
        worker: WorkerId,
        /// How long it waits, unless the others need it before.
        wait: Duration,
    },
    /// All links of the generation are made.
    Formed {
        /// Its number.
        generation: Generation,
        /// How many members.
        world_size: u32,
        /// Since its `Halt`, or since the job had enough workers.
        took: Duration,
    },
    /// The first update of a generation is applied.
    Resumed {
        /// Its number.
        generation: Generation,
        /// Updates applied.
        step: Step,
        /// Since the loss, or the arrival, that made it necessary.
        after: Duration,
    },
    /// Steps were applied; told once per step, in step order.
    Steps(Vec<StepReport>),
    /// There are too few workers to train.
    Waiting {
        /// How many there are.
        have: u32,
        /// What is missing.
        need: Need,
    },
    /// Every holder of the state is gone: training starts again from an older step.
    StateLost {
        /// The newest step that was reached.
        reached: Step,
        /// The step it starts from again.
        from: Step,
    },
    /// A checkpoint actor came.
    DepotCame {
        /// Which.
        depot: DepotId,
        /// On which host.
        host: String,
    },
    /// A checkpoint actor is gone.
    DepotLost {
        /// Which.
        depot: DepotId,
        /// How that was noticed.
        why: String,
    },
    /// A checkpoint actor could not keep what it should: another attempt is made.
    DepotRefused {
        /// Which.
        depot: DepotId,
        /// The step of the checkpoint.
        step: Step,
        /// What was wrong, and what to do.
        reason: String,
    },
    /// A checkpoint is committed.
    Saved {
        /// What it is called.
        key: ManifestKey,
        /// On how many hosts each of its pieces is.
        hosts: u32,
        /// On how many they should be. More than `hosts`: it is replicated when more hosts come.
        wanted: u32,
        /// Since its snapshot was whole.
        took: Duration,
    },
    /// A checkpoint was given up. If training goes on, another one is taken soon.
    NotSaved {
        /// Its step.
        step: Step,
        /// Why.
        reason: String,
    },
    /// Training starts from a checkpoint.
    Resumes {
        /// Which.
        key: ManifestKey,
        /// Newer ones that cannot be used, and why.
        passed_over: Vec<(ManifestKey, String)>,
    },
    /// A checkpoint could not be loaded by a worker: an older one, or the same once more, is tried.
    NotRestored {
        /// Which.
        key: ManifestKey,
        /// Who tried.
        worker: WorkerId,
        /// What was wrong.
        reason: String,
    },
    /// What the coordinator's next life should know cannot be written down. It is tried again; training needs none of it.
    NotRecorded {
        /// What was wrong, and what to do.
        reason: String,
    },
    /// It is written down again, whole.
    RecordedAgain {
        /// For how long it was not.
        after: Duration,
    },
    /// Everybody reported the last step and the same hash.
    Done(Summary),
    /// The job cannot be finished.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

/// What a waiting job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// At least this many workers.
    Workers(u32),
    /// Memory for this many shards.
    Room {
        /// How many fit.
        room: u64,
        /// K.
        shards: u32,
        /// Bytes of one gradient.
        gradient: u64,
    },
    /// A holder of the state that may be on its way back.
    State,
    /// A checkpoint actor that has told what it keeps: nobody knows yet from where to resume.
    Depots,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(workers) => write!(f, "at least {}", count(*workers, "worker")),
            Self::Room { room, shards, gradient } => write!(
                f,
                "room for {}, there is room for {room} ({} and {} of gradients)",
                count(*shards, "shard"),
                Bytes(gradient.saturating_mul(u64::from(*shards))),
                Bytes(gradient.saturating_mul(*room))
            ),
            Self::State => f.write_str("a worker that holds the state and may be on its way back"),
            Self::Depots => f.write_str(
                "a checkpoint actor, to know from which checkpoint to resume; start one, or run without checkpoints",
            ),
        }
    }
}

/// A finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// In which order gradients were added: only `exact` promises the same hash for every membership.
    pub order: Order,
    /// Updates applied.
    pub step: Step,
    /// Hash of the final state.
    pub hash: StateHash,
    /// What the model's evaluation found.
    pub results: Vec<(String, f64)>,
    /// Shard gradients computed by all workers there ever were; less than that if `unknown` is not 0.
    pub computed: u64,
    /// Shard gradients computed again because their first computation was lost.
    pub recomputed: u64,
    /// Lost workers whose count is not known, because no agent saw them end, states that only a joiner still had, and steps of which
    /// members computed what they had again, for want of memory.
    pub unknown: u32,
    /// What became of checkpoints, in the coordinator's last life.
    pub saves: SaveCounts,
}
