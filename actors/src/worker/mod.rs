//! A worker: joins a job, trains in it through its [`StepDriver`], and ends when the job does.
//!
//! The actor takes what the coordinator says to the machine, makes the links and transfers that the machine wants, and speaks for
//! it. Must not know the model: a saved state is bytes to it.

mod actor;
mod control;
mod driver;
mod executing;
mod hashing;
mod keeper;
pub mod limits;
mod renewal;
mod restoring;
mod ring;
mod rings;
mod saving;
mod tally;
mod telling;
#[cfg(test)]
mod tests;
mod transfers;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorRef};
use sardana_collectives::summation::Summation;
use sardana_net::environment::Environment;
use sardana_net::quic::BindError;
use sardana_net::trust::RotatingCredentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_protocol::job::JobIdentity;
use sardana_protocol::memory::{DeviceMemory, GradientMemory, Windows};
use sardana_protocol::state::{StateHash, StatePieces};
use sardana_protocol::words::Step;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

pub use control::JoinError;
pub(crate) use control::{Link, Looking};
pub use driver::{
    ActorCommand, Arrival, Closed, CopyReply, Gradient, HeldShare, KeptSum, Mismatch, Moved, Outbox, SavedState, StepDriver,
    Task,
};
pub use sardana_net::quic::Reach;
pub use tally::TallyFile;

pub use crate::peers::LinkChoice;
use crate::peers::Peers;
use actor::{Arguments, Message, Worker};
pub(crate) use renewal::WorkerRenewal;
pub(crate) use telling::LinkNews;

/// What a worker needs besides its model.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its certificate and key; the worker's id is theirs.
    pub credentials: RotatingCredentials,
    /// Where the coordinator listens, and may listen some day.
    pub coordinator: Whereabouts,
    /// Where to listen for other workers; port 0 takes any.
    pub listen: SocketAddr,
    /// Where others reach it, if that is another address than the one it listens at; the port is the same.
    pub advertise: Option<IpAddr>,
    /// What it would compute.
    pub identity: JobIdentity,
    /// How many shards it may be given at most.
    pub shard_capacity: u32,
    /// How many bytes its gradients and its links may take together; [`u64::MAX`] if that is not known.
    pub gradient_memory: u64,
    /// What it has of a GPU's memory, if it computes on one and knows.
    pub device_memory: Option<DeviceMemory>,
    /// How the bytes of its model's state are cut into pieces.
    pub pieces: Arc<StatePieces>,
    /// What its model's state is called: see [`sardana_storage::manifest::encode_description`].
    pub description: Bytes,
    /// Names of the model's auxiliary sums, in the model's order; for people.
    pub auxiliary: Vec<String>,
    /// Another means than links to sum by in fast order, if its model offers one: equal on all workers.
    pub summation: Option<Arc<dyn Summation>>,
    /// What its links go through.
    pub links: LinkChoice,
    /// How far the farthest worker is.
    pub reach: Reach,
    /// What SIGTERM means.
    pub sigterm: Sigterm,
}

impl WorkerConfig {
    /// What there is for gradients of so many bytes, beside what links may hold.
    fn memory_for(&self, gradient: u64) -> GradientMemory {
        let windows = Windows {
            unread: self.reach.stream_bytes().into(),
            unacknowledged: self.reach.send_bytes(),
        };
        GradientMemory::beside_links(gradient, self.gradient_memory, windows)
    }
}

/// What SIGTERM means to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sigterm {
    /// The worker leaves at a boundary; at the second one, or if the coordinator does not release it within [`limits::LEAVE_PATIENCE`], it ends. For
    /// a process that is nothing but this worker.
    Leave,
    /// It is the program's own affair.
    NotOurs,
}

/// How a worker's part in a job ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The job is done.
    Done {
        /// Updates applied.
        step: Step,
        /// Hash of the final state: the same on every worker.
        hash: StateHash,
    },
    /// It has left before the job's end: its shards are others' now.
    Drained {
        /// The step at which it left.
        step: Step,
    },
}

