//! Endpoints over real loopback sockets: which clients get in, what the others are told, and that bytes arrive.

mod clocks;
mod crowds;
mod far;
mod line;
mod lossy;

use std::future::{Future, ready};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint};
use sardana_protocol::codec::{LARGEST_LIMIT, decode, encode};
use sardana_protocol::words::JobId;

use super::crypto::Clients;
use super::endpoint::bind;
use super::limits::{CONNECT_DEADLINE, HANDSHAKE_DEADLINE, RETRY_ABOVE_CONNECTIONS, SOCKET_BUFFER_BYTES};
use super::{
    AcceptError, BindError, ConnectError, Door, Purpose, accept, bind_client, bind_server, connect, crypto, explain,
};
use crate::trust::{Authority, Credentials, PeerIdentity, Role, identity_of};

pub(crate) const JOB: JobId = JobId::new([1; 16]);
pub(crate) const OTHER_JOB: JobId = JobId::new([2; 16]);
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) fn authority(job: JobId) -> Authority {
    Authority::new(job).unwrap()
}

/// A server's endpoint and its address.
fn server(credentials: &Credentials, purpose: Purpose) -> (Endpoint, SocketAddr) {
    let endpoint = bind_server(credentials, purpose, ANY_PORT).unwrap();
    let address = endpoint.local_addr().unwrap();
    (endpoint, address)
}

async fn accept_one(endpoint: &Endpoint, own: &Credentials) -> Result<(Connection, PeerIdentity), AcceptError> {
    let knock = Door::new(endpoint.clone()).next().await.expect("the endpoint is open");
    accept(knock, own, HANDSHAKE_DEADLINE).await
}

/// Dials and accepts at once, as two processes would.
pub(crate) async fn meet(
    server: &Credentials,
    client: &Credentials,
    expected: PeerIdentity,
) -> (
    Result<Connection, ConnectError>,
    Result<(Connection, PeerIdentity), AcceptError>,
    [Endpoint; 2],
) {
    let (listening, address) = self::server(server, Purpose::Control);
    let dialling = bind_client(client, Purpose::Control, address).unwrap();
    let (dialled, accepted) = tokio::join!(
        connect(&dialling, address, expected, CONNECT_DEADLINE),
        accept_one(&listening, server)
    );
    (dialled, accepted, [listening, dialling])
}

#[tokio::test]
async fn each_end_knows_the_other() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    for role in [Role::Worker, Role::Agent] {
        let client = authority.issue(role, 77).unwrap();
        let (dialled, accepted, _endpoints) = meet(&coordinator, &client, PeerIdentity::coordinator(JOB)).await;
        let (connection, peer) = accepted.unwrap();
        assert_eq!(peer, PeerIdentity { job: JOB, role, id: 77 });
        assert_eq!(identity_of(&connection), Ok(peer));
        assert_eq!(identity_of(&dialled.unwrap()), Ok(PeerIdentity::coordinator(JOB)));
    }
}

#[tokio::test]
async fn workers_reach_each_other_from_the_endpoints_they_listen_on() {
    let authority = authority(JOB);
    let (one, two) = (
        authority.issue(Role::Worker, 1).unwrap(),
        authority.issue(Role::Worker, 2).unwrap(),
    );
    let (listening, address) = server(&two, Purpose::Peer);
    let (dialling, own_address) = server(&one, Purpose::Peer);
    let (dialled, accepted) = tokio::join!(
        connect(&dialling, address, two.identity(), CONNECT_DEADLINE),
        accept_one(&listening, &two)
    );
    dialled.unwrap();
    let (connection, peer) = accepted.unwrap();
    assert_eq!(peer, one.identity());
    assert_eq!(connection.remote_address(), own_address);
}

