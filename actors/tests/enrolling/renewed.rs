//! Certificates that run out within seconds, and are renewed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sardana_actors::worker::{self, ModelFailure, Outbox, Sigterm, StepDriver, WorkerConfig};
use sardana_collectives::layout::Layout;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, PendingKey, Role, RotatingCredentials};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::job::{Fingerprint, JobIdentity, JobSpec, Order};
use sardana_protocol::membership::{JobEvent, WorkerEvent};
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting, Hello};
use sardana_protocol::state::{Dtype, StateHash, StatePieces, TensorSpec};
use sardana_protocol::words::Step;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::log::Log;
use super::site::{JOB, LOOPBACK, PATIENCE, Site, greeted};

const VALIDITY: Duration = Duration::from_secs(4);

fn identity() -> JobIdentity {
    let hash = StateHash::of(b"x");
    JobIdentity {
        spec: JobSpec {
            name: "test".to_owned(),
            seed: 1,
            shards: 4,
            steps: Step::new(10),
            samples: 64,
            batch: 16,
            order: Order::Exact,
        },
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            processor: "x86_64 avx2".to_owned(),
            device: "cpu".to_owned(),
            libraries: "one".to_owned(),
            probe: hash,
        },
    }
}

/// What a worker of `site` with these credentials is run with.
pub(crate) fn a_worker(
    rotating: &RotatingCredentials,
    site: &Site,
) -> (WorkerConfig, Arc<StepDriver>, Outbox, ModelFailure, UnboundedReceiver<String>) {
    let identity = identity();
    let layout = Layout::new(vec![TensorSpec::new("w", Dtype::F64, &[3])], 0).unwrap();
    let (driver, outbox) = StepDriver::new(&identity.spec, Arc::new(layout), None);
    let (failure, failures) = ModelFailure::channel();
    let config = WorkerConfig {
        credentials: rotating.clone(),
        coordinator: site.coordinator.address().into(),
        listen: LOOPBACK,
        advertise: None,
        identity,
        shard_capacity: 4,
        gradient_memory: u64::MAX,
        pieces: Arc::new(StatePieces::new([24])),
        description: bytes::Bytes::new(),
        auxiliary: vec![],
        sigterm: Sigterm::NotOurs,
    };
    (config, driver, outbox, failure, failures)
}

/// Waits until `is_so`.
pub(crate) async fn until(is_so: impl Fn() -> bool, what: &str) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect(what);
}

#[tokio::test]
async fn a_worker_and_its_coordinator_live_longer_than_their_certificates() {
    let mut site = Site::of(Authority::new(JOB).unwrap().with_validity(VALIDITY)).await;
    let begun = SystemTime::now();
    let rotating = RotatingCredentials::from(site.authority.issue(Role::Worker, 1).unwrap());
    let before = rotating.current();
    let listen = std::net::UdpSocket::bind(LOOPBACK).unwrap().local_addr().unwrap();
    let (config, driver, outbox, _failure, failures) = a_worker(&rotating, &site);
    let config = WorkerConfig { listen, ..config };
    let running = tokio::spawn(worker::run(config, driver, outbox, failures));
    let joined = timeout(PATIENCE, site.events.recv()).await.unwrap().unwrap();
    assert!(matches!(joined, JobEvent::Worker(WorkerEvent::Joined { .. })), "{joined:?}");

    let renewed = || rotating.current().certificate() != before.certificate();
    until(renewed, "the certificate is renewed").await;
    let expired = || begun.elapsed().is_ok_and(|age| age > VALIDITY + Duration::from_secs(1));
    until(expired, "the clock goes on").await;
    // What was issued at first is refused by now.
    let address = site.coordinator.address();
    let endpoint = bind_client(&*before, Purpose::Control, address).unwrap();
    let coordinator = sardana_net::trust::PeerIdentity::coordinator(JOB);
    let told = match connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await {
        Ok(connection) => super::site::closed(&connection).await,
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
    let address = site.coordinator.address();
    let endpoint = bind_client(&agent, Purpose::Control, address).unwrap();
    let coordinator = sardana_net::trust::PeerIdentity::coordinator(JOB);
    let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let hello = Hello::Agent(AgentHello {
        job: JOB,
        host: "here".to_owned(),
        children: vec![],
    });
    write_frame(&mut send, &hello, HELLO_FRAME_BYTES).await.unwrap();
    let greeting = read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await.unwrap();
    assert_eq!(greeting, Some(Greeting::Welcome));

    let (own, child) = (PendingKey::generate().unwrap(), PendingKey::generate().unwrap());
    let worker = sardana_protocol::words::WorkerId::new(9);
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
        write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await.unwrap();
    }
    let mut identities = Vec::new();
    for key in [&own, &child] {
        let order = timeout(PATIENCE, read_frame::<AgentOrder>(&mut receive, CONTROL_FRAME_BYTES)).await;
        let certificate = match order.unwrap().unwrap().unwrap() {
            AgentOrder::Renewed { certificate } | AgentOrder::Certified { certificate, .. } => certificate,
            other @ (AgentOrder::JobOver
            | AgentOrder::DepotCertified { .. }
            | AgentOrder::Kill { .. }
            | AgentOrder::Start { .. }) => panic!("{other:?}"),
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
