//! Trades a join file for credentials, and keeps them for the next time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use sardana_net::enrol::enrol_kept;
use sardana_net::enrol::{self, EnrolError, Enrolled, JoinFile, Keyring, KeyringError, Moment};
use sardana_net::trust::{Role, RotatingCredentials};
use sardana_net::whereabouts::Whereabouts;

/// Reads the join file at `path` and trades it for credentials of `role`, with a key that is made here and never leaves. Nothing is kept: the
/// next time counts as another use. See [`enrol_kept`].
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the file cannot be used, the coordinator is not there, or it refuses; the message says what to do.
pub async fn enrol(path: &Path, role: Role) -> Result<Enrolled, EnrolError> {
    let join = JoinFile::read(path, Moment::of(SystemTime::now()))?;
    enrol::enrol(&join, role).await
}

/// Why there is no keyring.
#[derive(Debug, thiserror::Error)]
pub enum NoKeyring {
    /// Where this user's files are is not said.
    #[error(
        "neither XDG_STATE_HOME nor HOME is set to an absolute path, so that there is no place for the key of the join file; set one, or \
         give a folder: --keyring DIR"
    )]
    NoHome,
    /// It cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
}

/// The keyring of this user on this host: in `sardana/keyring` of `XDG_STATE_HOME`, or of `~/.local/state`. It is made if it is not there.
///
/// # Errors
/// When others can enter it, or there is no place for it.
pub fn default_keyring() -> Result<Keyring, NoKeyring> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let folder = state.ok_or(NoKeyring::NoHome)?.join("sardana/keyring");
    Ok(Keyring::open(&folder)?)
}

/// The address of this host from which `peer` is reached, and so at which others on the way there reach this host. Sends nothing.
///
/// # Errors
/// When no way leads there.
pub fn local_ip_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Why an agent or a checkpoint actor does not start. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// The join file was for something else.
    #[error(
        "the join file is for the role {found}, expected {expected}; ask for another one: sardana invite --role {expected}"
    )]
    Role {
        /// The role of the process.
        expected: Role,
        /// The role of the file.
        found: Role,
    },
    /// No way leads to the coordinator.
    #[error("no way leads to the coordinator at {coordinator}: {reason}; see whether this host's network is up")]
    NoWay {
        /// The coordinator's address.
        coordinator: SocketAddr,
        /// What the system said.
        reason: String,
    },
}

/// What an agent or a checkpoint actor starts with.
pub(super) struct Arrival {
    pub(super) credentials: RotatingCredentials,
    pub(super) coordinator: Whereabouts,
    pub(super) listen: SocketAddr,
}

/// Takes what a join file for `role` was traded for. The process listens at `listen`, or at the address from which the coordinator is reached.
pub(super) fn arrive(enrolled: Enrolled, role: Role, listen: Option<IpAddr>) -> Result<Arrival, ArrivalError> {
    let Enrolled {
        credentials,
        coordinator,
        kept,
    } = enrolled;
    if credentials.role() != role {
        let (expected, found) = (role, credentials.role());
        return Err(ArrivalError::Role { expected, found });
    }
    let towards = || {
        let coordinator = coordinator.found();
        local_ip_towards(coordinator).map_err(|error| ArrivalError::NoWay {
            coordinator,
            reason: error.to_string(),
        })
    };
    let listen = SocketAddr::new(listen.map_or_else(towards, Ok)?, 0);
    let credentials = RotatingCredentials::from(credentials);
    if let Some(kept) = kept {
        kept.follow(&credentials);
    }
    Ok(Arrival {
        credentials,
        coordinator,
        listen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(local_ip_towards(peer).unwrap(), Ipv4Addr::LOCALHOST);
    }
}
