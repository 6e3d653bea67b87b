//! Why a job that was launched did not finish, for people.

use sardana_actors::agent::AgentError;
use sardana_actors::coordinator::CoordinatorError;
use sardana_actors::depot::DepotStartError;
use sardana_net::trust::AuthorityError;
use sardana_protocol::membership::Need;

use crate::device::{DeviceChoiceError, NoGpu};
use crate::mirroring::MirroringError;

/// Why a job did not finish.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// This program's own path or the system's random numbers could not be had.
    #[error("the job could not be launched: {0}")]
    System(String),
    /// No authority or certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// No coordinator.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// No agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// What is said of the device makes no sense.
    #[error(transparent)]
    DeviceChoice(#[from] DeviceChoiceError),
    /// There is no such device.
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// The folder of checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] DepotStartError),
    /// The mirror of its checkpoints cannot be used.
    #[error(transparent)]
    Mirror(#[from] MirroringError),
    /// The job failed, for this reason.
    #[error("the job failed: {0}")]
    Failed(String),
    /// All workers ended, and none is started again.
    #[error(
        "all workers have ended and none is started again; the last one: {last}. Its own words are on standard error; a worker's \
         program calls sardana::train, serve_if_started_by_agent or group::join"
    )]
    NoWorkers {
        /// How the last worker ended.
        last: String,
    },
    /// The system does not start the program. Fix its path or its permissions.
    #[error("no more workers can be started, {left} run, and the job needs {need}: {reason}")]
    NotStarted {
        /// How many workers run.
        left: u32,
        /// What the job needs.
        need: Need,
        /// What the system said of which program, and what to do.
        reason: String,
    },
    /// Some workers ended, none is started again, and those that are left cannot train.
    #[error(
        "{left} of the job's workers are left and none is started again, but it needs {need}; the last to end: {last}. Its own \
         words are on standard error; fix what ended it, or allow fewer workers (.min_workers) or more restarts (.restarts)"
    )]
    TooFew {
        /// How many workers run.
        left: u32,
        /// What the job needs.
        need: Need,
        /// How the last worker ended.
        last: String,
    },
    /// All workers are there, and their memory does not hold the gradients of one step.
    #[error("the job needs {0}, and no more workers will come: start more of them, or set a larger .shard_capacity")]
    NoRoom(Need),
    /// The coordinator, a part of this process, broke. Report it.
    #[error("the coordinator ended before the job; its last words are in the log")]
    NoCoordinator,
}
