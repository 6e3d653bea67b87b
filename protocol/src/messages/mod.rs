//! What is said over control connections. Each type's doc says who sends it and what comes back.
//!
//! These are the wire types of [`crate::limits::WIRE_VERSION`]; their bytes are fixed by golden tests beside the codec.

mod depot;
mod form;
mod sense;

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use depot::{DepotHello, DepotMessage, DepotOrder, Restore, Save, Told};
pub use form::{CatchUp, Form, Last, MemberAddress, MembersDigest, Peer};
pub use sense::{Bounds, Senseless, Sensible};

use crate::checkpoint::{DepotId, PieceHash};
use crate::job::JobIdentity;
use crate::memory::GradientMemory;
use crate::snapshot::SnapshotId;
use crate::state::{StateHash, StateSize};
use crate::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

/// First message on a control connection to a coordinator. [`Greeting`] comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Hello {
    /// A worker that wants to take part.
    Worker(Box<WorkerHello>),
    /// An agent that reports its children.
    Agent(AgentHello),
    /// An operator's command. [`crate::status::OperatorRequest`]s follow.
    Operator {
        /// The job it watches or steers.
        job: JobId,
    },
    /// A checkpoint actor that offers its store.
    Depot(DepotHello),
    /// A coordinator that looks whether another one has taken over at a standby's address. [`Greeting::Leads`] comes back.
    Coordinator {
        /// The job that it leads, as far as it knows.
        job: JobId,
        /// The newest generation that it has announced.
        newest: Generation,
    },
}

/// An agent's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// The job it serves.
    pub job: JobId,
    /// What people call its host.
    pub host: String,
    /// Its children that run, so that a coordinator that is new, or was away, knows whose they are.
    pub children: Vec<WorkerId>,
}

/// A worker's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerHello {
    /// The job it belongs to.
    pub job: JobId,
    /// Who it is; must be the id in its certificate.
    pub worker: WorkerId,
    /// What it would compute; must equal the job's.
    pub identity: JobIdentity,
    /// Where it stands, and in which generation.
    pub introduction: Introduction,
    /// How many shards it may be given at most, as a person has set it; K otherwise.
    pub shard_capacity: u32,
    /// How much memory it has for gradients.
    pub memory: GradientMemory,
    /// Where other workers reach it.
    pub address: SocketAddr,
    /// Names of the model's auxiliary sums, in the model's order; shown to people.
    pub auxiliary: Vec<String>,
    /// By which connection of which process it comes.
    pub call: Call,
}

/// Tells the connections of one process from each other, and from those of any other process that has its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The process: drawn at random when it starts, and told to its coordinators alone.
    pub process: [u8; 16],
    /// How often it has called before, whether anybody answered or not.
    pub count: u64,
}

/// What a worker says of itself to a coordinator that may not know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Introduction {
    /// The newest generation it was a member of or has promised to, [`Generation::NONE`] at first.
    pub generation: Generation,
    /// The highest incarnation of a coordinator that it knows of, which may have formed nothing yet.
    pub incarnation: Incarnation,
    /// Its seat there, if it still takes part: it has not promised anything newer.
    pub seat: Option<Seated>,
    /// Whether it must be halted before it can take part in another generation.
    pub training: bool,
    /// What it has.
    pub standing: Standing,
}

/// A worker's seat in a generation, as it tells it to a coordinator that may be another one than formed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seated {
    /// Its place.
    pub rank: Rank,
    /// How many members there are.
    pub world_size: u32,
    /// Of the members.
    pub digest: MembersDigest,
    /// Those whom it has to do with: see [`Form::peers`].
    pub peers: Vec<(Rank, WorkerId)>,
    /// What it computes in every step but the first.
    pub shards: ShardRange,
    /// Whether its links are there.
    pub ring: Ring,
}

/// Whether a member's part of the ring works, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ring {
    /// Its links are made, and none has broken.
    Whole,
    /// Some links are not made yet, or have broken, or the member is behind the others.
    Broken,
}

