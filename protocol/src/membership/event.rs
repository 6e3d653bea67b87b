//! What the coordinator's machine is told, and what it wants done.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::job_event::JobEvent;
use crate::checkpoint::DepotId;
use crate::checkpoint_manager::{Contents, DepotEvent};
use crate::memory::GradientMemory;
use crate::messages::{CoordinatorMessage, DepotOrder, HostHash, Introduction, Motion, Senseless, Tally, WorkerMessage};
use crate::words::WorkerId;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker was admitted.
    Arrived(Box<Arrival>),
    /// A worker said something.
    Said {
        /// The worker.
        worker: WorkerId,
        /// The message.
        message: WorkerMessage,
    },
    /// A worker is gone.
    Lost {
        /// The worker.
        worker: WorkerId,
        /// How it was noticed.
        cause: Loss,
    },
    /// A worker is to leave at the next boundary: an operator, its agent, or a signal wants it.
    LeaveRequested {
        /// The worker.
        worker: WorkerId,
        /// What asked for it, and why, for people.
        reason: String,
    },
    /// The agent of a worker sees that its process stands still, or goes on.
    Motion {
        /// The worker.
        worker: WorkerId,
        /// What it does.
        motion: Motion,
    },
    /// An operator wants the job to end at the next boundary.
    StopRequested,
    /// A depot came, spoke, or went.
    Depot {
        /// The checkpoint actor.
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
    /// The worker.
    pub worker: WorkerId,
    /// Where others reach it.
    pub address: SocketAddr,
    /// How many shards it may be given at most.
    pub capacity: u32,
    /// How much memory it has for gradients.
    pub memory: GradientMemory,
    /// Which workers it can share memory with.
    pub host_hash: Option<HostHash>,
    /// Whether its gradients lie on a device, where a running sum is added to them.
    pub on_device: bool,
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
        matches!(self, Self::Exited { .. })
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
        /// The worker.
        worker: WorkerId,
        /// The message.
        message: CoordinatorMessage,
    },
    /// End a worker's process, if it runs under an agent: it hangs or stands still, and would end by itself never.
    Kill {
        /// The worker.
        worker: WorkerId,
    },
    /// Tell a depot.
    Order {
        /// The checkpoint actor.
        depot: DepotId,
        /// The order.
        order: Box<DepotOrder>,
    },
    /// Make a manifest of these contents and of the job, and give it to these depots by [`DepotOrder::Commit`].
    Commit {
        /// The checkpoint actors.
        to: Vec<DepotId>,
        /// What the checkpoint consists of.
        contents: Box<Contents>,
    },
    /// Tell people.
    Tell(JobEvent),
}