#[tokio::test]
async fn a_server_of_another_job_is_refused() {
    let coordinator = authority(OTHER_JOB).issue(Role::Coordinator, 0).unwrap();
    let worker = authority(JOB).issue(Role::Worker, 1).unwrap();
    // Even a server that claims the very name that the worker expects.
    let impostor = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    for server in [coordinator, impostor] {
        let (dialled, accepted, _endpoints) = meet(&server, &worker, PeerIdentity::coordinator(JOB)).await;
        let error = dialled.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("another job"), "{error}");
        let error = accepted.unwrap_err().to_string();
        assert!(
            error.contains("the peer refused this end") && error.contains("another job"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_client_of_another_job_is_refused() {
    let coordinator = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    for stranger in [OTHER_JOB, JOB] {
        let worker = authority(stranger).issue(Role::Worker, 1).unwrap().believing(&coordinator);
        let (dialled, accepted, _endpoints) = meet(&coordinator, &worker, PeerIdentity::coordinator(JOB)).await;
        let error = accepted.unwrap_err().to_string();
        assert!(
            error.contains("this end refused the peer") && error.contains("another job"),
            "{error}"
        );
        // The dialling end believes itself connected; the refusal comes later.
        let told = explain(&dialled.unwrap().closed().await);
        assert!(
            told.contains("the peer refused this end") && told.contains("another job"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let coordinator = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    let (listening, address) = server(&coordinator, Purpose::Control);
    let mut tls = rustls::ClientConfig::builder_with_provider(crate::environment::Environment::Host.cryptography())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(crypto::roots(coordinator.authority()).unwrap())
        .with_no_client_auth();
    tls.alpn_protocols = vec![Purpose::Control.protocol().to_vec()];
    let mut anonymous = Endpoint::client(ANY_PORT).unwrap();
    anonymous.set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap())));
    let name = coordinator.identity().server_name();
    let (dialled, accepted) = tokio::join!(
        anonymous.connect(address, &name).unwrap(),
        accept_one(&listening, &coordinator)
    );
    let error = accepted.unwrap_err();
    assert!(matches!(error, AcceptError::Handshake { .. }), "{error}");
    assert!(error.to_string().contains("showed no certificate"), "{error}");
    let told = explain(&dialled.unwrap().closed().await);
    assert!(told.contains("showed no certificate"), "{told}");
}

#[tokio::test]
async fn the_wrong_peer_of_the_right_job_is_refused() {
    let authority = authority(JOB);
    let worker = authority.issue(Role::Worker, 5).unwrap();
    let another = PeerIdentity {
        id: 6,
        ..worker.identity()
    };
    for expected in [PeerIdentity::coordinator(JOB), another] {
        let (dialled, accepted, _endpoints) = meet(&worker, &authority.issue(Role::Worker, 9).unwrap(), expected).await;
        let error = dialled.unwrap_err();
        let found = Some(worker.identity());
        assert!(
            matches!(error, ConnectError::WrongPeer { expected: wanted, found: is, .. } if wanted == expected && is == found),
            "{error}"
        );
        accepted.unwrap_err();
    }
}

#[tokio::test]
async fn a_role_that_may_not_connect_is_told_so() {
    let authority = authority(JOB);
    let worker = authority.issue(Role::Worker, 5).unwrap();
    let agent = authority.issue(Role::Agent, 1).unwrap();
    let (dialled, accepted, _endpoints) = meet(&worker, &agent, worker.identity()).await;
    let error = accepted.unwrap_err();
    assert!(matches!(error, AcceptError::NotAllowed { found, server: Role::Worker, .. } if found == agent.identity()));
    let told = explain(&dialled.unwrap().closed().await);
    assert!(told.contains("may not connect to the worker"), "{told}");
}

#[tokio::test]
async fn the_other_purpose_is_refused() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let (listening, address) = server(&coordinator, Purpose::Control);
    let dialling = bind_client(authority.issue(Role::Worker, 1).unwrap(), Purpose::Peer, address).unwrap();
    let (dialled, accepted) = tokio::join!(
        connect(&dialling, address, coordinator.identity(), CONNECT_DEADLINE),
        accept_one(&listening, &coordinator)
    );
    accepted.unwrap_err();
    let error = dialled.unwrap_err();
    assert!(matches!(error, ConnectError::OtherProtocol { .. }), "{error}");
    assert!(error.to_string().contains("protocol versions"), "{error}");
}

#[tokio::test]
async fn a_server_without_room_is_busy() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let (listening, address) = server(&coordinator, Purpose::Control);
    let dialling = bind_client(authority.issue(Role::Worker, 1).unwrap(), Purpose::Control, address).unwrap();
    let (dialled, ()) = tokio::join!(connect(&dialling, address, coordinator.identity(), CONNECT_DEADLINE), async {
        Door::new(listening.clone()).next().await.unwrap().refuse()
    });
    assert_eq!(dialled.unwrap_err(), ConnectError::Busy { address });
}

#[tokio::test]
async fn nobody_there_is_unreachable_after_the_deadline() {
    let authority = authority(JOB);
    let worker = authority.issue(Role::Worker, 1).unwrap();
    // A socket that is held but never read, so that no other process can come to listen there.
    let silent = std::net::UdpSocket::bind(ANY_PORT).unwrap();
    let address = silent.local_addr().unwrap();
    let dialling = bind_client(&worker, Purpose::Control, address).unwrap();
    let after = Duration::from_millis(50);
    let error = connect(&dialling, address, PeerIdentity::coordinator(JOB), after)
        .await
        .unwrap_err();
    assert_eq!(error, ConnectError::Unreachable { address, after });
    assert!(error.to_string().contains("50ms"), "{error}");
}

#[tokio::test]
async fn a_taken_or_foreign_address_says_what_to_do() {
    let coordinator = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    let (_listening, taken) = server(&coordinator, Purpose::Control);
    let error = bind_server(&coordinator, Purpose::Control, taken).unwrap_err();
    assert!(
        matches!(error, BindError::AddressInUse { address } if address == taken),
        "{error}"
    );
    assert!(error.to_string().contains("choose another port"), "{error}");
    // No host has TEST-NET-1 (RFC 5737).
    let foreign = SocketAddr::from(([192, 0, 2, 1], 0));
    let error = bind_server(&coordinator, Purpose::Control, foreign).unwrap_err();
    assert!(matches!(error, BindError::NotThisHost { .. }), "{error}");
}

#[tokio::test]
async fn unusable_credentials_are_noticed_before_the_network_is() {
    let coordinator = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    let bytes = encode(&coordinator, LARGEST_LIMIT).unwrap();
    // Damage at any place must end in an error or in working credentials, never in a panic.
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        if let Ok(credentials) = decode::<Credentials>(&damaged, LARGEST_LIMIT) {
            match bind_server(&credentials, Purpose::Control, ANY_PORT) {
                Ok(_) | Err(BindError::Credentials { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_control_peer_can_open_one_stream_and_no_more() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let worker = authority.issue(Role::Worker, 1).unwrap();
    let (dialled, accepted, _endpoints) = meet(&coordinator, &worker, coordinator.identity()).await;
    let (connection, _accepted) = (dialled.unwrap(), accepted.unwrap());
    let _stream = connection.open_bi().await.unwrap();
    assert!(is_pending(connection.open_bi()).await);
    assert!(is_pending(connection.open_uni()).await);
    assert_eq!(connection.max_datagram_size(), None);
}

async fn is_pending<T>(future: impl Future<Output = T>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = ready(()) => true,
    }
}

#[tokio::test]
async fn newcomers_under_load_prove_their_address() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let (listening, address) = server(&coordinator, Purpose::Control);
    let dialling = bind_client(authority.issue(Role::Worker, 1).unwrap(), Purpose::Control, address).unwrap();
    let door = Door::new(listening);
    let mut connections = Vec::new();
    for number in 0..RETRY_ABOVE_CONNECTIONS + 2 {
        let (dialled, accepted) =
            tokio::join!(connect(&dialling, address, coordinator.identity(), CONNECT_DEADLINE), async {
                let knock = door.next().await.unwrap();
                let proved = knock.is_proved();
                (proved, accept(knock, &coordinator, HANDSHAKE_DEADLINE).await)
            });
        assert_eq!(accepted.0, number > RETRY_ABOVE_CONNECTIONS, "connection {number}");
        connections.push((dialled.unwrap(), accepted.1.unwrap()));
    }
}

/// Sends `bytes` each way at once and checks every one.
async fn exchange(listen: SocketAddr, buffer_bytes: usize, bytes: usize) {
    let authority = authority(JOB);
    let (one, two) = (
        authority.issue(Role::Worker, 1).unwrap(),
        authority.issue(Role::Worker, 2).unwrap(),
    );
    let listening = bind(&one, Purpose::Peer, listen, Some(Clients::Certified), buffer_bytes).unwrap();
    let mut address = listening.local_addr().unwrap();
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let local = SocketAddr::new(address.ip(), 0);
    let dialling = bind(&two, Purpose::Peer, local, None, buffer_bytes).unwrap();
    let (dialled, accepted) = tokio::join!(
        connect(&dialling, address, one.identity(), CONNECT_DEADLINE),
        accept_one(&listening, &one)
    );
    let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap().0);
    tokio::join!(
        send(&dialled, bytes, 3),
        send(&accepted, bytes, 5),
        receive(&accepted, bytes, 3),
        receive(&dialled, bytes, 5)
    );
}

/// The `index`-th megabyte of what is sent with `salt`.
fn piece(index: usize, salt: u8) -> Vec<u8> {
    (0..1_usize << 20)
        .map(|at| (at % 251) as u8 ^ (index as u8).wrapping_mul(salt))
        .collect()
}

async fn send(connection: &Connection, bytes: usize, salt: u8) {
    let mut stream = connection.open_uni().await.unwrap();
    for index in 0..bytes >> 20 {
        stream.write_all(&piece(index, salt)).await.unwrap();
    }
    stream.finish().unwrap();
    assert_eq!(stream.stopped().await, Ok(None), "all was received");
}

async fn receive(connection: &Connection, bytes: usize, salt: u8) {
    let mut stream = connection.accept_uni().await.unwrap();
    let mut received = vec![0; 1 << 20];
    for index in 0..bytes >> 20 {
        stream.read_exact(&mut received).await.unwrap();
        assert!(received == piece(index, salt), "megabyte {index}");
    }
    assert_eq!(stream.read(&mut received).await, Ok(None), "and no more");
}

#[tokio::test]
async fn sixty_four_megabytes_each_way_over_loopback() {
    exchange(ANY_PORT, SOCKET_BUFFER_BYTES, 64 << 20).await;
}

#[tokio::test]
async fn bytes_arrive_where_the_kernel_gives_little_buffer() {
    exchange(ANY_PORT, 208 << 10, 64 << 20).await;
}

#[tokio::test]
async fn bytes_arrive_where_the_kernel_gives_almost_no_buffer() {
    exchange(ANY_PORT, 4 << 10, 1 << 20).await;
}

#[tokio::test]
async fn a_server_on_every_address_is_reached_over_loopback() {
    exchange(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), SOCKET_BUFFER_BYTES, 16 << 20).await;
}

#[tokio::test]
async fn bytes_arrive_over_ipv6_where_the_host_has_it() {
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if std::net::UdpSocket::bind(address).is_ok() {
        exchange(address, SOCKET_BUFFER_BYTES, 16 << 20).await;
    }
}
