//! Watching and steering a job that runs: what an operator asks, and what a person sees of the answers.
//!
//! [`ask`] sends one request; [`Operator`] keeps the connection for several. [`table`] is a status as text, and with the feature
//! `cli` [`json`] is one for programs and [`watch`] one that stays on the screen. Nothing here decides anything.

#[cfg(feature = "cli")]
mod json;
mod links;
mod table;
#[cfg(feature = "cli")]
pub mod watch;
mod words;

use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use sardana_net::enrol::enrol_anew;
use sardana_net::trust::{Credentials, Role};

pub use sardana_actors::operator::{Operator, OperatorError, limits};
pub use sardana_protocol::status::{
    AgentStatus, CheckpointsView, DepotView, DeviceView, Doing, JobStatus, KindView, LinkView, LinksView, OperatorAnswer,
    OperatorRequest, Overview, SavedView, WorkerView,
};

pub use sardana_protocol::words::count;

use crate::hosts::{EnrolError, Keyring, enrol_kept};
#[cfg(feature = "cli")]
pub use json::json;
pub use links::LinksShown;
pub use table::table;
pub use words::{columns, plain, size, three_digits};

/// What it takes to talk to a job's coordinator.
#[derive(Debug, Clone)]
pub struct Access {
    /// The address at which it listens.
    pub coordinator: SocketAddr,
    /// An operator's credentials for its job.
    pub credentials: Credentials,
    /// How both are had again, once the coordinator has moved or the certificate has run out; if there is a way.
    pub way: Option<Way>,
}

/// The way to a job's coordinator: a join file, and the keyring with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The path of the join file.
    pub join: PathBuf,
    /// The keyring with the key of the join file.
    pub keyring: Keyring,
}

impl Access {
    /// Access by a join file.
    ///
    /// # Errors
    /// When the file or the keyring cannot be used, the coordinator is not there, or it refuses.
    pub async fn by(way: Way) -> Result<Self, EnrolError> {
        let enrolled = enrol_kept(&way.join, Role::Operator, &way.keyring).await?;
        Ok(Self {
            coordinator: enrolled.coordinator.found(),
            credentials: enrolled.credentials,
            way: Some(way),
        })
    }

    /// The same once more, where the coordinator is now, if there is a way.
    ///
    /// # Errors
    /// As [`Access::by`].
    pub async fn again(&self) -> Result<Self, EnrolError> {
        match &self.way {
            Some(way) => Self::by(way.clone()).await,
            None => Ok(self.clone()),
        }
    }

    /// Connects. With a new certificate, if the coordinator does not take this one any more and there is a way to one.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub fn connect(&self) -> BoxFuture<'_, Result<Operator, OperatorError>> {
        Box::pin(self.dial())
    }

    async fn dial(&self) -> Result<Operator, OperatorError> {
        let connected = Operator::connect(&self.credentials, self.coordinator).await;
        let (Err(OperatorError::RunOut { .. }), Some(way)) = (&connected, &self.way) else {
            return connected;
        };
        match enrol_anew(&way.join, Role::Operator, &way.keyring).await {
            Ok(enrolled) => Operator::connect(&enrolled.credentials, enrolled.coordinator.found()).await,
            Err(error) => {
                tracing::warn!(%error, "the join file gave no new certificate");
                connected
            }
        }
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
