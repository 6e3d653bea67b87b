//! A worker process: the training thread on one side, the actors on the other.

use std::process;
use std::sync::Arc;
use std::thread;

use sardana_actors::agent::{Bundle, BundleError, receive_bundle};
use sardana_actors::worker::{self, Desk, Ended, Errand, ModelFailure, TallyFile, WorkerConfig, WorkerError};
use sardana_protocol::job::JobSpec;
use tokio::sync::{mpsc, oneshot};
use tracing_subscriber::EnvFilter;

use crate::job::Job;
use crate::model::{ModelError, Trainable};
use crate::trainer::{self, Facts, TrainingError};

/// Exit code of a worker that may be started again: the network, or a dismissal.
pub const EXIT_RETRY: i32 = 1;

/// Exit code of a worker that would fail again in the same way: it was refused, or its model failed.
pub const EXIT_GIVE_UP: i32 = 3;

/// Why a worker process ended before its job.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It was not started properly.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Its part in the job failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Its model failed before it could join.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// The system gives no thread or runtime.
    #[error("the worker could not start: {0}")]
    System(#[from] std::io::Error),
    /// The model's code panicked.
    #[error("the model's code panicked; its message is above")]
    Panicked,
}

impl ProcessError {
    /// The exit code that tells the agent whether to try again.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Worker(WorkerError::Join(error)) => match **error {
                worker::JoinError::NotThere { .. } | worker::JoinError::Bind(_) => EXIT_RETRY,
                worker::JoinError::NotTrusted { .. } | worker::JoinError::Refused { .. } => EXIT_GIVE_UP,
            },
            Self::Worker(WorkerError::Dismissed { .. } | WorkerError::Broken { .. } | WorkerError::Bind(_))
            | Self::System(_) => EXIT_RETRY,
            Self::Bundle(_) | Self::Worker(WorkerError::Model { .. }) | Self::Training(_) | Self::Panicked => EXIT_GIVE_UP,
        }
    }
}

/// If an agent started this process as a worker, takes part in the job and ends the process: 0 when the job is done. Otherwise
/// returns at once. A program calls it (or [`crate::train`]) before it does anything that a worker should not do.
pub fn serve_if_started_by_agent<M, F>(job: &Job, build: F)
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError> + Send + 'static,
{
    let outcome = match receive_bundle() {
        Ok(None) => return,
        Ok(Some(bundle)) => serve(bundle, job, build),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(_) => process::exit(0),
        Err(error) => {
            eprintln!("sardana worker: {error}");
            process::exit(error.exit_code());
        }
    }
}

/// Takes part in the job that `bundle` leads to.
///
/// # Errors
/// See [`ProcessError`].
pub fn serve<M, F>(bundle: Bundle, job: &Job, build: F) -> Result<Ended, ProcessError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError> + Send + 'static,
{
    log_warnings();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(take_part(bundle, job, build))
}

/// What the training thread says once its model is ready, or why it is not.
type Introduction = Result<(Facts, Arc<Desk>, mpsc::UnboundedReceiver<Errand>), TrainingError>;

async fn take_part<M, F>(bundle: Bundle, job: &Job, build: F) -> Result<Ended, ProcessError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError> + Send + 'static,
{
    let (introduce, introduction) = oneshot::channel::<Introduction>();
    let (failure, failures) = ModelFailure::channel();
    let spec = job.spec().clone();
    let tally = bundle.tally.as_ref().and_then(|path| match TallyFile::open(path) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "gradients are not counted");
            None
        }
    });
    let training = thread::Builder::new().name("training".to_owned()).spawn(move || {
        let mut prepared = match trainer::prepare(&spec, build) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = introduce.send(Err(error));
                return;
            }
        };
        let (desk, errands) = Desk::new(&spec, Arc::clone(&prepared.layout), tally);
        let introduced = introduce.send(Ok((prepared.facts.clone(), Arc::clone(&desk), errands)));
        if introduced.is_ok()
            && let Err(error) = trainer::work(&mut prepared, &desk)
        {
            failure.report(error.to_string());
        }
    })?;
    // Without a word the thread has panicked.
    let (facts, desk, errands) = introduction.await.map_err(|_| ProcessError::Panicked)??;
    let config = WorkerConfig {
        credentials: bundle.credentials,
        coordinator: bundle.coordinator,
        listen: bundle.listen,
        advertise: None,
        identity: facts.identity,
        shard_capacity: job.shard_capacity(),
        state_bytes: facts.state_bytes,
    };
    let ended = worker::run(config, desk, errands, failures).await?;
    training.join().map_err(|_| ProcessError::Panicked)?;
    Ok(ended)
}

/// Warnings of workers go to standard error, unless the program or `RUST_LOG` wants otherwise.
fn log_warnings() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // The program may have set its own.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
