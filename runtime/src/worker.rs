//! A worker process: the training thread on one side, the actors on the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use sardana_actors::agent::{Bundle, BundleError, receive_bundle};
pub use sardana_actors::agent::{EXIT_GIVE_UP, EXIT_RETRY};
use sardana_actors::memory::{self, Used};
pub use sardana_actors::worker::Ended;
use sardana_actors::worker::{self, ModelFailure, Outbox, Reach, Sigterm, StepDriver, TallyFile, WorkerConfig, WorkerError};
use sardana_net::environment::Environment;
use sardana_net::trust::RotatingCredentials;
use sardana_protocol::job::JobSpec;
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};
use tracing_subscriber::EnvFilter;

use crate::environment::{self, LinkChoice, LinkVariableError};
use crate::hosts::by_hand::{ByHandError, bundle_by_hand};
use crate::job::Job;
use crate::model::{ModelError, Trainable};
use crate::trainer::{self, Facts, TrainingError};

/// Why a worker process ended before its job.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It was not started properly.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// It has a join file that it could not use.
    #[error(transparent)]
    ByHand(#[from] ByHandError),
    /// What its environment says of it is not known.
    #[error(transparent)]
    Environment(#[from] LinkVariableError),
    /// Its part in the job failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Its model failed before it could join.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// The system gives no thread or runtime.
    #[error("the worker could not start: {0}")]
    System(#[from] std::io::Error),
    /// The network's thread panicked. Report it.
    #[error("the worker's network thread panicked; its message is above")]
    Panicked,
}

impl ProcessError {
    /// The exit code that tells the agent whether to try again.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Worker(WorkerError::Join(error)) => match **error {
                // A replacement that was no longer needed.
                worker::JoinError::Over => 0,
                worker::JoinError::NotThere { .. } | worker::JoinError::Bind(_) => EXIT_RETRY,
                worker::JoinError::NotTrusted { .. } | worker::JoinError::Refused { .. } => EXIT_GIVE_UP,
            },
            Self::Worker(
                WorkerError::Dismissed { .. }
                | WorkerError::Terminated { .. }
                | WorkerError::Broken { .. }
                | WorkerError::Bind(_),
            )
            | Self::System(_) => EXIT_RETRY,
            Self::Bundle(_)
            | Self::ByHand(_)
            | Self::Environment(_)
            | Self::Worker(WorkerError::Model { .. })
            | Self::Training(_)
            | Self::Panicked => EXIT_GIVE_UP,
        }
    }
}

/// If an agent started this process as a worker, or [`crate::hosts::JOIN_VARIABLE`] names a join file for one, takes part in the
/// job and ends the process: 0 when the job is done, or when the worker has left it in good order, which SIGTERM asks for.
/// Otherwise returns at once. A program calls it (or [`crate::train()`]) before it does anything that a worker should not do.
pub fn serve_if_started_by_agent<M, F>(job: &Job, build: F)
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    let outcome = match bundle() {
        Ok(None) => return,
        Ok(Some(bundle)) => take_part(bundle, job, build, Sigterm::Leave),
        Err(error) => Err(error),
    };
    end_process(&outcome);
}

/// What this process needs to be a worker: from its agent, or by the join file that its environment names. None if it is not to be one.
pub(crate) fn bundle() -> Result<Option<Bundle>, ProcessError> {
    match receive_bundle()? {
        None => Ok(bundle_by_hand()?),
        received => Ok(received),
    }
}

/// Where the worker of this bundle counts gradients, if it is to.
pub(crate) fn tally(bundle: &Bundle) -> Option<TallyFile> {
    let path = bundle.tally.as_ref()?;
    let opened = TallyFile::open(path);
    opened
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "gradients are not counted"))
        .ok()
}

/// Ends the process with the code that tells the agent whether to try again.
fn end_process(outcome: &Result<Ended, ProcessError>) -> ! {
    match outcome {
        Ok(Ended::Done { .. } | Ended::Drained { .. }) => process::exit(0),
        Err(error) => {
            let code = error.exit_code();
            if code != 0 {
                eprintln!("sardana worker: {error}");
            }
            process::exit(code);
        }
    }
}

