//! Getting in with a join file: looks for the coordinator, and has credentials that are good there: new ones, or those that a keyring has.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::errand::Errand;
use super::exchange::{AskError, DialError, Stranger};
use super::join_file::{JoinFile, JoinFileError};
use super::keyring::{Kept, Keyring, KeyringError};
use super::limits::{ENROL_AGAIN, ENROL_PATIENCE};
use crate::environment::Environment;
use crate::quic::{BindError, ConnectError};
use crate::trust::{AuthorityError, Credentials, CredentialsError, Moment, PeerIdentity, PendingKey, Role};
use crate::whereabouts::Whereabouts;

/// Credentials of a job, and where its coordinator is.
#[derive(Debug)]
pub struct Enrolled {
    /// What was got.
    pub credentials: Credentials,
    /// Where the coordinator answered, and where else it may be some day.
    pub coordinator: Whereabouts,
    /// Where their renewals are kept, if somewhere.
    pub kept: Option<Kept>,
}

/// Why a process could not enrol. The user does what the message says.
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
        /// The role that is wanted.
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
    /// The process that answers is not the coordinator of the join file's job.
    #[error("the coordinator cannot be trusted: {0}; or the join file is of another job: ask for a new one")]
    NotTrusted(#[source] ConnectError),
    /// The coordinator refused, and said why.
    #[error("the coordinator at {address} refused: {reason}")]
    Refused {
        /// The coordinator's address.
        address: SocketAddr,
        /// Expected, found, and what to do.
        reason: String,
    },
    /// What the join file was used with cannot be kept, or what is kept cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The certificate is not the one asked for. The coordinator is broken.
    #[error("the coordinator at {address} sent a certificate that cannot be used: {source}")]
    Certificate {
        /// The coordinator's address.
        address: SocketAddr,
        /// What is wrong with it.
        #[source]
        source: CredentialsError,
    },
}

/// Trades the join file for credentials of `role` with a new key, and keeps them nowhere.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// See [`EnrolError`].
pub fn enrol(join: &JoinFile, role: Role) -> BoxFuture<'_, Result<Enrolled, EnrolError>> {
    enrol_on(&Environment::Host, join, role)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`enrol`].
pub fn enrol_on<'a>(
    environment: &'a Environment,
    join: &'a JoinFile,
    role: Role,
) -> BoxFuture<'a, Result<Enrolled, EnrolError>> {
    Box::pin(async move {
        is_for(join, role)?;
        let errand = Errand::invited(environment, join, PendingKey::generate()?)?;
        let (coordinator, credentials) = find(environment, join, &errand).await?;
        Ok(Enrolled {
            credentials,
            coordinator,
            kept: None,
        })
    })
}

/// Has credentials of `role` by the join file at `path`: those that `keyring` has, if they are good; else new ones for the keyring's key,
/// which is made and kept before it is first used. So one file serves its holder until it expires, and counts as used once.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// See [`EnrolError`].
pub fn enrol_kept<'a>(path: &'a Path, role: Role, keyring: &'a Keyring) -> BoxFuture<'a, Result<Enrolled, EnrolError>> {
    Box::pin(enrol_with(path, role, keyring, false))
}

/// The same, when the coordinator does not take what the keyring has although it seems good here: the clocks differ.
///
/// # Errors
/// As [`enrol_kept`].
pub fn enrol_anew<'a>(path: &'a Path, role: Role, keyring: &'a Keyring) -> BoxFuture<'a, Result<Enrolled, EnrolError>> {
    Box::pin(enrol_with(path, role, keyring, true))
}

async fn enrol_with(path: &Path, role: Role, keyring: &Keyring, anew: bool) -> Result<Enrolled, EnrolError> {
    let join = JoinFile::read_any(path)?;
    is_for(&join, role)?;
    let now = SystemTime::now();
    let mut held = keyring.hold(&join, Moment::of(now))?;
    if anew {
        held.forget();
    }
    let errand = held.errand(&join, join.is_good(path, Moment::of(now)), now)?;
    let (coordinator, credentials) = find(&Environment::Host, &join, &errand).await?;
    if let Errand::Ask(_) = errand {
        held.keep(&credentials, SystemTime::now())?;
    }
    Ok(Enrolled {
        credentials,
        coordinator,
        kept: held.kept(),
    })
}

fn is_for(join: &JoinFile, role: Role) -> Result<(), EnrolError> {
    let found = join.invitation.role();
    if found == role {
        Ok(())
    } else {
        Err(EnrolError::Role { expected: role, found })
    }
}

/// One attempt's end: try again, or not.
enum Attempt {
    Again(String),
    Never(EnrolError),
}

/// Looks for the coordinator at the join file's addresses, and does the errand there.
async fn find(
    environment: &Environment,
    join: &JoinFile,
    errand: &Errand,
) -> Result<(Whereabouts, Credentials), EnrolError> {
    let give_up = Instant::now() + ENROL_PATIENCE;
    let mut last = "it names no address".to_owned();
    loop {
        for &address in &join.coordinators {
            match attempt(environment, join, address, errand).await {
                Ok(credentials) => return Ok((Whereabouts::new(address, &join.coordinators), credentials)),
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
        match Stranger::dial(&Environment::Host, join.authority(), join.invitation.job(), address).await {
            Ok(stranger) => {
                stranger.leave().await;
                return Ok(true);
            }
            Err(DialError::Connect(ConnectError::Busy { .. })) => return Ok(true),
            Err(DialError::Bind(error)) => return Err(error),
            Err(DialError::Connect(_)) => {}
        }
    }
    Ok(false)
}

async fn attempt(
    environment: &Environment,
    join: &JoinFile,
    address: SocketAddr,
    errand: &Errand,
) -> Result<Credentials, Attempt> {
    let stranger = Stranger::dial(environment, join.authority(), join.invitation.job(), address)
        .await
        .map_err(|error| match error {
            DialError::Bind(error) => Attempt::Never(error.into()),
            DialError::Connect(error) if error.may_pass() => Attempt::Again(error.to_string()),
            DialError::Connect(error) => Attempt::Never(EnrolError::NotTrusted(error)),
        })?;
    let (key, asked) = match errand {
        Errand::Show(credentials) => {
            stranger.leave().await;
            return Ok(credentials.clone());
        }
        Errand::Ask(asking) => (&asking.key, &asking.asked),
    };
    let answered = stranger.ask(asked).await;
    stranger.leave().await;
    let certificate = answered.map_err(|error| match error {
        AskError::Again(why) => Attempt::Again(format!("{address}: {why}")),
        AskError::Refused(reason) => Attempt::Never(EnrolError::Refused { address, reason }),
    })?;
    let wrong = |source| Attempt::Never(EnrolError::Certificate { address, source });
    let credentials = key.certified(&join.authority(), certificate).map_err(wrong)?;
    let (found, expected) = (credentials.identity(), expected(join, &credentials));
    if found == expected {
        Ok(credentials)
    } else {
        Err(wrong(CredentialsError::Mismatch { expected, found }))
    }
}

/// The identity that the certificate should name. The coordinator chooses the id.
fn expected(join: &JoinFile, credentials: &Credentials) -> PeerIdentity {
    PeerIdentity {
        job: join.invitation.job(),
        role: join.invitation.role(),
        id: credentials.id(),
    }
}
