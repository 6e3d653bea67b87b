//! Strangers who are slow, claim too much, or show certificates that are no good here.

use std::time::Duration;

use sardana_actors::quic::limits::{CONNECT_DEADLINE, HANDSHAKE_DEADLINE};
use sardana_actors::quic::{Purpose, bind_client, connect, explain};
use sardana_actors::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::words::JobId;
use tokio::time::{sleep, timeout};

use super::raw::{JOB, PATIENCE, Site};

/// What somebody is told who dials with these credentials.
async fn told(site: &Site, credentials: &Credentials) -> String {
    let address = site.coordinator.address();
    let endpoint = bind_client(credentials, Purpose::Control, address).unwrap();
    match connect(&endpoint, address, PeerIdentity::coordinator(JOB), CONNECT_DEADLINE).await {
        Ok(connection) => explain(&timeout(PATIENCE, connection.closed()).await.unwrap()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn one_byte_a_second_is_too_slow() {
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
}

#[tokio::test]
async fn a_text_of_2_to_the_63_bytes_is_not_believed() {
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
    site.join(1).await;
}

#[tokio::test]
async fn a_certificate_of_another_job_is_no_good() {
    let site = Site::new().await;
    for other in [Authority::new(JobId::new([9; 16])).unwrap(), Authority::new(JOB).unwrap()] {
        for role in [Role::Worker, Role::Agent, Role::Operator] {
            let why = told(&site, &other.issue(role, 1).unwrap()).await;
            assert!(why.contains("another job"), "{why}");
        }
    }
    site.join(1).await;
}