/// Takes part in the job that `bundle` leads to. Signals are the program's own affair.
///
/// # Errors
/// See [`ProcessError`].
pub fn serve<M, F>(bundle: Bundle, job: &Job, build: F) -> Result<Ended, ProcessError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    take_part(bundle, job, build, Sigterm::NotOurs)
}

fn take_part<M, F>(bundle: Bundle, job: &Job, build: F, sigterm: Sigterm) -> Result<Ended, ProcessError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    log_warnings();
    let (links, reach) = environment::links()?;
    let span = span_of(&bundle);
    let _in_worker = span.enter();
    let tally = tally(&bundle);
    let preparing = catch_unwind(AssertUnwindSafe(|| trainer::prepare(job.spec(), build)));
    let mut prepared = preparing.map_err(|_| ProcessError::Panicked)??;
    let (driver, outbox) = StepDriver::new(job.spec(), Arc::clone(&prepared.layout), tally);
    let config = WorkerConfig {
        links,
        reach,
        ..config(&Environment::Host, bundle, job, &prepared.facts, sigterm)
    };
    let (failure, failures) = ModelFailure::channel();
    let network = Network::start(config, Arc::clone(&driver), outbox, failures, sigterm)?;
    // Told also when the model's code panics: the others must not wait for this worker.
    let training = catch_unwind(AssertUnwindSafe(|| trainer::work(&mut prepared, &driver)));
    match training {
        Ok(Ok(())) => {}
        Ok(Err(error)) => failure.report(error.to_string()),
        Err(_) => failure.report("the model's code panicked; its message is on the worker's standard error".to_owned()),
    }
    network.outcome()
}

/// Each line that this process logs says by it of which worker it is, and of which job.
pub(crate) fn span_of(bundle: &Bundle) -> tracing::Span {
    let worker = WorkerId::new(bundle.credentials.id());
    tracing::error_span!("worker", job = %bundle.credentials.job(), %worker)
}

/// What the actors of a worker need.
pub(crate) fn config(environment: &Environment, bundle: Bundle, job: &Job, facts: &Facts, sigterm: Sigterm) -> WorkerConfig {
    WorkerConfig {
        credentials: RotatingCredentials::new(bundle.credentials, environment.now()),
        coordinator: bundle.coordinator,
        listen: bundle.listen,
        advertise: bundle.advertise,
        identity: facts.identity.clone(),
        shard_capacity: job.shard_capacity(),
        // What a person has said counts.
        gradient_memory: match job.staffing().shard_capacity {
            Some(_) => u64::MAX,
            None => gradient_memory(
                bundle.memory,
                memory::used(),
                beside_gradients(facts.pieces.bytes(), facts.will_hold_bytes, facts.device_memory.as_ref()),
            ),
        },
        device_memory: facts.device_memory.clone(),
        pieces: Arc::clone(&facts.pieces),
        description: facts.description.clone(),
        auxiliary: facts.auxiliary.clone(),
        summation: facts.summation.clone(),
        links: LinkChoice::default(),
        reach: Reach::default(),
        sigterm,
    }
}

/// What a worker will hold of its host's memory besides what it has needed so far, without its gradients: a copy of its state, what its model says, and what is pinned for
/// a GPU: of that its host is said to use some already where parts of sums have passed before, which is counted twice then, a few MiB.
fn beside_gradients(state: usize, will_hold: usize, device: Option<&DeviceMemory>) -> u64 {
    let pinned = device.map_or(0, |memory| memory.pinned);
    pinned.saturating_add((state + will_hold) as u64)
}

/// What a worker that may use `memory` bytes has for gradients and links: what is left beside what its model has needed at most while it was probed,
/// and a copy of its state, and what it will hold. What it needed has a copy already, which the probe made and which serves joiners and checkpoints since; the
/// other is for a state or a snapshot that comes while they hold that.
fn gradient_memory(memory: Option<u64>, used: Option<Used>, beside: u64) -> u64 {
    let Some((memory, used)) = memory.zip(used) else {
        return u64::MAX;
    };
    memory.saturating_sub(used.peak).saturating_sub(beside)
}

