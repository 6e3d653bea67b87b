//! What a first message must be, and what happens to one that is not.

use sardana_actors::coordinator::CoordinatorConfig;
use sardana_net::trust::{Authority, PendingKey, Role};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::membership::{GenerationEvent, JobEvent, Loss, WorkerEvent};
use sardana_protocol::messages::{
    AgentMessage, AgentOrder, Call, CoordinatorMessage, Form, Greeting, Hello, HostHash, WorkerHello, WorkerMessage,
};
use sardana_protocol::plan::Part;
use sardana_protocol::samples;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, WorkerId};

use super::log::Log;
use super::raw::{JOB, Site, Wire, agent, exited, hello, worker};

#[tokio::test]
async fn a_hello_under_a_false_name_is_refused() {
    let log = Log::new();
    let site = Site::new().await;
    let rival = || Hello::Coordinator {
        job: JOB,
        newest: Generation::new(Incarnation::new(9), 9),
    };
    let cases = [
        (Role::Worker, rival()),
        (Role::Agent, rival()),
        (Role::Operator, rival()),
        (Role::Worker, agent(JOB)),
        (Role::Worker, Hello::Operator { job: JOB }),
        (Role::Agent, Hello::Operator { job: JOB }),
        (Role::Operator, agent(JOB)),
        (Role::Operator, worker(hello(7))),
        (
            Role::Operator,
            Hello::Operator {
                job: JobId::new([9; 16]),
            },
        ),
        (Role::Agent, worker(hello(7))),
        // Another worker's id.
        (Role::Worker, worker(hello(8))),
        (Role::Agent, agent(JobId::new([9; 16]))),
    ];
    for (role, hello) in cases {
        let reason = site.dial(role, 7).await.refused(&hello).await;
        assert!(
            reason.contains(&role.to_string()) && reason.contains("credentials of its own role"),
            "{reason}"
        );
        let peer = format!("peer={role} ");
        log.refused(&["a hello under a false name", &peer, &reason]).await;
    }
    log.nothing_more();
    assert!(site.events.is_empty(), "and nobody is fenced");
}

#[tokio::test]
async fn another_machine_or_build_is_refused_by_name() {
    type Change = fn(&mut WorkerHello);
    let log = Log::new();
    let site = Site::new().await;
    let _first = site.join(1).await;
    let cases: [(&str, Change); 8] = [
        ("processor", |hello| {
            hello.identity.fingerprint.processor = "x86_64".to_owned()
        }),
        // Only where it gives other bits.
        ("computes on H200", |hello| {
            hello.identity.fingerprint.device = "H200".to_owned();
            hello.identity.fingerprint.probe = StateHash::of(b"y");
        }),
        ("libraries", |hello| hello.identity.fingerprint.libraries = "two".to_owned()),
        ("program", |hello| hello.identity.fingerprint.program = StateHash::of(b"y")),
        ("probe", |hello| hello.identity.fingerprint.probe = StateHash::of(b"y")),
        ("model", |hello| hello.identity.fingerprint.tensors = StateHash::of(b"y")),
        ("initial state", |hello| hello.identity.state_zero = StateHash::of(b"y")),
        ("job", |hello| hello.job = JobId::new([9; 16])),
    ];
    for (word, change) in cases {
        let mut other = hello(2);
        change(&mut other);
        let reason = site.dial(Role::Worker, 2).await.refused(&worker(other)).await;
        assert!(reason.contains(word), "{word}: {reason}");
        let job = format!("in coordinator job={} incarnation=", site.coordinator.job());
        log.refused(&["a worker was refused", "worker=w0000000000000002", &reason, &job])
            .await;
    }
    // None of them has changed anything.
    site.join(2).await;
    log.nothing_more();
}

