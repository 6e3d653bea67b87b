//! Strangers that say what they should not, too much, or nothing.

use std::future::ready;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, Endpoint};
use sardana_net::enrol::limits::{ENROL_FRAME_BYTES, MAX_ENROLMENTS};
use sardana_net::enrol::{COME_AGAIN, enrol};
use sardana_net::log::AT_ONCE;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_stranger, connect};
use sardana_net::trust::{PeerIdentity, Role};
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::write_frame;
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::messages::Hello;
use tokio::task::JoinSet;

use super::log::Log;
use super::raw::{JOB, LOOPBACK, Site, closed, soon};

/// A connection of a stranger that wants to enrol.
async fn stranger(site: &Site) -> (Endpoint, Connection) {
    let address = site.coordinator.address();
    let endpoint = bind_stranger(site.authority.certificate().clone(), address).unwrap();
    let coordinator = PeerIdentity::coordinator(JOB);
    let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await.unwrap();
    (endpoint, connection)
}

/// That the coordinator still enrols others.
async fn goes_on(site: &Site) {
    enrol(&site.join_file(Role::Worker, 1), Role::Worker).await.unwrap();
}

#[tokio::test]
async fn garbage_and_lengths_without_end_close_the_connection() {
    let log = Log::new();
    let site = Site::new().await;
    let version = WIRE_VERSION.to_le_bytes();
    let frame = |length: u32, payload: &[u8]| [&version[..], &[0, 0], &length.to_le_bytes(), payload].concat();
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "wire version"),
        (frame(u32::MAX, &[]), "expected at most"),
        (frame(ENROL_FRAME_BYTES as u32 + 1, &[]), "expected at most"),
        (frame(8, &[0xff; 8]), "not the message expected"),
        (frame(100, &[1; 10]), "ended inside a frame"),
        (vec![], "asked for nothing"),
    ] {
        let (_endpoint, connection) = stranger(&site).await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
        let told = closed(&connection).await;
        assert!(told.contains(words), "{told}");
        log.refused(&["a process was not enrolled", words]).await;
    }
    goes_on(&site).await;
    log.nothing_more();
}

#[tokio::test]
async fn one_stream_is_all_that_a_stranger_has() {
    let site = Site::new().await;
    let (_endpoint, connection) = stranger(&site).await;
    let _stream = connection.open_bi().await.unwrap();
    for more in [false, true] {
        let opened = tokio::select! {
            biased;
            _ = connection.open_bi(), if more => true,
            _ = connection.open_uni(), if !more => true,
            () = ready(()) => false,
        };
        assert!(!opened);
    }
    assert_eq!(connection.max_datagram_size(), None);
    // What it sends beyond its window waits until it is thrown out.
    let (_endpoint, connection) = stranger(&site).await;
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    let endless = async { while send.write_all(&[0xff; 1 << 16]).await.is_ok() {} };
    soon(endless).await;
    goes_on(&site).await;
}

#[tokio::test]
async fn without_a_certificate_nothing_but_an_enrolment_is_heard() {
    let log = Log::new();
    let site = Site::new().await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(site.authority.certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    for purpose in [Purpose::Control, Purpose::Peer] {
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![purpose.protocol().to_vec()];
        let mut endpoint = Endpoint::client(LOOPBACK).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap())));
        let name = PeerIdentity::coordinator(JOB).server_name();
        let dialled = endpoint.connect(site.coordinator.address(), &name).unwrap().await;
        if purpose == Purpose::Peer {
            assert!(dialled.is_err(), "the coordinator has no such protocol");
            log.refused(&["a connection was refused", "other protocols"]).await;
            continue;
        }
        let connection = dialled.unwrap();
        if let Ok((mut send, _receive)) = connection.open_bi().await {
            // It may be thrown out before or after.
            let _ = write_frame(&mut send, &Hello::Operator { job: JOB }, HELLO_FRAME_BYTES).await;
        }
        let told = closed(&connection).await;
        assert!(told.contains("showed no certificate"), "{told}");
        log.refused(&["a connection was refused", "showed no certificate"]).await;
    }
    goes_on(&site).await;
}

#[tokio::test]
async fn strangers_who_say_nothing_cost_bounded_room_and_time() {
    let log = Log::new();
    let site = Site::new().await;
    let (mut strangers, mut ends) = (Vec::new(), JoinSet::new());
    let mut late = Vec::new();
    // Where it takes long until all have come, the first have had their time before: others come in their place.
    loop {
        while ends.len() <= MAX_ENROLMENTS {
            let (endpoint, connection) = stranger(&site).await;
            strangers.push((endpoint, connection.clone()));
            ends.spawn(async move { connection.closed().await });
        }
        let first = soon(ends.join_next()).await.unwrap().unwrap();
        if matches!(&first, ConnectionError::ApplicationClosed(close) if close.error_code == COME_AGAIN) {
            break;
        }
        late.push(first);
    }
    assert_eq!(ends.len(), MAX_ENROLMENTS, "one was too many");
    late.extend(soon(ends.join_all()).await);
    for (number, end) in (0..).zip(late.iter()) {
        let told = sardana_net::quic::explain(end);
        assert!(told.contains("took too long"), "{told}");
        // So many have come anew on a very busy host that not each has a line.
        if number < AT_ONCE {
            log.refused(&["an enrolment took too long: more than 5s"]).await;
        }
    }
    log.refused(&["more than 128 enrol at once"]).await;
    if late.len() <= AT_ONCE as usize {
        log.nothing_more();
    }
    goes_on(&site).await;
}
