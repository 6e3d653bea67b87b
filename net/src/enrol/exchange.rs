//! The end of an enrolment that shows no certificate: one request, one answer.

use std::net::SocketAddr;

use quinn::{Connection, ConnectionError, Endpoint};
use rustls_pki_types::CertificateDer;
use sardana_protocol::words::JobId;
use tokio::time::timeout;

use super::limits::{ENROL_DEADLINE, ENROL_FRAME_BYTES};
use super::messages::{EnrolAnswer, EnrolRequest};
use super::service::COME_AGAIN;
use crate::environment::Environment;
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{BindError, ConnectError, bind_stranger_on, close, connect, explain, is_refusal};
use crate::trust::PeerIdentity;
use crate::wire::{FrameError, exchange};

/// A connection to the coordinator of a job, over which nothing is shown.
#[derive(Debug)]
pub(super) struct Stranger {
    endpoint: Endpoint,
    connection: Connection,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error(transparent)]
    Bind(BindError),
    #[error(transparent)]
    Connect(ConnectError),
}

/// Why there is no certificate.
#[derive(Debug)]
pub(super) enum AskError {
    /// The same request, made again, may fare better: it counts once.
    Again(String),
    /// The coordinator says no.
    Refused(String),
}

impl Stranger {
    /// Dials the coordinator of `job` at `address`. `authority` is that job's.
    pub(super) async fn dial(
        environment: &Environment,
        authority: CertificateDer<'static>,
        job: JobId,
        address: SocketAddr,
    ) -> Result<Self, DialError> {
        let endpoint = bind_stranger_on(environment, authority, address).map_err(DialError::Bind)?;
        match connect(&endpoint, address, PeerIdentity::coordinator(job), CONNECT_DEADLINE).await {
            Ok(connection) => Ok(Self { endpoint, connection }),
            Err(error) => {
                close(&endpoint, "not there").await;
                Err(DialError::Connect(error))
            }
        }
    }

    /// Asks for a certificate.
    pub(super) async fn ask(&self, asked: &EnrolRequest) -> Result<Vec<u8>, AskError> {
        let no_answer = |reason: String| Err(AskError::Again(format!("it gave no answer: {reason}")));
        match timeout(ENROL_DEADLINE, ask(&self.connection, asked)).await {
            Ok(Ok(Some(EnrolAnswer::Enrolled { certificate }))) => Ok(certificate),
            Ok(Ok(Some(EnrolAnswer::Refused { reason }))) => Err(AskError::Refused(reason)),
            Ok(Ok(None)) => no_answer("it ended the stream".to_owned()),
            // It has not looked at the request.
            Ok(Err(FrameError::Connection(error))) if is_come_again(&error) => Err(AskError::Again(explain(&error))),
            Ok(Err(FrameError::Connection(error))) if is_refusal(&error) => Err(AskError::Refused(explain(&error))),
            // It cannot read it, and will not another time.
            Ok(Err(error @ FrameError::Version { .. })) => Err(AskError::Refused(error.to_string())),
            Ok(Err(error)) => no_answer(error.to_string()),
            Err(_) => no_answer(format!("nothing came within {ENROL_DEADLINE:?}")),
        }
    }

    /// Goes.
    pub(super) async fn leave(self) {
        close(&self.endpoint, "enrolled").await;
    }
}

async fn ask(connection: &Connection, asked: &EnrolRequest) -> Result<Option<EnrolAnswer>, FrameError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(FrameError::Connection)?;
    let streams = (&mut send, &mut receive);
    exchange(connection, streams, (asked, ENROL_FRAME_BYTES), ENROL_FRAME_BYTES).await
}

fn is_come_again(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == COME_AGAIN)
}