#[tokio::test]
async fn a_frame_of_another_version_or_too_long_is_refused_before_it_is_read() {
    let log = Log::new();
    let site = Site::new().await;
    let frame = |version: u16, length: usize| [&version.to_le_bytes()[..], &[0, 0], &(length as u32).to_le_bytes()].concat();
    let versions = format!("wire version {}, expected {WIRE_VERSION}", WIRE_VERSION + 1);
    let cases = [
        (frame(WIRE_VERSION + 1, 3), versions.as_str()),
        (frame(WIRE_VERSION, HELLO_FRAME_BYTES + 1), "expected at most 57344"),
        (frame(WIRE_VERSION, u32::MAX as usize), "expected at most 57344"),
    ];
    for (bytes, words) in cases {
        let mut wire = site.dial(Role::Worker, 1).await;
        wire.send.write_all(&bytes).await.unwrap();
        let why = wire.closed().await;
        assert!(why.contains(words), "{why}");
        log.refused(&[
            "a hello could not be read",
            "peer=worker w0000000000000001",
            words,
            "in coordinator job=",
        ])
        .await;
    }
    log.nothing_more();
    let mut wire = site.join(1).await;
    wire.send
        .write_all(&frame(WIRE_VERSION, CONTROL_FRAME_BYTES + 1))
        .await
        .unwrap();
    let why = wire.closed().await;
    assert!(why.contains("expected at most 262144"), "{why}");
}

#[tokio::test]
async fn who_says_nothing_is_shut_out_after_the_deadline() {
    let log = Log::new();
    let site = Site::new().await;
    let wire = site.dial(Role::Worker, 1).await;
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    let why = wire.closed().await;
    assert!(why.contains("expected a hello"), "{why}");
    let words = ["no hello came within 5s", "peer=worker w0000000000000001"];
    log.refused(&words).await;
    // Half a hello is none.
    tokio::time::resume();
    let mut wire = site.dial(Role::Worker, 1).await;
    wire.send.write_all(&WIRE_VERSION.to_le_bytes()).await.unwrap();
    tokio::time::pause();
    assert!(wire.closed().await.contains("expected a hello"));
    log.refused(&words).await;
}

#[tokio::test]
async fn the_same_credentials_serve_one_process_at_a_time() {
    let log = Log::new();
    let mut site = Site::new().await;
    let first = site.join(1).await;
    assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
    let reason = site.dial(Role::Worker, 1).await.refused(&worker(hello(1))).await;
    assert!(reason.contains("connected already"), "{reason}");
    log.refused(&["a worker was refused", &reason]).await;
    // Its own second attempt, after its connection broke, is welcome, and the old session's goodbye does not end the new one.
    first.connection.close(0_u32.into(), b"lost");
    let mut again = loop {
        let mut wire = site.dial(Role::Worker, 1).await;
        if matches!(wire.greeted(&worker(hello(1))).await, Greeting::Joined { .. }) {
            break wire;
        }
    };
    let mut lost = 0;
    let _second = site.join(2).await;
    loop {
        match site.event().await {
            JobEvent::Worker(WorkerEvent::Lost { .. }) => lost += 1,
            JobEvent::Generation(GenerationEvent::Forming { members, .. }) => {
                assert_eq!(members, [WorkerId::new(1), WorkerId::new(2)]);
                break;
            }
            _other => {}
        }
    }
    assert_eq!(lost, 1);
    assert!(again.hear::<CoordinatorMessage>().await.unwrap().is_some());
}

/// What is lost in one direction only, one end sees long before the other.
#[tokio::test]
async fn a_later_call_of_the_same_process_takes_the_place_of_one_that_looks_alive() {
    let log = Log::new();
    let mut site = Site::new().await;
    let first = site.join(1).await;
    assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
    let call = |process: u8, count| WorkerHello {
        call: Call {
            process: [process; 16],
            count,
        },
        ..hello(1)
    };
    let mut later = site.join_with(call(1, 5)).await;
    assert!(first.closed().await.contains("a later connection"));
    while !matches!(site.event().await, JobEvent::Worker(WorkerEvent::Lost { .. })) {}
    while !matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })) {}
    // The same hello again, an earlier one that comes late, and another process that has the same credentials.
    for other in [call(1, 5), call(1, 4), call(2, 6)] {
        let reason = site.dial(Role::Worker, 1).await.refused(&worker(other)).await;
        assert!(reason.contains("connected already"), "{reason}");
        log.refused(&["a worker was refused", &reason]).await;
    }
    let _second = site.join(2).await;
    assert!(later.hear::<CoordinatorMessage>().await.unwrap().is_some(), "it is a member");
    log.nothing_more();
}