/// The coordinator's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Greeting {
    /// An agent or operator is accepted: an agent reports, an operator asks.
    Welcome,
    /// Not accepted; the connection ends.
    Refused {
        /// Expected, found, and what to do.
        reason: String,
    },
    /// The job is over: there is nothing left to do, and nothing is wrong. The connection ends.
    Over,
    /// A worker is accepted: it waits for its `Form`, or goes on in its generation.
    Joined {
        /// Who accepts it: nothing of a coordinator's life before this one counts any more.
        incarnation: Incarnation,
        /// The first step whose report the coordinator lacks.
        report_from: Step,
    },
    /// A coordinator of a higher incarnation leads the job; this one has learned that from the hello, and ends. Look for the other.
    Fenced,
    /// To a coordinator: this one was asked for its number. The one of the two with the lower number is fenced (GEN-1). The connection ends.
    Leads {
        /// The newest generation that it has announced.
        newest: Generation,
    },
}

/// What a worker has when nothing moves: told in a hello and after a halt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Updates applied.
    pub step: Step,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr)]
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
    /// The job's last update is applied. `Complete` comes back once everybody has said so.
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
        /// Whom it led to.
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
        /// Which snapshot.
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
        /// Which snapshot.
        snapshot: SnapshotId,
        /// The order's.
        attempt: u32,
        /// Which share.
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
        told: Told,
    },
    /// To `Save`, now and then before the answer: some more is written.
    Saving {
        /// Which snapshot.
        snapshot: SnapshotId,
        /// The order's.
        attempt: u32,
    },
    /// The other answer: not all pieces of a share could be written.
    NotSaved {
        /// Which snapshot.
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
        /// Whom it asked, and what went wrong.
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
        /// Which snapshot.
        snapshot: SnapshotId,
    },
    /// Answer to `Copy`: it has come. `CaughtUp` or `CopyFailed` follows when the joiner is as far.
    Copying {
        /// Which snapshot.
        snapshot: SnapshotId,
    },
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

/// From coordinator to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr)]
pub enum CoordinatorMessage {
    /// Accept nothing older than `generation` any more. `Halted` comes back.
    Halt {
        /// The generation that will be formed next.
        generation: Generation,
    },
    /// The next generation. `Ready` comes back.
    Form(Box<Form>),
    /// A generation that a trailer will switch to while the present one trains. Its first and steady plans are the same, and its
    /// `step` is 0: it begins at the boundary of that trailer. `Ready` comes back. Once it has begun, it is said again with the
    /// step that it began with, to members that have not said so: a joiner that stands there already sees no such trailer.
    Prepare(Box<Form>),
    /// To the rank that closes the sums of `generation`: the next sum's trailer.
    CloseWith {
        /// The generation meant.
        generation: Generation,
        /// What its next trailer says, unless it says stop already.
        trailer: Trailer,
    },
    /// To those who hold a snapshot, or are to: whom they serve besides members, and what of it these may still need. `RoomMade` comes back
    /// if the snapshot is yet to be taken. To every member: it is over.
    Serve(Serve),
    /// To a holder of a snapshot: write it down. `Saved` comes back for each share, or `NotSaved`.
    Save(Box<Save>),
    /// To a holder: the checkpoint of this snapshot is committed, or given up. It keeps nothing for its sake any more.
    SaveOver {
        /// Which snapshot.
        snapshot: SnapshotId,
    },
    /// To a joiner: copy this snapshot, then follow. `Copying` comes back. Sent again when a holder is gone.
    Copy(Box<Snapshot>),
    /// The worker has left in good order: its shares are others' now. It ends well.
    Released {
        /// The step at which it left.
        step: Step,
    },
    /// Answer to `Renew`.
    Renewed {
        /// The new certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// The job is done: everybody reported this step and hash. The worker ends.
    Complete {
        /// Updates applied.
        step: Step,
        /// Hash of the final state.
        hash: StateHash,
    },
    /// The worker is no longer part of the job and ends.
    Dismiss {
        /// Why, and what to do.
        reason: String,
    },
}

/// A snapshot as a joiner needs it. Shares are numbered by place: see [`crate::snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The snapshot.
    pub id: SnapshotId,
    /// The members that hold it, by place; none for one that is gone.
    pub holders: Vec<Option<MemberAddress>>,
    /// The hash of each share, by place.
    pub shares: Vec<StateHash>,
}

/// Whom a member serves, and what it keeps for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Joiners that may fetch shares and sums. A worker that is not named is served nothing.
    pub joiners: Joiners,
    /// The snapshot that they copy; older ones are dropped. None if it is yet to be taken.
    pub snapshot: Option<SnapshotId>,
    /// Whether its shares are still needed.
    pub shares: Needed,
    /// Sums of older steps are not needed any more.
    pub sums_from: Step,
}

