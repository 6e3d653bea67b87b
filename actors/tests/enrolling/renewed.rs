//! Certificates that run out within seconds, and are renewed.

use std::time::{Duration, SystemTime};

use sardana_actors::worker::WorkerConfig;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, PeerIdentity, PendingKey, Role, RotatingCredentials};
use sardana_protocol::membership::{JobEvent, WorkerEvent};
use sardana_protocol::messages::{AgentMessage, AgentOrder, Greeting};
use sardana_protocol::words::WorkerId;

use super::bystanders::{bystander, run};
use super::log::Log;
use super::raw::{JOB, LOOPBACK, Site, Wire, closed, until};
use super::site::greeted;

const VALIDITY: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_worker_and_its_coordinator_live_longer_than_their_certificates() {
    let mut site = Site::of(Authority::new(JOB).unwrap().with_validity(VALIDITY)).await;
    let begun = SystemTime::now();
    let rotating = RotatingCredentials::from(site.authority.issue(Role::Worker, 1).unwrap());
    let before = rotating.current();
    let listen = std::net::UdpSocket::bind(LOOPBACK).unwrap().local_addr().unwrap();
    let config = bystander(&rotating, site.coordinator.address());
    let (_failure, running) = run(WorkerConfig { listen, ..config });
    let running = tokio::spawn(running);
    let joined = site.event().await;
    assert!(matches!(joined, JobEvent::Worker(WorkerEvent::Joined { .. })), "{joined:?}");

    let renewed = || rotating.current().certificate() != before.certificate();
    until(renewed).await;
    let expired = || begun.elapsed().is_ok_and(|age| age > VALIDITY + Duration::from_secs(1));
    until(expired).await;
    // What was issued at first is refused by now.
    let address = site.coordinator.address();
    let endpoint = bind_client(&*before, Purpose::Control, address).unwrap();
    let coordinator = PeerIdentity::coordinator(JOB);
    let told = match connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await {
        Ok(connection) => closed(&connection).await,
        Err(error) => error.to_string(),
    };
    assert!(told.contains("not valid now") || told.contains("expired"), "{told}");
    // These connections need the new certificates, of the worker and of the coordinator.
    let other = site.authority.issue(Role::Worker, 2).unwrap();
    let endpoint = bind_client(&other, Purpose::Peer, listen).unwrap();
    connect(&endpoint, listen, rotating.identity(), CONNECT_DEADLINE)
        .await
        .unwrap();
    let agent = site.authority.issue(Role::Agent, 3).unwrap();
    assert_eq!(greeted(&agent, site.coordinator.address()).await, Greeting::Welcome);
    // The worker's control connection is the first one still.
    assert!(!running.is_finished());
    while let Ok(event) = site.events.try_recv() {
        assert!(matches!(event, JobEvent::Waiting { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn an_agent_renews_its_own_and_asks_for_its_children() {
    let log = Log::new();
    let site = Site::new().await;
    let agent = site.authority.issue(Role::Agent, 7).unwrap();
    let mut wire = Wire::dial(&agent, site.coordinator.address()).await;
    assert_eq!(wire.greeted(&super::raw::agent(JOB)).await, Greeting::Welcome);

    let (own, child) = (PendingKey::generate().unwrap(), PendingKey::generate().unwrap());
    let worker = WorkerId::new(9);
    for message in [
        // No signing request: it is refused without an answer.
        AgentMessage::Renew { request: vec![1, 2, 3] },
        AgentMessage::Renew {
            request: own.request().unwrap(),
        },
        AgentMessage::Certify {
            worker,
            request: child.request().unwrap(),
        },
    ] {
        wire.say(&message).await;
    }
    let mut identities = Vec::new();
    for key in [&own, &child] {
        let certificate = match wire.hear().await.unwrap() {
            Some(AgentOrder::Renewed { certificate } | AgentOrder::Certified { certificate, .. }) => certificate,
            other => panic!("{other:?}"),
        };
        let credentials = key.certified(site.authority.certificate(), certificate).unwrap();
        identities.push(credentials.identity());
    }
    log.refused(&[
        "a certificate was not renewed",
        "role=agent id=0000000000000007",
        "expected PKCS #10",
    ])
    .await;
    assert_eq!(identities[0], agent.identity());
    assert_eq!((identities[1].role, identities[1].id), (Role::Worker, 9));
}
