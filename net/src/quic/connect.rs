//! Dialling and accepting: a connection is handed out only once both certificates are verified and the other end is the right
//! one (SEC-1).

use std::net::SocketAddr;
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, ConnectionError, Endpoint, TransportErrorCode, VarInt};
use tokio::time::{sleep, timeout};

use super::door::Knock;
use super::explain::{Alert, explain};
use super::limits::LEAVING_TIME;
use super::purpose::Purpose;
use crate::trust::{IdentityError, PeerIdentity, Role, identity_of, may_connect};

/// The application's close code for a peer that is not the right one, or says what it should not: trying again would end in the
/// same way. The reason says more.
pub const REFUSED: VarInt = VarInt::from_u32(1);

/// Why no connection was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No answer came. Try again; after some tries tell the user.
    #[error(
        "no process answered at {address}/udp within {after:?}; see whether the process runs there and the network carries UDP"
    )]
    Unreachable {
        /// The address that was dialled.
        address: SocketAddr,
        /// For how long.
        after: Duration,
    },
    /// The peer takes no more connections at the moment. Try again later.
    #[error("{address} takes no more connections at the moment; try again later")]
    Busy {
        /// The address that was dialled.
        address: SocketAddr,
    },
    /// A certificate was refused: the two belong to different jobs. Fix the address or the credentials.
    #[error("{address}: {reason}")]
    Refused {
        /// The address that was dialled.
        address: SocketAddr,
        /// Which end's certificate, and what to do.
        reason: String,
    },
    /// A certificate is not valid at this time, by the clock of the end that looked at it. If it is this end's that has run out, have it renewed;
    /// else try again, as long as that makes sense: the other end renews its own.
    #[error("{address}: {reason}")]
    NotValidNow {
        /// The address that was dialled.
        address: SocketAddr,
        /// Which end's certificate it is.
        whose: Whose,
        /// Which times, and what to do.
        reason: String,
    },
    /// The peer is of this job, but not the expected one. Ask anew where that one is.
    #[error("{address}: expected {expected}, found {}; see whether the address is still the right one", found_words(.found.as_ref()))]
    WrongPeer {
        /// The address that was dialled.
        address: SocketAddr,
        /// The peer that should be there.
        expected: PeerIdentity,
        /// The peer that is there, if its certificate says so.
        found: Option<PeerIdentity>,
    },
    /// The peer speaks another version or purpose. Give up until both run the same release.
    #[error("{address}: {reason}")]
    OtherProtocol {
        /// The address that was dialled.
        address: SocketAddr,
        /// What to do.
        reason: String,
    },
    /// The connection broke while it was made. Try again.
    #[error("{address}: {reason}")]
    Lost {
        /// The address that was dialled.
        address: SocketAddr,
        /// Why, and what to do.
        reason: String,
    },
    /// This end cannot dial there: its endpoint is closed, or the address is of another family or without a port. Give up.
    #[error("{address} cannot be dialled from here: {reason}")]
    Local {
        /// The address that was dialled.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
}

impl ConnectError {
    /// Whether another try may fare better although people have changed nothing: the right peer may be there by then.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Busy { .. } | Self::Lost { .. } => true,
            Self::Refused { .. }
            | Self::NotValidNow { .. }
            | Self::WrongPeer { .. }
            | Self::OtherProtocol { .. }
            | Self::Local { .. } => false,
        }
    }
}

/// Which end's certificate an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This end's.
    Ours,
    /// The other end's.
    Theirs,
}

/// Dials `expected` at `address` and gives up after `deadline`.
///
/// The other end has shown a certificate of `expected`, but may not have looked at this end's yet: only an answer to a first
/// message says that it accepts. Until then errors come from the stream; [`explain`] has words for them.
///
/// # Errors
/// When no answer comes in time, or one of another peer than `expected`.
pub async fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    expected: PeerIdentity,
    deadline: Duration,
) -> Result<Connection, ConnectError> {
    let dialling = endpoint
        .connect(address, &expected.server_name())
        .map_err(|error| ConnectError::Local {
            address,
            reason: error.to_string(),
        })?;
    let connection = match timeout(deadline, dialling).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(failed(address, expected, deadline, error)),
        Err(_) => {
            return Err(ConnectError::Unreachable {
                address,
                after: deadline,
            });
        }
    };
    // TLS has compared the name already. This compares what the name means.
    let found = identity_of(&connection).ok();
    if found == Some(expected) {
        Ok(connection)
    } else {
        connection.close(REFUSED, format!("expected {expected}").as_bytes());
        Err(ConnectError::WrongPeer {
            address,
            expected,
            found,
        })
    }
}

fn failed(address: SocketAddr, expected: PeerIdentity, after: Duration, error: ConnectionError) -> ConnectError {
    let reason = explain(&error);
    // What TLS said at this end; what it says at the other end is not sent, only its alert.
    let (ours, alert) = match &error {
        ConnectionError::TimedOut => return ConnectError::Unreachable { address, after },
        ConnectionError::VersionMismatch => return ConnectError::OtherProtocol { address, reason },
        ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
            return ConnectError::Busy { address };
        }
        ConnectionError::ConnectionClosed(close) => (None, Alert::of(close.error_code)),
        ConnectionError::TransportError(error) => (Some(&error.reason), Alert::of(error.code)),
        ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => return ConnectError::Lost { address, reason },
    };
    match alert {
        Some(Alert::OtherProtocol) => ConnectError::OtherProtocol { address, reason },
        // This end verifies the authority before the name, so the certificate is of this job.
        Some(Alert::BadCertificate) if ours.is_some_and(|reason| reason.contains("not valid for name")) => {
            ConnectError::WrongPeer {
                address,
                expected,
                found: ours.and_then(|reason| presented(reason)),
            }
        }
        Some(Alert::Expired) => {
            let whose = if ours.is_some() { Whose::Theirs } else { Whose::Ours };
            ConnectError::NotValidNow { address, whose, reason }
        }
        Some(Alert::BadCertificate | Alert::OtherAuthority | Alert::WrongUse | Alert::NoCertificate) => {
            ConnectError::Refused { address, reason }
        }
        Some(Alert::Other(_)) | None => ConnectError::Lost { address, reason },
    }
}