/// Why a worker ended before its job.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It could not listen. Fix the address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// It could not join, or lost the coordinator for good.
    #[error(transparent)]
    Join(#[from] Box<JoinError>),
    /// The coordinator no longer wants it. It may join anew, as a new worker.
    #[error("the coordinator dismissed this worker: {reason}")]
    Dismissed {
        /// Why, and what to do.
        reason: String,
    },
    /// The model failed; it would fail on every worker.
    #[error("the model failed: {reason}")]
    Model {
        /// What it said.
        reason: String,
    },
    /// Its host wanted the process to end, and it could not leave in good order. It may join anew, as a new worker.
    #[error("this worker was told to end (SIGTERM) {how}")]
    Terminated {
        /// What kept it from leaving in good order.
        how: &'static str,
    },
    /// A part of the worker panicked. Report it.
    #[error("a part of the worker failed: {reason}")]
    Broken {
        /// What is known.
        reason: String,
    },
}

/// Lets the training thread say that it cannot go on.
#[derive(Debug, Clone)]
pub struct ModelFailure(mpsc::UnboundedSender<String>);

impl ModelFailure {
    /// A failure that reports to the receiver.
    #[must_use]
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// The model said `reason`; the worker tells the coordinator and ends.
    pub fn report(&self, reason: String) {
        // The receiver is gone only if the worker is ending anyway.
        let _ = self.0.send(reason);
    }
}

/// Takes part in the job until it ends. `outbox` is what leaves `driver`; `failures` come from the training thread.
/// When this is dropped, the worker ends at once and closes its connections, without a word.
///
/// # Errors
/// See [`WorkerError`].
pub fn run(
    config: WorkerConfig,
    driver: Arc<StepDriver>,
    outbox: Outbox,
    failures: mpsc::UnboundedReceiver<String>,
) -> BoxFuture<'static, Result<Ended, WorkerError>> {
    run_on(Environment::Host, config, driver, outbox, failures)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    environment: Environment,
    config: WorkerConfig,
    driver: Arc<StepDriver>,
    outbox: Outbox,
    failures: mpsc::UnboundedReceiver<String>,
) -> BoxFuture<'static, Result<Ended, WorkerError>> {
    Box::pin(take_part(environment, config, driver, outbox, failures))
}

async fn take_part(
    environment: Environment,
    config: WorkerConfig,
    driver: Arc<StepDriver>,
    outbox: Outbox,
    failures: mpsc::UnboundedReceiver<String>,
) -> Result<Ended, WorkerError> {
    let termination = match config.sigterm {
        Sigterm::Leave => Some(signal(SignalKind::terminate()).map_err(|error| WorkerError::Broken {
            reason: format!("SIGTERM cannot be listened to: {error}"),
        })?),
        Sigterm::NotOurs => None,
    };
    let pieces = Arc::clone(&config.pieces);
    let (credentials, paths) = (&config.credentials, (config.links, config.reach));
    let peers = Peers::listen_on(environment, credentials, config.listen, paths, Arc::clone(&driver), pieces)?;
    let listening = peers.local_address().map_err(|error| WorkerError::Broken {
        reason: error.to_string(),
    })?;
    let address = SocketAddr::new(config.advertise.unwrap_or(listening.ip()), listening.port());
    let (ended, outcome) = oneshot::channel();
    let arguments = Arguments {
        config,
        address,
        driver: Arc::clone(&driver),
        peers: Arc::clone(&peers),
        messages: outbox.messages,
        ended,
    };
    let (worker, running) = Actor::spawn(None, Worker, arguments)
        .await
        .map_err(|error| WorkerError::Broken {
            reason: error.to_string(),
        })?;
    let _ends = Ends {
        worker: worker.clone(),
        driver: Arc::clone(&driver),
        peers: Arc::clone(&peers),
    };
    actor::forward(&worker, outbox.commands, failures, termination);
    let outcome = outcome.await.unwrap_or_else(|_| {
        Err(WorkerError::Broken {
            reason: "the worker's actor ended without a word".to_owned(),
        })
    });
    driver.end();
    worker.stop(None);
    // The actor's own end has nothing to add to its outcome.
    let _ = running.await;
    peers.close("the worker ends").await;
    outcome
}

/// Ends what is left of a worker that does not run any more. After an orderly end that is nothing.
struct Ends {
    worker: ActorRef<Message>,
    driver: Arc<StepDriver>,
    peers: Arc<Peers>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.driver.end();
        self.worker.kill();
        self.peers.abandon("the worker ends");
    }
}
