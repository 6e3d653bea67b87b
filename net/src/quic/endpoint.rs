//! Endpoints: a UDP socket with its buffers, TLS, and the bounds of what peers may cost.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{AsyncUdpSocket, ClientConfig, Endpoint, IdleTimeout, Runtime, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};

use super::crypto::{self, Clients};
use super::limits::{
    GOODBYE, IDLE_TIMEOUT, INCOMING_BYTES, INCOMING_BYTES_TOTAL, KEEP_ALIVE, MAX_INCOMING, SOCKET_BUFFER_BYTES,
};
use super::path::Path;
use super::purpose::Purpose;
use super::reach::Reach;
use super::reset::ResetKey;
use crate::environment::Environment;
use crate::trust::RotatingCredentials;

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there. The user chooses another port.
    #[error("cannot listen on {address}/udp: the port is taken; choose another port or stop the process that holds it")]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address is of another host. The user chooses one of this host's.
    #[error("cannot listen on {address}/udp: this host has no such address; choose one that it has, or 127.0.0.1")]
    NotThisHost {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system forbids it. The user chooses another port or asks for the permission.
    #[error("cannot listen on {address}/udp: permission denied; choose a port of 1024 or above, or ask for the permission")]
    PermissionDenied {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system failed otherwise. The caller gives up, or tries again if it knows better.
    #[error("cannot listen on {address}/udp: {source}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The credentials are not usable. The caller gives up: they were made or carried wrongly.
    #[error("the credentials cannot be used: {reason}; start the process with credentials that the job's authority issued")]
    Credentials {
        /// What is wrong with them.
        reason: String,
    },
}

/// An endpoint at `address` that accepts connections from certified peers and dials others with the same credentials. It follows
/// their renewal.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the address cannot be had or the credentials cannot be used.
pub fn bind_server(
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    address: SocketAddr,
) -> Result<Endpoint, BindError> {
    bind_server_on(&Environment::Host, credentials, purpose, address)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`bind_server`].
pub fn bind_server_on(
    environment: &Environment,
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    address: SocketAddr,
) -> Result<Endpoint, BindError> {
    bind_with(
        environment,
        credentials,
        purpose,
        Some(Clients::Certified),
        Local::at(address),
    )
}

/// The endpoint of a worker or checkpoint actor on `environment`, whose farthest peer is within `reach`: as [`bind_server`] otherwise.
///
/// # Errors
/// As [`bind_server`].
pub fn bind_peer_on(
    environment: &Environment,
    credentials: impl Into<RotatingCredentials>,
    address: SocketAddr,
    reach: Reach,
) -> Result<Endpoint, BindError> {
    let local = Local {
        reach,
        ..Local::at(address)
    };
    bind_with(environment, credentials, Purpose::Peer, Some(Clients::Certified), local)
}

/// The coordinator's endpoint: accepts control connections from certified peers, and enrolments from strangers; see
/// [`super::receive`].
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the address cannot be had or the credentials cannot be used.
pub fn bind_coordinator(
    environment: &Environment,
    credentials: impl Into<RotatingCredentials>,
    address: SocketAddr,
    resets: ResetKey,
) -> Result<Endpoint, BindError> {
    let local = Local {
        resets: Some(resets),
        ..Local::at(address)
    };
    bind_with(environment, credentials, Purpose::Control, Some(Clients::Strangers), local)
}

/// An endpoint that dials `server` from any port: at loopback if the server is there, else at every address of this host.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When no port can be had or the credentials cannot be used.
pub fn bind_client(
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    server: SocketAddr,
) -> Result<Endpoint, BindError> {
    bind_client_on(&Environment::Host, credentials, purpose, server)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`bind_client`].
pub fn bind_client_on(
    environment: &Environment,
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    server: SocketAddr,
) -> Result<Endpoint, BindError> {
    bind_with(environment, credentials, purpose, None, Local::towards(server))
}

/// An endpoint without a certificate, to enrol: it dials the coordinator at `server`, whose job's authority is `authority`.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When no port can be had or the authority's certificate cannot be read.
pub fn bind_stranger(authority: CertificateDer<'static>, server: SocketAddr) -> Result<Endpoint, BindError> {
    bind_stranger_on(&Environment::Host, authority, server)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`bind_stranger`].
pub(crate) fn bind_stranger_on(
    environment: &Environment,
    authority: CertificateDer<'static>,
    server: SocketAddr,
) -> Result<Endpoint, BindError> {
    let client = crypto::stranger(environment, authority)?;
    open(environment, Purpose::Enrolment, client, None, Local::towards(server))
}

/// Where an endpoint that dials `server` is bound.
#[must_use]
pub fn towards(server: SocketAddr) -> IpAddr {
    match server.ip() {
        ip if ip.is_loopback() && ip.is_ipv4() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// This end of an endpoint's connections.
struct Local {
    address: SocketAddr,
    /// Of the socket's buffers.
    wanted_bytes: usize,
    /// How far its peers are.
    reach: Reach,
    /// By default one of this life alone.
    resets: Option<ResetKey>,
}

impl Local {
    fn at(address: SocketAddr) -> Self {
        Self {
            address,
            wanted_bytes: SOCKET_BUFFER_BYTES,
            reach: Reach::default(),
            resets: None,
        }
    }

    /// Any port from which `server` can be dialled.
    fn towards(server: SocketAddr) -> Self {
        Self::at(SocketAddr::new(towards(server), 0))
    }
}

#[cfg(test)]
pub(super) fn bind(
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    address: SocketAddr,
    clients: Option<Clients>,
    wanted_bytes: usize,
) -> Result<Endpoint, BindError> {
    let local = Local {
        wanted_bytes,
        ..Local::at(address)
    };
    bind_with(&Environment::Host, credentials, purpose, clients, local)
}

/// An endpoint that takes control connections, or enrolments, and of each stream only so many bytes that it has not read: a peer that says
/// more is in the middle of it until this end reads, or stops.
///
/// # Errors
/// As [`bind_server`].
#[cfg(any(test, feature = "refusing"))]
pub(crate) fn bind_narrow(
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    (address, window): (SocketAddr, u32),
) -> Result<Endpoint, BindError> {
    let rotating = credentials.into();
    let crypto = crypto::server(&Environment::Host, &rotating, purpose, Clients::Strangers)?;
    let mut transport = TransportConfig::default();
    purpose.bound(&mut transport, window, Reach::default());
    transport.stream_receive_window(quinn::VarInt::from_u32(window));
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Endpoint::server(config, address).map_err(|source| refused(address, source))
}

/// An endpoint that takes connections of these clients, if of any.
fn bind_with(
    environment: &Environment,
    credentials: impl Into<RotatingCredentials>,
    purpose: Purpose,
    clients: Option<Clients>,
    local: Local,
) -> Result<Endpoint, BindError> {
    let rotating = credentials.into();
    rotating.current().check().map_err(|error| BindError::Credentials {
        reason: error.to_string(),
    })?;
    let client = crypto::client(environment, &rotating, purpose)?;
    let server = clients.map(|clients| crypto::server(environment, &rotating, purpose, clients));
    open(environment, purpose, client, server.transpose()?, local)
}

fn open(
    environment: &Environment,
    purpose: Purpose,
    client: QuicClientConfig,
    server: Option<QuicServerConfig>,
    local: Local,
) -> Result<Endpoint, BindError> {
    let Local {
        address,
        wanted_bytes,
        reach,
        resets,
    } = local;
    let resets = resets.map_or_else(ResetKey::random, Ok);
    let mut config = resets.map_err(|source| refused(address, source))?.config();
    let opened = Opened::on(environment, address, wanted_bytes).map_err(|source| refused(address, source))?;
    let Opened {
        socket,
        buffer_bytes,
        seed,
    } = opened;
    let path = Path::of(address.ip(), buffer_bytes, reach);
    tracing::debug!(%address, %purpose, ?path, "binding");

    let server = server.map(|crypto| {
        // Widened once the peer is known.
        let bound = |transport: &mut _| purpose.bound_newcomers(transport, path.stream_bytes());
        let transport = transport(environment, path, bound);
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(Arc::new(transport))
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_TOTAL);
        config
    });
    let mut client = ClientConfig::new(Arc::new(client));
    let bound = |transport: &mut _| purpose.bound(transport, path.stream_bytes(), reach);
    let transport = transport(environment, path, bound);
    client.transport_config(Arc::new(transport));

    config
        .max_udp_payload_size(path.accepted_bytes(address.ip()))
        .expect("a UDP payload's largest size is within QUIC's bounds")
        .rng_seed(seed);
    let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime));
    let mut endpoint = endpoint.map_err(|source| refused(address, source))?;
    endpoint.set_default_client_config(client);
    Ok(endpoint)
}