/// The peer that TLS's words about a wrong name mention. Only for a message: nothing depends on it.
fn presented(reason: &str) -> Option<PeerIdentity> {
    reason
        .split('"')
        .skip_while(|part| !part.contains("only valid for"))
        .find_map(|part| PeerIdentity::parse(part).ok())
}

fn found_words(found: Option<&PeerIdentity>) -> String {
    found.map_or_else(|| "another process".to_owned(), ToString::to_string)
}

/// Why an attempt to connect was turned away. The caller logs it and goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The handshake failed.
    #[error("{from} could not connect: {reason}")]
    Handshake {
        /// The client's address.
        from: SocketAddr,
        /// Why, and what to do.
        reason: String,
    },
    /// The handshake took too long.
    #[error("{from} did not finish its handshake within {after:?}")]
    TooSlow {
        /// The client's address.
        from: SocketAddr,
        /// How long it had.
        after: Duration,
    },
    /// The handshake was given up, since others needed its place.
    #[error("{from} had not finished its handshake when others needed its place")]
    MadeWay {
        /// The client's address.
        from: SocketAddr,
    },
    /// The certificate names no process of a job.
    #[error("{from}: {source}")]
    Identity {
        /// The client's address.
        from: SocketAddr,
        /// What is wrong with it.
        source: IdentityError,
    },
    /// It is of another job.
    #[error("{from} is {found}; expected one of job {}", .expected.job)]
    OtherJob {
        /// The client's address.
        from: SocketAddr,
        /// The client, by its certificate.
        found: PeerIdentity,
        /// This end.
        expected: PeerIdentity,
    },
    /// The client's role may not dial this end's.
    #[error("{from} is {found}; a process of its role may not connect to the {server}")]
    NotAllowed {
        /// The client's address.
        from: SocketAddr,
        /// The client, by its certificate.
        found: PeerIdentity,
        /// This end's role.
        server: Role,
    },
}

/// Finishes the handshake of `knock` within `deadline` and says which peer it is. `own` is this end.
///
/// # Errors
/// When the handshake fails, or the peer has no business here; it is told why.
pub async fn accept(
    knock: Knock,
    own: impl Into<PeerIdentity>,
    deadline: Duration,
) -> Result<(Connection, PeerIdentity), AcceptError> {
    let connection = handshake(knock, deadline).await?;
    let peer = known(&connection, own.into())?;
    Ok((connection, peer))
}

/// A process that has come to the coordinator.
#[derive(Debug)]
pub enum Visitor {
    /// A process with a certificate of the job, which may speak to the coordinator.
    Peer(Connection, PeerIdentity),
    /// A process that wants a certificate. Nothing else is known of it.
    Stranger(Connection),
}

/// Like [`accept`], at the coordinator's endpoint. A process without a certificate gets in only to enrol.
///
/// # Errors
/// When the handshake fails, or the peer has no business here; it is told why.
pub async fn receive(knock: Knock, own: impl Into<PeerIdentity>, deadline: Duration) -> Result<Visitor, AcceptError> {
    let connection = handshake(knock, deadline).await?;
    if purpose_is(&connection, Purpose::Enrolment) {
        return Ok(Visitor::Stranger(connection));
    }
    let peer = known(&connection, own.into())?;
    Ok(Visitor::Peer(connection, peer))
}

async fn handshake(knock: Knock, deadline: Duration) -> Result<Connection, AcceptError> {
    let Knock { incoming, place } = knock;
    let from = incoming.remote_address();
    let failed = |error: &ConnectionError| AcceptError::Handshake {
        from,
        reason: explain(error),
    };
    let connecting = incoming.accept().map_err(|error| failed(&error))?;
    let error = tokio::select! {
        biased;
        done = timeout(deadline, connecting) => match done {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => failed(&error),
            Err(_) => AcceptError::TooSlow { from, after: deadline },
        },
        () = place.wanted() => AcceptError::MadeWay { from },
    };
    // Its memory is free only then, and so is its place.
    tokio::spawn(async move {
        sleep(LEAVING_TIME).await;
        drop(place);
    });
    Err(error)
}

fn purpose_is(connection: &Connection, purpose: Purpose) -> bool {
    connection
        .handshake_data()
        .and_then(|data| data.downcast::<HandshakeData>().ok())
        .is_some_and(|data| data.protocol.as_deref() == Some(purpose.protocol()))
}

/// The peer, if it may be here; otherwise it is told why not.
fn known(connection: &Connection, own: PeerIdentity) -> Result<PeerIdentity, AcceptError> {
    admitted(connection, own).inspect_err(|error| connection.close(REFUSED, error.to_string().as_bytes()))
}

fn admitted(connection: &Connection, own: PeerIdentity) -> Result<PeerIdentity, AcceptError> {
    let from = connection.remote_address();
    let found = identity_of(connection).map_err(|source| AcceptError::Identity { from, source })?;
    if found.job != own.job {
        Err(AcceptError::OtherJob {
            from,
            found,
            expected: own,
        })
    } else if !may_connect(found.role, own.role) {
        Err(AcceptError::NotAllowed {
            from,
            found,
            server: own.role,
        })
    } else {
        Ok(found)
    }
}
