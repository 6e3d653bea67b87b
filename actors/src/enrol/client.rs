//! The end of an enrolment that has no certificate yet: makes a key, asks for its certificate, and has credentials.

use std::net::SocketAddr;

use quinn::{Connection, ConnectionError, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use super::join_file::{JoinFile, JoinFileError};
use super::limits::{ENROL_AGAIN, ENROL_DEADLINE, ENROL_FRAME_BYTES, ENROL_PATIENCE};
use super::messages::{EnrolAnswer, EnrolRequest};
use super::service::COME_AGAIN;
use crate::ground::Ground;
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{BindError, ConnectError, bind_stranger, bind_stranger_on, close, connect, explain, is_refusal};
use crate::trust::{AuthorityError, Credentials, CredentialsError, PeerIdentity, PendingKey, Role};
use crate::whereabouts::Whereabouts;
use crate::wire::{FrameError, exchange};

/// Credentials of a job, and where its coordinator is.
#[derive(Debug)]
pub struct Enrolled {
    /// What was got.
    pub credentials: Credentials,
    /// Where the coordinator answered, and where else it may be some day.
    pub coordinator: Whereabouts,
}

/// Why somebody could not enrol. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The join file cannot be used.
    #[error(transparent)]
    JoinFile(#[from] JoinFileError),
    /// The join file is for another role. Nothing was used up.
    #[error(
        "the join file is for the role {found}, expected {expected}; ask for another one: sardana invite --role {expected}"
    )]
    Role {
        /// What is wanted.
        expected: Role,
        /// What the join file is for.
        found: Role,
    },
    /// No local socket, or the join file's authority is none.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No key could be made.
    #[error(transparent)]
    Key(#[from] AuthorityError),
    /// No coordinator of the job answered.
    #[error("no coordinator of the job answered within {ENROL_PATIENCE:?}: {last}; start it, or ask for a new join file")]
    NotThere {
        /// What the last attempt said.
        last: String,
    },
    /// Whoever answers is not the coordinator of the join file's job.
    #[error("the coordinator cannot be trusted: {0}; or the join file is of another job: ask for a new one")]
    NotTrusted(#[source] ConnectError),
    /// The coordinator refused, and said why.
    #[error("the coordinator at {address} refused: {reason}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// Expected, found, and what to do.
        reason: String,
    },
    /// The connection broke after the request was sent: it may count as a use.
    #[error(
        "the coordinator at {address} gave no answer: {reason}; try again, or ask for a new join file if this one is used up"
    )]
    NoAnswer {
        /// Where it is.
        address: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// The certificate is not the one asked for. The coordinator is broken.
    #[error("the coordinator at {address} sent a certificate that cannot be used: {source}")]
    Certificate {
        /// Where it is.
        address: SocketAddr,
        /// What is wrong with it.
        #[source]
        source: CredentialsError,
    },
}

/// One attempt's end: try again, or not.
enum Attempt {
    Again(String),
    Never(EnrolError),
}

/// Trades the join file for credentials of `role` with a new key.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// See [`EnrolError`].
pub async fn enrol(join: &JoinFile, role: Role) -> Result<Enrolled, EnrolError> {
    enrol_on(&Ground::Host, join, role).await
}

/// Likewise, on another ground than the host.
///
/// # Errors
/// As [`enrol`].
pub async fn enrol_on(ground: &Ground, join: &JoinFile, role: Role) -> Result<Enrolled, EnrolError> {
    let found = join.invitation.role();
    if found != role {
        return Err(EnrolError::Role { expected: role, found });
    }
    let give_up = Instant::now() + ENROL_PATIENCE;
    let mut last = "it names no address".to_owned();
    loop {
        for &address in &join.coordinators {
            let endpoint = bind_stranger_on(ground, join.authority(), address)?;
            let attempt = attempt(ground, &endpoint, join, address).await;
            close(&endpoint, "enrolled").await;
            match attempt {
                Ok(credentials) => {
                    return Ok(Enrolled {
                        credentials,
                        coordinator: Whereabouts::new(address, &join.coordinators),
                    });
                }
                Err(Attempt::Never(error)) => return Err(error),
                Err(Attempt::Again(why)) => last = why,
            }
        }
        if Instant::now() + ENROL_AGAIN > give_up {
            return Err(EnrolError::NotThere { last });
        }
        sleep(ENROL_AGAIN).await;
    }
}