fn transport(environment: &Environment, path: Path, bound: impl FnOnce(&mut TransportConfig)) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(
            IdleTimeout::try_from(IDLE_TIMEOUT).expect("ten seconds fit a QUIC timeout"),
        ))
        .keep_alive_interval(Some(KEEP_ALIVE));
    bound(&mut transport);
    path.fit(&mut transport);
    if let Some(congestion) = environment.congestion() {
        transport.congestion_controller_factory(congestion);
    }
    transport
}

/// A socket to make an endpoint over.
struct Opened {
    socket: Arc<dyn AsyncUdpSocket>,
    /// For how many bytes of buffer it is good in both directions.
    buffer_bytes: usize,
    /// What the endpoint's random choices follow from; the system's randomness if none.
    seed: Option<[u8; 32]>,
}

impl Opened {
    fn on(environment: &Environment, address: SocketAddr, wanted_bytes: usize) -> Result<Self, io::Error> {
        match environment {
            Environment::Host => {
                let (socket, buffer_bytes) = socket(address, wanted_bytes)?;
                Ok(Self {
                    socket: TokioRuntime.wrap_udp_socket(socket)?,
                    buffer_bytes,
                    seed: None,
                })
            }
            Environment::Simulated(given) => Ok(Self {
                socket: given.socket(address)?,
                buffer_bytes: wanted_bytes,
                seed: Some(given.seed()),
            }),
        }
    }
}

