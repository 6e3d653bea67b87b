//! Trades a join file for credentials.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::SystemTime;

use sardana_actors::enrol::{self, EnrolError, Enrolled, JoinFile, Moment};
use sardana_actors::trust::Role;

/// Reads the join file at `path` and trades it for credentials of `role`, with a key that is made here and never leaves.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the file cannot be used, the coordinator is not there, or it refuses; the message says what to do.
pub async fn enrol(path: &Path, role: Role) -> Result<Enrolled, EnrolError> {
    let join = JoinFile::read(path, Moment::of(SystemTime::now()))?;
    enrol::enrol(&join, role).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(local_ip_towards(peer).unwrap(), Ipv4Addr::LOCALHOST);
    }
}