/// The thread that the actors run on. The training thread is the caller's, usually the process's main thread: memory that
/// the model allocates and frees at every step is cheapest there.
struct Network {
    thread: JoinHandle<Result<Ended, ProcessError>>,
    /// Dropped when the training thread has come back.
    trains: mpsc::UnboundedSender<Never>,
}

/// Nothing is ever sent: only the end counts.
enum Never {}

impl Network {
    fn start(
        config: WorkerConfig,
        driver: Arc<StepDriver>,
        outbox: Outbox,
        failures: mpsc::UnboundedReceiver<String>,
        sigterm: Sigterm,
    ) -> Result<Self, ProcessError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (trains, training) = mpsc::unbounded_channel();
        let span = tracing::Span::current();
        let run = move || {
            // All tasks of the network run on this thread.
            let _in_worker = span.entered();
            // The training thread waits at its step driver; it must learn of any end of this one.
            let end = EndDriver(Arc::clone(&driver));
            let outcome = runtime.block_on(worker::run(config, driver, outbox, failures));
            drop(end);
            let outcome = outcome.map_err(ProcessError::from);
            if sigterm == Sigterm::Leave {
                // If the training thread hangs, no other process would end this one, or know that it can be replaced.
                runtime.block_on(end_without(training, STRAGGLER, || end_process(&outcome)));
            }
            outcome
        };
        let thread = thread::Builder::new().name("network".to_owned()).spawn(run)?;
        Ok(Self { thread, trains })
    }

    /// How the worker's part has ended. The training thread calls it when it is done.
    fn outcome(self) -> Result<Ended, ProcessError> {
        drop(self.trains);
        self.thread.join().map_err(|_| ProcessError::Panicked)?
    }
}

/// How long a training thread may go on with what is not needed any more, before its process ends without it.
const STRAGGLER: Duration = Duration::from_secs(10);

/// Waits until the training thread has come back, and does `end` if it does not within `grace`.
async fn end_without(mut training: mpsc::UnboundedReceiver<Never>, grace: Duration, end: impl FnOnce()) {
    if timeout(grace, training.recv()).await.is_err() {
        end();
    }
}

/// Ends the step driver when the network ends, however it does.
pub(crate) struct EndDriver(pub(crate) Arc<StepDriver>);

impl Drop for EndDriver {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Warnings of workers go to standard error, unless the program or `RUST_LOG` wants otherwise.
pub(crate) fn log_warnings() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // The program may have set its own.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn gradients_get_what_is_left_beside_the_model_and_a_copy_of_its_state() {
        const GIB: u64 = 1 << 30;
        let used = |peak| Some(Used { now: GIB, peak });
        assert_eq!(gradient_memory(Some(64 * GIB), used(10 * GIB), 4 * GIB), 50 * GIB);
        assert_eq!(gradient_memory(Some(64 * GIB), used(63 * GIB), 4 * GIB), 0);
        assert_eq!(gradient_memory(None, used(GIB), 0), u64::MAX);
        assert_eq!(gradient_memory(Some(GIB), None, 0), u64::MAX);
        let device = DeviceMemory {
            pinned: 5,
            ..DeviceMemory::default()
        };
        assert_eq!(beside_gradients(3, 4, None), 7);
        assert_eq!(beside_gradients(3, 4, Some(&device)), 12, "what is pinned is the host's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_does_not_outlive_its_part_in_the_job_for_a_training_thread_that_hangs() {
        let ended = Cell::new(false);
        let (trains, training) = mpsc::unbounded_channel();
        end_without(training, STRAGGLER, || ended.set(true)).await;
        assert!(ended.get(), "it never came back");
        drop(trains);

        let ended = Cell::new(false);
        let (trains, training) = mpsc::unbounded_channel();
        let comes_back = async {
            tokio::time::advance(STRAGGLER / 2).await;
            drop(trains);
        };
        tokio::join!(end_without(training, STRAGGLER, || ended.set(true)), comes_back);
        assert!(!ended.get(), "it came back in time");
    }
}
