//! What people are told about a job.

use std::time::Duration;

use strum::{IntoStaticStr, VariantNames};

use super::event::Loss;
use crate::checkpoint_manager::{CheckpointEvent, SaveCounts};
use crate::job::{Compression, Order};
use crate::messages::StepReport;
use crate::state::StateHash;
use crate::status::Stage;
use crate::words::{Generation, Incarnation, Rank, ShardRange, Step, WorkerId};

/// What people are told about a job. Prints as a sentence without an end.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum JobEvent {
    /// To one worker.
    Worker(WorkerEvent),
    /// To all members together.
    Generation(GenerationEvent),
    /// To checkpoints, and to the checkpoint actors.
    Checkpoint(CheckpointEvent),
    /// Steps were applied; told once per step, in step order.
    Steps(Vec<StepReport>),
    /// A snapshot is there for joiners.
    Snapshot {
        /// Updates that its state has had.
        step: Step,
        /// How many members hold it.
        holders: u32,
    },
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
    /// A worker knows of a later coordinator: this one has no say any more, and ends. The job goes on with the other.
    Fenced {
        /// This one.
        own: Incarnation,
        /// The other.
        by: Incarnation,
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
    /// All members reported the last step and the same hash.
    Done(Summary),
    /// The job cannot be finished.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

impl JobEvent {
    /// What such an event is called: `Lost`, `Saved`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if let Self::Worker(event) = self {
            return event.into();
        }
        if let Self::Generation(event) = self {
            return event.into();
        }
        if let Self::Checkpoint(event) = self {
            return event.into();
        }
        self.into()
    }
}

impl From<WorkerEvent> for JobEvent {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

impl From<GenerationEvent> for JobEvent {
    fn from(event: GenerationEvent) -> Self {
        Self::Generation(event)
    }
}

impl From<CheckpointEvent> for JobEvent {
    fn from(event: CheckpointEvent) -> Self {
        Self::Checkpoint(event)
    }
}

/// What happened to one worker.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum WorkerEvent {
    /// A worker was admitted.
    Joined {
        /// The worker.
        worker: WorkerId,
        /// Updates its state has had.
        step: Step,
    },
    /// A joiner has the state and follows the ring without a lag.
    CaughtUp {
        /// The worker.
        worker: WorkerId,
        /// Updates its state has had.
        step: Step,
    },
    /// A joiner could not keep up, or its donors are gone: it begins anew.
    JoinsAnew {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: String,
    },
    /// A worker has said that it shares memory with others of its host, and its links to them are QUIC: gradients are added as if it had not said so.
    SharesNoMemory {
        /// The worker.
        worker: WorkerId,
    },
    /// A newcomer is taken in later: members at its address were left out again and again.
    CoolsDown {
        /// The worker.
        worker: WorkerId,
        /// How long it waits, unless the others need it before.
        wait: Duration,
    },
    /// A joiner could not keep up time and again, or the others cannot train without it: all wait at a boundary until it has the
    /// state.
    Held {
        /// The joiner.
        worker: WorkerId,
    },
    /// A worker is to leave at the next boundary.
    Leaving {
        /// The worker.
        worker: WorkerId,
        /// What asked for it, and why.
        reason: String,
    },
    /// A worker has left in good order.
    Left {
        /// The worker.
        worker: WorkerId,
        /// Updates its state had had.
        step: Step,
    },
    /// A worker is gone.
    Lost {
        /// The worker.
        worker: WorkerId,
        /// The rank it had.
        rank: Option<Rank>,
        /// How that was noticed.
        cause: Loss,
        /// What was going on.
        stage: Stage,
    },
}

/// What happened to the members together.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum GenerationEvent {
    /// All workers were told to halt.
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
        /// Whether members compute gradients of this step anew that they have, since memory does not hold them beside those that are
        /// missing; or, in fast order, since they are of another state than the others have. They do not tell how many: the job's summary counts this as unknown.
        dropping: bool,
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
    /// The membership, or which member computes which shards, changed at a boundary, as planned: no member waited.
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
    /// A coordinator that was away has found a generation that trains, and leaves it as it is.
    Adopted {
        /// Its number, of an earlier incarnation.
        generation: Generation,
        /// Its members in rank order.
        members: Vec<WorkerId>,
        /// The newest step that any of them has reached.
        step: Step,
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
    /// A checkpoint actor that has told what it keeps: it is not known yet from where to resume.
    Depots,
}

/// A finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// In which order gradients were added: only `exact` promises the same hash for every membership.
    pub order: Order,
    /// As what their f32 travelled between workers.
    pub compression: Compression,
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

impl Summary {
    /// Whether the job was a group's, of whose work the coordinator knows nothing. A job that trains ends after a step at least.
    #[must_use]
    pub fn is_of_a_group(&self) -> bool {
        self.step == Step::ZERO
    }
}