/// Whether the coordinator of the join file answers at one of its addresses. Uses nothing up.
///
/// # Errors
/// When no local socket can be had.
pub async fn answers(join: &JoinFile) -> Result<bool, BindError> {
    for &address in &join.coordinators {
        let endpoint = bind_stranger(join.authority(), address)?;
        let coordinator = PeerIdentity::coordinator(join.invitation.job());
        let connected = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await;
        close(&endpoint, "only asked whether it is there").await;
        match connected {
            Ok(_) | Err(ConnectError::Busy { .. }) => return Ok(true),
            Err(
                ConnectError::Unreachable { .. }
                | ConnectError::Refused { .. }
                | ConnectError::WrongPeer { .. }
                | ConnectError::OtherProtocol { .. }
                | ConnectError::Lost { .. }
                | ConnectError::Local { .. },
            ) => {}
        }
    }
    Ok(false)
}

async fn attempt(
    ground: &Ground,
    endpoint: &Endpoint,
    join: &JoinFile,
    address: SocketAddr,
) -> Result<Credentials, Attempt> {
    let job = join.invitation.job();
    let connected = connect(endpoint, address, PeerIdentity::coordinator(job), CONNECT_DEADLINE).await;
    let connection = connected.map_err(|error| match error {
        ConnectError::Unreachable { .. } | ConnectError::Busy { .. } | ConnectError::Lost { .. } => {
            Attempt::Again(error.to_string())
        }
        ConnectError::Refused { .. }
        | ConnectError::WrongPeer { .. }
        | ConnectError::OtherProtocol { .. }
        | ConnectError::Local { .. } => Attempt::Never(EnrolError::NotTrusted(error)),
    })?;
    let key = PendingKey::generate().map_err(|error| Attempt::Never(error.into()))?;
    let asked = EnrolRequest {
        invitation: join.invitation.clone(),
        request: ground
            .signed(|| key.request())
            .map_err(|error| Attempt::Never(error.into()))?,
    };
    let no_answer = |reason: String| Attempt::Never(EnrolError::NoAnswer { address, reason });
    let answer = match timeout(ENROL_DEADLINE, ask(&connection, &asked)).await {
        Ok(Ok(Some(answer))) => answer,
        Ok(Ok(None)) => return Err(no_answer("it ended the stream".to_owned())),
        // It has not looked at the request.
        Ok(Err(FrameError::Connection(error))) if is_come_again(&error) => return Err(Attempt::Again(explain(&error))),
        Ok(Err(FrameError::Connection(error))) if is_refusal(&error) => {
            let reason = explain(&error);
            return Err(Attempt::Never(EnrolError::Refused { address, reason }));
        }
        Ok(Err(error)) => return Err(no_answer(error.to_string())),
        Err(_) => return Err(no_answer(format!("nothing came within {ENROL_DEADLINE:?}"))),
    };
    match answer {
        EnrolAnswer::Refused { reason } => Err(Attempt::Never(EnrolError::Refused { address, reason })),
        EnrolAnswer::Enrolled { certificate } => {
            let wrong = |source| Attempt::Never(EnrolError::Certificate { address, source });
            let credentials = key.certified(&join.authority(), certificate).map_err(wrong)?;
            let expected = PeerIdentity {
                job,
                role: join.invitation.role(),
                id: credentials.id(),
            };
            if credentials.identity() == expected {
                Ok(credentials)
            } else {
                let found = credentials.identity();
                Err(wrong(CredentialsError::Mismatch { expected, found }))
            }
        }
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
