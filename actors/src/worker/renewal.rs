//! The renewal of a worker's own certificate, over its control connection: asked for at a beat, taken in when the answer comes.

use sardana_net::environment::Environment;
use sardana_net::trust::{Renewal, RotatingCredentials};
use sardana_protocol::messages::WorkerMessage;

/// A worker's renewal. Without a coordinator no answer comes: it is asked for again in time, until the certificate runs out.
#[derive(Debug)]
pub(crate) struct WorkerRenewal {
    renewal: Renewal,
    environment: Environment,
}

impl WorkerRenewal {
    /// The renewal of the worker with these credentials.
    pub(crate) fn new(rotating: &RotatingCredentials, environment: &Environment) -> Self {
        Self {
            renewal: Renewal::new(rotating.clone()),
            environment: environment.clone(),
        }
    }

    /// What to say now, if it is time.
    pub(crate) fn beat(&mut self) -> Option<WorkerMessage> {
        let request = self.renewal.request_due(self.environment.now())?;
        Some(WorkerMessage::Renew { request })
    }

    /// The coordinator's answer came.
    pub(crate) fn renewed(&mut self, certificate: Vec<u8>) {
        match self.renewal.renewed(certificate, self.environment.now()) {
            Ok(()) => tracing::debug!("the worker's certificate is renewed"),
            Err(error) => tracing::warn!(%error, "the worker's new certificate cannot be used; it is asked for again"),
        }
    }
}