#[tokio::test]
async fn a_worker_whose_end_was_seen_is_lost_once_and_does_not_come_back() {
    let log = Log::new();
    let mut site = Site::new().await;
    let mut agent = site.dial(Role::Agent, 5).await;
    assert_eq!(agent.greeted(&super::raw::agent(JOB)).await, Greeting::Welcome);
    let ended = site.join(1).await;
    // Its own child: a certificate is made for it.
    let certify = AgentMessage::Certify {
        worker: WorkerId::new(2),
        request: PendingKey::generate().unwrap().request().unwrap(),
    };
    agent.say(&certify).await;
    // One worker while it is connected, one before its hello has arrived.
    agent.say(&exited(1)).await;
    agent.say(&exited(2)).await;
    assert!(ended.closed().await.contains("its process has ended"));
    let reason = site.dial(Role::Worker, 2).await.refused(&worker(hello(2))).await;
    assert!(reason.contains("seen its process end"), "{reason}");
    log.refused(&["a worker was refused", &reason]).await;
    let _third = site.join(3).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match site.event().await {
            JobEvent::Worker(WorkerEvent::Joined { worker, .. }) => seen.push((worker.get(), "joined")),
            JobEvent::Worker(WorkerEvent::Lost { worker, cause, .. }) => {
                assert!(matches!(cause, Loss::Exited { .. }), "the agent's word comes first: {cause}");
                seen.push((worker.get(), "lost"));
            }
            _other => {}
        }
    }
    assert_eq!(seen, [(1, "joined"), (1, "lost"), (3, "joined")]);
}

/// As after a coordinator's return: it does not know which agent's the worker is, and an agent may say anything of it.
#[tokio::test]
async fn what_an_agent_says_of_a_worker_that_is_not_its_own_does_not_keep_it_out() {
    let mut site = Site::new().await;
    let mut agent = site.dial(Role::Agent, 5).await;
    assert_eq!(agent.greeted(&super::raw::agent(JOB)).await, Greeting::Welcome);
    let _first = site.join(1).await;
    agent.say(&exited(2)).await;
    // One message follows the other: it has been heard by then.
    let request = PendingKey::generate().unwrap().request().unwrap();
    agent.say(&AgentMessage::Renew { request }).await;
    assert!(matches!(
        agent.hear::<AgentOrder>().await.unwrap(),
        Some(AgentOrder::Renewed { .. })
    ));
    let _second = site.join(2).await;
    let joined = |event: &JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Joined { worker, .. }) if *worker == WorkerId::new(2));
    while !joined(&site.event().await) {}
}

/// What a worker is told once enough are there.
async fn seat(wire: &mut Wire) -> Form {
    loop {
        match wire.hear().await.unwrap().expect("the coordinator is there") {
            CoordinatorMessage::Halt { generation } => {
                let standing = samples::introduction().standing;
                wire.say(&WorkerMessage::Halted { generation, standing }).await;
            }
            CoordinatorMessage::Form(form) => return *form,
            other => panic!("expected a seat, found {other:?}"),
        }
    }
}

/// Whether each of four workers with large gradients, of one host, is told that all own chunks. They say this of the memory that they share.
async fn all_own_chunks(says: impl Fn(u64) -> Option<HostHash>) -> bool {
    let of_four = |config| CoordinatorConfig { expected: 4, ..config };
    let site = Site::with(Authority::new(JOB).unwrap(), of_four).await.unwrap();
    let mut wires = Vec::new();
    for id in 1..=4 {
        let own = WorkerHello {
            host_hash: says(id),
            ..hello(id)
        };
        wires.push(site.join_with(own).await);
    }
    let mut direct = Vec::new();
    for wire in &mut wires {
        direct.push(matches!(seat(wire).await.steady, Part::Direct(_)));
    }
    assert!(direct.iter().all(|one| *one == direct[0]), "{direct:?}");
    direct[0]
}

#[tokio::test]
async fn workers_that_say_that_they_share_memory_all_own_chunks_of_large_gradients() {
    let same = Some(HostHash::new([7; 16]));
    assert!(all_own_chunks(|_| same).await);
    assert!(!all_own_chunks(|id| same.filter(|_| id != 3)).await, "one of them cannot");
    assert!(!all_own_chunks(|_| None).await);
}
