//! Watching and steering a job that runs: what an operator asks, and what a person sees of the answers.
//!
//! [`ask`] sends one request; [`Operator`] keeps the connection for several. [`table`] is a status as text, and with the feature
//! `cli` [`json`] is one for programs and [`watch`] one that stays on the screen. Nothing here decides anything.

#[cfg(feature = "cli")]
mod json;
mod table;
#[cfg(feature = "cli")]
pub mod watch;
mod words;

use std::net::SocketAddr;

pub use sardana_actors::operator::{Operator, OperatorError, limits};
use sardana_actors::trust::Credentials;
pub use sardana_protocol::status::{
    AgentStatus, CheckpointsView, DepotView, Doing, JobStatus, OperatorAnswer, OperatorRequest, Overview, SavedView,
    WorkerView,
};

pub use sardana_protocol::words::count;

#[cfg(feature = "cli")]
pub use json::json;
pub use table::table;

/// What it takes to talk to a job's coordinator.
#[derive(Debug, Clone)]
pub struct Access {
    /// Where it listens.
    pub coordinator: SocketAddr,
    /// An operator's, of its job.
    pub credentials: Credentials,
}

impl Access {
    /// Connects.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub async fn connect(&self) -> Result<Operator, OperatorError> {
        Operator::connect(&self.credentials, self.coordinator).await
    }
}

/// Asks one thing, and says goodbye.
///
/// # Errors
/// When no answer comes. A refusal is an answer.
pub async fn ask(access: &Access, request: &OperatorRequest) -> Result<OperatorAnswer, OperatorError> {
    let mut operator = access.connect().await?;
    let answer = operator.ask(request).await?;
    operator.close().await;
    Ok(answer)
}
