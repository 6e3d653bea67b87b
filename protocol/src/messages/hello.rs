//! What opens a control connection: hellos, and greetings that answer them.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{DepotHello, MembersDigest, Standing};
use crate::job::JobIdentity;
use crate::memory::{DeviceMemory, GradientMemory};
use crate::words::{Generation, Incarnation, JobId, Rank, ShardRange, Step, WorkerId};

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
    /// Its children that run, so that a coordinator that is new, or was away, knows that they are this agent's.
    pub children: Vec<WorkerId>,
}

/// A worker's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerHello {
    /// The job it belongs to.
    pub job: JobId,
    /// Its id; must be the one in its certificate.
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
    /// What it has of a GPU's memory, if it computes on one and knows.
    pub device_memory: Option<DeviceMemory>,
    /// Which workers it can share memory with. None if with none.
    pub host_hash: Option<HostHash>,
}

/// Workers that have the same can share memory, as far as they can tell: they are processes of one user on one host, in the same namespaces. Told to
/// coordinators alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostHash([u8; 16]);

impl HostHash {
    /// The one with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// Tells the connections of one process from each other, and from those of any other process that has its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The process: drawn at random when it starts, and told to its coordinators alone.
    pub process: [u8; 16],
    /// How often it has called before, whether a coordinator answered or not.
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
    /// The members that it has to do with: see [`Form::peers`](super::Form::peers).
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
        /// The coordinator's life that accepts it: nothing of an earlier one counts any more.
        incarnation: Incarnation,
        /// The first step whose report the coordinator lacks.
        report_from: Step,
    },
    /// A coordinator of a higher incarnation leads the job; this one has learned that from the hello, and ends. Look for the other.
    Fenced,
    /// To a coordinator: this one was asked for its number. The one of the two with the lower number is fenced (GEN-1). The connection
    /// ends.
    Leads {
        /// The newest generation that it has announced.
        newest: Generation,
    },
}