/// Who may fetch of a snapshot. A list grows with those who join, so that only the first word of a snapshot says all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joiners {
    /// These, and no other worker.
    Only(Vec<WorkerId>),
    /// As before, but for these.
    Changed {
        /// They may from now on.
        came: Vec<WorkerId>,
        /// They may no longer.
        gone: Vec<WorkerId>,
    },
}

impl Joiners {
    /// Whether none may.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Only(joiners) if joiners.is_empty())
    }
}

/// Whether a snapshot's shares are still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Needed {
    /// Somebody may still copy them.
    Yes,
    /// Everybody has.
    No,
}

/// The orders for a boundary, which close every sum, so that all agree on them without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trailer {
    /// Go on with the next step.
    Continue,
    /// The job ends after this update.
    Stop,
    /// Every member copies its shares of the state after this update.
    Snapshot,
    /// This generation ends after this update. Members that were given an order to prepare for this one go on in it; the others are
    /// halted for it.
    Switch(Generation),
}

impl Trailer {
    /// What a closer says next when it was to say this, and is asked to say `asked`: a stop is final, a switch gives way to a stop
    /// or to another switch, and all of them to nothing less.
    #[must_use]
    pub const fn and(self, asked: Self) -> Self {
        match (self, asked) {
            (Self::Stop, _) | (_, Self::Stop) => Self::Stop,
            (Self::Switch(_), Self::Switch(next)) | (Self::Switch(next), _) | (_, Self::Switch(next)) => Self::Switch(next),
            (Self::Snapshot, _) | (_, Self::Snapshot) => Self::Snapshot,
            (Self::Continue, Self::Continue) => Self::Continue,
        }
    }

    /// What is left to be said once it is said: a snapshot is asked for once.
    #[must_use]
    pub const fn after_closing(self) -> Self {
        match self {
            Self::Continue | Self::Snapshot => Self::Continue,
            Self::Stop => Self::Stop,
            Self::Switch(next) => Self::Switch(next),
        }
    }
}

/// From agent to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentMessage {
    /// It wants to start a child: here is the signing request for its certificate. `Certified` comes back.
    Certify {
        /// Who the child will be.
        worker: WorkerId,
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// It keeps checkpoints, too: here is the signing request of its checkpoint actor. `DepotCertified` comes back.
    CertifyDepot {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// A child was started. Nothing comes back.
    ChildStarted {
        /// The worker.
        worker: WorkerId,
        /// Its process on the agent's host.
        pid: u32,
    },
    /// The agent was asked to end, or its machine is to go away: its children are to leave at a boundary. Nothing comes back; they end
    /// one by one.
    Leave {
        /// Why, for people.
        reason: String,
    },
    /// The agent's own certificate runs out: here is a signing request for the next. `Renewed` comes back.
    Renew {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// A child has ended.
    ChildExited {
        /// The worker.
        worker: WorkerId,
        /// How, in words: `signal 9`, `exit code 1`.
        how: String,
        /// What it had computed, read after its end; none if it never said.
        tally: Option<Tally>,
        /// Whether the agent starts a successor.
        restarting: bool,
    },
    /// The agent stays after all: what it had said with `Leave` is off, and it starts workers again. Those that leave already go on
    /// leaving. Nothing comes back.
    Stay {
        /// Why, for people.
        reason: String,
    },
    /// A child stands still, as by SIGSTOP, or goes on. Nothing comes back.
    ChildMotion {
        /// The worker.
        worker: WorkerId,
        /// What its process does now.
        motion: Motion,
    },
}

/// Whether a process runs, as far as its agent sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motion {
    /// It runs.
    Runs,
    /// It stands still until a signal lets it go on.
    Stopped,
}

impl fmt::Display for Motion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runs => "runs",
            Self::Stopped => "stands still",
        })
    }
}

/// From coordinator to agent. Nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentOrder {
    /// The job is over: restart no child, let all of them end.
    JobOver,
    /// Answer to `Certify`.
    Certified {
        /// For which child.
        worker: WorkerId,
        /// Its certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Answer to `CertifyDepot`.
    DepotCertified {
        /// Its certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Answer to `Renew`.
    Renewed {
        /// The new certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Kill this child at once, as an operator wants it. It is replaced like any that died.
    Kill {
        /// The worker.
        worker: WorkerId,
    },
    /// Start so many workers more.
    Start {
        /// How many.
        workers: u32,
    },
}
