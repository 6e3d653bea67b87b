//! Strangers that are slow, claim too much, or show certificates that are no good here.

use std::time::{Duration, SystemTime};

use sardana_net::quic::limits::{CONNECT_DEADLINE, HANDSHAKE_DEADLINE};
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, Clock, Credentials, Moment, PeerIdentity, Role};
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::words::JobId;
use sardana_storage::private::{Missing, PrivateFolder};
use tokio::time::sleep;

use super::log::Log;
use super::raw::{JOB, Site, believing, closed, soon};

/// What a client is told that dials with these credentials.
async fn told(site: &Site, credentials: &Credentials) -> String {
    let address = site.coordinator.address();
    let endpoint = bind_client(credentials, Purpose::Control, address).unwrap();
    match connect(&endpoint, address, PeerIdentity::coordinator(JOB), CONNECT_DEADLINE).await {
        Ok(connection) => closed(&connection).await,
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn one_byte_a_second_is_too_slow() {
    let log = Log::new();
    let site = Site::new().await;
    let mut wire = site.dial(Role::Worker, 1).await;
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    let mut sent = 0;
    while wire.send.write_all(&WIRE_VERSION.to_le_bytes()[..1]).await.is_ok() {
        sent += 1;
        assert!(sent <= HANDSHAKE_DEADLINE.as_secs() + 2, "it is heard for ever");
        sleep(Duration::from_secs(1)).await;
    }
    assert!(sent > 1, "it was given no time");
    wire.closed().await;
    log.refused(&["no hello came within 5s", "peer=worker w0000000000000001"])
        .await;
}

#[tokio::test]
async fn a_text_of_2_to_the_63_bytes_is_not_believed() {
    let log = Log::new();
    let site = Site::new().await;
    // An agent's hello: its kind, the job, and a host whose name claims eight bytes of length.
    let mut payload = vec![1];
    payload.extend([3; 16]);
    payload.push(253);
    payload.extend((1_u64 << 63).to_le_bytes());
    let length = (payload.len() as u32).to_le_bytes();
    let frame = [&WIRE_VERSION.to_le_bytes()[..], &[0, 0], &length, &payload].concat();
    let mut wire = site.dial(Role::Agent, 1).await;
    wire.send.write_all(&frame).await.unwrap();
    let why = wire.closed().await;
    assert!(why.contains("not the message expected"), "{why}");
    let peer = "peer=agent 0000000000000001";
    log.refused(&["a hello could not be read", peer, "not the message expected"])
        .await;
    site.join(1).await;
}

#[tokio::test]
async fn a_certificate_of_another_job_is_no_good() {
    let log = Log::new();
    let site = Site::new().await;
    for other in [Authority::new(JobId::new([9; 16])).unwrap(), Authority::new(JOB).unwrap()] {
        for role in [Role::Worker, Role::Agent, Role::Operator] {
            let why = told(&site, &other.issue(role, 1).unwrap()).await;
            assert!(why.contains("another job"), "{why}");
            log.refused(&["a connection was refused", "the peer refused this end", "another job"])
                .await;
            // A client that believes any peer that is here.
            let why = told(&site, &believing(&other.issue(role, 1).unwrap(), &site)).await;
            assert!(why.contains("another job"), "{why}");
            log.refused(&["a connection was refused", "this end refused the peer", "another job"])
                .await;
        }
    }
    site.join(1).await;
    log.nothing_more();
}

/// Waits until the clock shows a later second.
async fn next_second() {
    let now = || Moment::of(SystemTime::now());
    let begun = now();
    let waiting = async {
        while now() <= begun {
            tokio::task::yield_now().await;
        }
    };
    soon(waiting).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now_is_no_good() {
    let log = Log::new();
    let place = tempfile::tempdir().unwrap();
    let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
    let site = Site::of(Authority::load_or_create(&folder, JOB).unwrap()).await;
    let same = || Authority::load(&folder).unwrap();
    let expired = same().with_validity(Duration::ZERO).issue(Role::Worker, 1).unwrap();
    next_second().await;
    let early = same()
        .with_clock(Clock::ahead(Duration::from_secs(7_200)))
        .issue(Role::Worker, 1)
        .unwrap();
    for (credentials, words) in [(&expired, "it ran out at"), (&early, "it begins at")] {
        let why = told(&site, credentials).await;
        assert!(
            why.contains("this process's certificate is not valid now") && why.contains(words),
            "{why}"
        );
        let said = [
            "a connection was refused",
            "this end refused the peer",
            words,
            "by the clock of this host it is",
            "set the clock",
        ];
        log.refused(&said).await;
    }
    site.join(1).await;
    log.nothing_more();
}