/// A bound socket, and for how many bytes of buffer it is good in both directions.
fn socket(address: SocketAddr, wanted_bytes: usize) -> Result<(UdpSocket, usize), io::Error> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // The kernel gives what it allows without a word; an error here would only mean the same.
    let _ = socket.set_recv_buffer_size(wanted_bytes);
    let _ = socket.set_send_buffer_size(wanted_bytes);
    let given = socket.recv_buffer_size()?.min(socket.send_buffer_size()?);
    socket.bind(&address.into())?;
    // Linux doubles what it was asked for, for its own bookkeeping, and reports the double.
    let payload = if cfg!(target_os = "linux") { given / 2 } else { given };
    Ok((socket.into(), payload))
}

fn refused(address: SocketAddr, source: io::Error) -> BindError {
    let kind = source.kind();
    if kind == io::ErrorKind::AddrInUse {
        BindError::AddressInUse { address }
    } else if kind == io::ErrorKind::AddrNotAvailable {
        BindError::NotThisHost { address }
    } else if kind == io::ErrorKind::PermissionDenied {
        BindError::PermissionDenied { address }
    } else {
        BindError::Other { address, source }
    }
}

/// Closes an endpoint, and waits a little until its peers have been told.
pub async fn close(endpoint: &Endpoint, reason: &str) {
    endpoint.close(0_u32.into(), reason.as_bytes());
    // A peer that has not heard of it by now is dead, or finds out by itself.
    let _ = tokio::time::timeout(GOODBYE, endpoint.wait_idle()).await;
}
