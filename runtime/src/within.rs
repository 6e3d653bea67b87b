//! A worker as a task of the caller's own tokio runtime: the actors, and the model's code between their turns. For simulations, where one
//! seed decides when everything happens; a real gradient would keep the network waiting, so that others took this worker for dead.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sardana_actors::agent::Bundle;
use sardana_actors::worker::{self, ModelFailure, Sigterm, StepDriver, Task};
pub use sardana_net::environment::{Environment, SimulatedHost};
pub use sardana_net::trust::Clock;
use sardana_protocol::job::JobSpec;
use tokio::time::sleep;

use crate::copies::Copies;
use crate::job::Job;
use crate::model::{ModelError, Trainable};
use crate::trainer::{self, Prepared, Training};
use crate::worker::{EndDriver, Ended, ProcessError, config};

/// What a model is asked for, as far as it takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// One shard's gradient.
    Gradient,
    /// An update.
    Update,
    /// To load a state.
    Load,
    /// To copy shares of its state for others.
    Copy,
    /// The hash of the last state, and the evaluation.
    Conclusion,
}

/// Takes part in the job that `bundle` leads to, on `environment`. Each task of the model begins `takes(effort)` after it was due, and then
/// takes no time. Gradients are not counted in a file: `bundle.tally` is not looked at. Dropped, the worker ends as if it was killed,
/// but for the words that close its connections.
///
/// # Errors
/// See [`ProcessError`].
pub async fn serve_within<M, F>(
    environment: Environment,
    bundle: Bundle,
    job: &Job,
    build: F,
    takes: impl Fn(Effort) -> Duration,
) -> Result<Ended, ProcessError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    let mut prepared = trainer::prepare(job.spec(), build)?;
    let (driver, outbox) = StepDriver::new(job.spec(), Arc::clone(&prepared.layout), None);
    let config = config(&environment, bundle, job, &prepared.facts, Sigterm::NotOurs);
    let (failure, failures) = ModelFailure::channel();
    let network = async {
        // The model waits at its step driver; it must learn of any end of the network.
        let _end = EndDriver(Arc::clone(&driver));
        worker::run_on(environment, config, Arc::clone(&driver), outbox, failures).await
    };
    let (ended, ()) = tokio::join!(network, train(&mut prepared, &driver, &failure, takes));
    Ok(ended?)
}

async fn train<M: Trainable>(
    prepared: &mut Prepared<M>,
    driver: &StepDriver,
    failure: &ModelFailure,
    takes: impl Fn(Effort) -> Duration,
) {
    let mut training = Training::begin(prepared, driver, Copies::at_once());
    loop {
        let task = match training.beside() {
            Ok(Some(task)) => task,
            Ok(None) => driver.coming().await,
            Err(error) => return failure.report(error.to_string()),
        };
        if let Some(effort) = effort(&task) {
            sleep(takes(effort)).await;
        }
        match training.perform(task) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return,
            Err(error) => return failure.report(error.to_string()),
        }
    }
}

fn effort(task: &Task) -> Option<Effort> {
    match task {
        Task::Gradient { .. } => Some(Effort::Gradient),
        Task::Apply { .. } => Some(Effort::Update),
        Task::Load { .. } => Some(Effort::Load),
        Task::Copy { .. } => Some(Effort::Copy),
        Task::Conclude { .. } => Some(Effort::Conclusion),
        Task::End => None,
    }
}
