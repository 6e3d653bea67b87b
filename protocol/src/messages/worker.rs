//! What workers say to the coordinator, and where they stand.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::LinkReport;
use crate::checkpoint::{DepotId, PieceHash};
use crate::lineage::Lineage;
use crate::memory::DeviceMemory;
use crate::snapshot::SnapshotId;
use crate::state::{StateHash, StateSize};
use crate::words::{Generation, Pace, ShardRange, Step, WorkerId};

/// What a worker has when nothing moves: told in a hello and after a halt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Updates applied.
    pub step: Step,
    /// Which generations' sums have led to that state.
    pub lineage: Lineage,
    /// Shards of that step whose gradients it holds or goes on computing.
    pub kept: Vec<ShardRange>,
    /// The step whose sum it still holds: `step - 1`, unless its state came from another worker.
    pub sum: Option<Step>,
    /// The step that a trailer has told it to stop at.
    pub stop_at: Option<Step>,
    /// Gradients it computed.
    pub tally: Tally,
}

/// How many shard gradients one worker has computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// In its whole life.
    pub total: u64,
    /// The step under way.
    pub step: Step,
    /// Of the step under way.
    pub this_step: u32,
    /// Of the step before.
    pub previous_step: u32,
}

impl Tally {
    /// How many of `step`, if it is the step under way or the one before; no others are counted one by one.
    #[must_use]
    pub fn computed_in(&self, step: Step) -> u32 {
        if self.step == step {
            self.this_step
        } else if self.step.previous() == Some(step) {
            self.previous_step
        } else {
            0
        }
    }
}

/// From worker to coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
pub enum WorkerMessage {
    /// Answer to `Halt`: a promise that nothing of an older generation is accepted from now on.
    Halted {
        /// The generation of the `Halt`.
        generation: Generation,
        /// What the worker has.
        standing: Standing,
    },
    /// Answer to `Form`: all links of the generation that end here are made.
    Ready {
        /// The generation of the `Form`.
        generation: Generation,
    },
    /// Heartbeat, and the reports of steps. Nothing comes back.
    Progress {
        /// The generation under way.
        generation: Generation,
        /// Updates applied.
        step: Step,
        /// Gradients computed.
        tally: Tally,
        /// Bytes of states and sums that it has fetched, loaded or hashed in its whole life.
        moved: u64,
        /// How fast it is, as last measured: with a heartbeat only, and none before it has computed some shards.
        pace: Option<Pace>,
        /// Reports of the last steps, by rank 0 only.
        reports: Vec<StepReport>,
    },
    /// The job's last update is applied. `Complete` comes back once all members have said so.
    Finished {
        /// The generation under way.
        generation: Generation,
        /// Updates applied.
        step: Step,
        /// Hash of the final state.
        hash: StateHash,
        /// What the model's evaluation found.
        results: Vec<(String, f64)>,
        /// Gradients computed.
        tally: Tally,
    },
    /// A link to `peer` broke or could not be made.
    LinkBroken {
        /// The generation of the link.
        generation: Generation,
        /// The worker that it led to.
        peer: WorkerId,
    },
    /// The generation `generation`, whose order came as `Prepare`, has begun: a trailer switched to it.
    Switched {
        /// The generation that begins.
        generation: Generation,
        /// The step it begins with.
        step: Step,
    },
    /// Answer to a `Serve` that tells of a snapshot to come: there is memory for this member's shares of it.
    RoomMade {
        /// The generation under way.
        generation: Generation,
    },
    /// A trailer asked for a snapshot, and this member's shares of it are copied.
    Snapshotted {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The index of each share that this member holds, and its hash.
        shares: Vec<(u32, StateHash)>,
    },
    /// From a holder of a snapshot: keeping it would take more memory than its bound, so it was dropped.
    Dropped {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Answer to `Save`: all pieces of this share are durable where they should be. Said in parts, if there are many.
    Saved {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The order's.
        attempt: u32,
        /// The share.
        share: u32,
        /// Bytes of the share.
        bytes: u64,
        /// The pieces that describe the state's tensors. With each part.
        description: Vec<PieceHash>,
        /// How much the whole state is. With each part: the coordinator recounts the shares.
        state: StateSize,
        /// Pieces of the share that were told before this part.
        start: u64,
        /// Its pieces from there, in order.
        pieces: Vec<PieceHash>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// To `Save`, now and then before the answer: some more is written.
    Saving {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The order's.
        attempt: u32,
    },
    /// The other answer: not all pieces of a share could be written.
    NotSaved {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The order's.
        attempt: u32,
        /// The depot that could not be written to; none if the share is not there any more.
        depot: Option<DepotId>,
        /// What was wrong.
        reason: String,
    },
    /// The checkpoint that a generation was to start from could not be loaded.
    NotRestored {
        /// The generation.
        generation: Generation,
        /// What was wrong.
        reason: String,
    },
    /// From a joiner: its state follows the ring's without a lag.
    CaughtUp {
        /// The snapshot it started from.
        snapshot: SnapshotId,
        /// Updates applied.
        step: Step,
    },
    /// From a joiner: no holder gave what it needs.
    CopyFailed {
        /// The snapshot it was told to copy.
        snapshot: SnapshotId,
        /// Which holders it asked, and what went wrong.
        reason: String,
    },
    /// The worker was asked to leave, by a signal on its host. It trains on until a trailer leaves it out.
    Leave {
        /// Why, for people.
        reason: String,
    },
    /// The worker's certificate runs out: here is a signing request for the next. `Renewed` comes back.
    Renew {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// The model or its data failed; the worker ends.
    Failed {
        /// What it said.
        reason: String,
    },
    /// It still hashes what it has copied of a snapshot, and has come further since it last said so. `Snapshotted` comes later.
    Hashing {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Answer to `Copy`: the order has come. `CaughtUp` or `CopyFailed` follows when the joiner is as far.
    Copying {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// What has passed the worker's links, and what they are made of: before `Ready`, and with heartbeats. It is for operators; but a worker that has said
    /// that it shares memory is believed no more where this shows that it does not.
    Links(LinkReport),
    /// From a member of a group: an operation of its program has failed there, or its program wants the next generation. The links to others
    /// are given up; whose fault it is this does not say. `Halt` comes back.
    GivenUp {
        /// The generation that it has given up.
        generation: Generation,
    },
    /// What the worker has of its GPU's memory, with a heartbeat after that has changed. Nothing comes back, and nothing follows from it: it is for
    /// operators.
    DeviceMemory(DeviceMemory),
}

/// The auxiliary sums of one step over all its shards. Keyed by step: a step told twice counts once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step that these sums belong to: the update from `step` to `step + 1`.
    pub step: Step,
    /// Samples in its global batch.
    pub samples: u64,
    /// The model's auxiliary sums, in the model's order.
    pub sums: Vec<f64>,
}
