//! Workers whose coordinator is not there, is not theirs, or must hear their last words.

use std::net::UdpSocket;

use sardana_actors::coordinator::{CoordinatorConfig, CoordinatorError};
use sardana_actors::worker::{Ended, JoinError, WorkerConfig, WorkerError};
use sardana_net::quic::{BindError, Purpose, bind_server};
use sardana_net::trust::{Authority, Role};
use sardana_protocol::limits::MAX_TEXT_BYTES;
use sardana_protocol::membership::{JobEvent, WorkerEvent};
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::samples;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::WorkerId;

use super::bystanders::{bystander, driven, run, run_with};
use super::log::Log;
use super::raw::{JOB, LOOPBACK, Site, soon};

fn join_error(outcome: Result<Ended, WorkerError>) -> JoinError {
    match outcome {
        Err(WorkerError::Join(error)) => *error,
        other => panic!("expected a failed join, found {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_is_not_there_is_looked_for_and_given_up() {
    // Bound, so that no other process takes the port, and silent.
    let silent = UdpSocket::bind(LOOPBACK).unwrap();
    let address = silent.local_addr().unwrap();
    let worker = Authority::new(JOB).unwrap().issue(Role::Worker, 1).unwrap();
    let (_failure, running) = run(bystander(worker, address));
    let error = join_error(running.await);
    assert!(
        matches!(error, JoinError::NotThere { address: at, .. } if at == address),
        "{error}"
    );
    let words = error.to_string();
    assert!(
        words.contains("15s") && words.contains("no process answered") && words.contains("start it"),
        "{words}"
    );
}

#[tokio::test]
async fn who_is_no_coordinator_of_this_job_is_not_trusted() {
    let site = Site::new().await;
    let address = site.coordinator.address();
    let stranger = Authority::new(JOB).unwrap().issue(Role::Worker, 1).unwrap();
    let (_failure, running) = run(bystander(stranger, address));
    let error = join_error(soon(running).await);
    assert!(error.to_string().contains("another job"), "{error}");

    // Another worker's address instead of the coordinator's.
    let other = site.authority.issue(Role::Worker, 2).unwrap();
    let peer = bind_server(&other, Purpose::Peer, LOOPBACK).unwrap();
    let accepting = peer.clone();
    let serving = tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let _ = incoming.await;
        }
    });
    let own = site.authority.issue(Role::Worker, 1).unwrap();
    let (_failure, running) = run(bystander(own, peer.local_addr().unwrap()));
    let error = join_error(soon(running).await);
    assert!(matches!(error, JoinError::NotTrusted { .. }), "{error}");
    assert!(
        error.to_string().contains("see whether the address is the right one"),
        "{error}"
    );
    peer.close(0_u32.into(), b"");
    serving.await.unwrap();
}

#[tokio::test]
async fn an_agents_certificate_makes_no_worker() {
    let site = Site::new().await;
    let agent = site.authority.issue(Role::Agent, 1).unwrap();
    let (_failure, running) = run(bystander(agent, site.coordinator.address()));
    let error = join_error(soon(running).await);
    assert!(matches!(error, JoinError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("credentials of its own role"), "{error}");
}

#[tokio::test]
async fn a_worker_that_can_never_have_what_it_needs_of_its_gpu_hears_both_sizes() {
    let log = Log::new();
    let mut site = Site::new().await;
    let memory = |needed: u64| {
        let memory = DeviceMemory {
            needed: needed << 30,
            total: 80 << 30,
            sharers: 2,
            ..DeviceMemory::default()
        };
        memory.named("GPU-a")
    };
    let run = |id, needed, site: &Site| {
        let config = WorkerConfig {
            device_memory: Some(memory(needed)),
            ..bystander(site.authority.issue(Role::Worker, id).unwrap(), site.coordinator.address())
        };
        driven(config, 1)
    };
    let (_, _failure, running) = run(1, 41, &site);
    let error = join_error(soon(running).await);
    assert!(matches!(error, JoinError::Refused { .. }), "{error}");
    let error = error.to_string();
    let words = [
        "needs 41 GiB",
        "GPU-a, has 80 GiB, which is 40 GiB for each of the 2 workers",
        "start fewer workers for each GPU",
    ];
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    log.refused(&["a worker was refused", words[0]]).await;
    // One that fits is let in, and an operator sees what it has, and then what it has told since.
    let (driver, _failure, running) = run(2, 40, &site);
    let running = tokio::spawn(running);
    assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
    let seen = async || match site.coordinator.steering().ask(OperatorRequest::Status).await.unwrap() {
        OperatorAnswer::Status(status) => status.device_memory,
        other => panic!("expected a status, found {other:?}"),
    };
    assert_eq!(seen().await, [(WorkerId::new(2), memory(40))]);
    let later = DeviceMemory {
        held: 7,
        peak: 9,
        ..memory(40)
    };
    driver.note_device_memory(Some(later.clone()));
    let told = async {
        while seen().await != [(WorkerId::new(2), later.clone())] {
            tokio::task::yield_now().await;
        }
    };
    soon(told).await;
    running.abort();
}

/// Nothing is ever allocated: it does not come so far.
#[tokio::test]
async fn a_worker_whose_memory_can_never_do_hears_the_sizes() {
    const GIB: u64 = 1 << 30;
    let mut job = samples::identity();
    job.spec.shards = 4_096;
    let run = |room: u64, credentials, coordinator| {
        let config = WorkerConfig {
            shard_capacity: 4_096,
            gradient_memory: room * GIB,
            identity: job.clone(),
            ..bystander(credentials, coordinator)
        };
        run_with(config, usize::try_from(GIB / 8 - 1).unwrap())
    };
    let log = Log::new();
    let mut site = Site::new().await;
    for (room, words) in [
        (64, ["K = 4096", "at most N = 8 workers", "512 GiB", "set fewer shards"]),
        (2, ["a gradient has 1 GiB", "needs 3 GiB", "has 1.6 GiB", "more memory"]),
        // Room for the gradients, and not for the links.
        (
            3,
            [
                "a gradient has 1 GiB",
                "needs 3 GiB",
                "has 2.6 GiB",
                "beside 331.5 MiB that its links may hold",
            ],
        ),
    ] {
        let worker = site.authority.issue(Role::Worker, room).unwrap();
        let (_failure, running) = run(room, worker, site.coordinator.address());
        let error = join_error(soon(running).await);
        assert!(matches!(error, JoinError::Refused { .. }), "{error}");
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        log.refused(&["a worker was refused", words[1]]).await;
    }
    // Eight like this one would do, and two are expected: they train, and an operator should know how.
    let worker = site.authority.issue(Role::Worker, 1).unwrap();
    let (_failure, running) = run(600, worker, site.coordinator.address());
    let running = tokio::spawn(running);
    assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
    log.refused(&[
        "the first rank will compute",
        "N = 2 workers would hold 2048, which want 2 TiB",
    ])
    .await;
    // It is judged once: a second judgement would have said so again before the worker was welcome.
    log.nothing_more();
    running.abort();
}

#[tokio::test]
async fn the_last_words_of_a_failing_worker_arrive() {
    for attempt in 0..20 {
        let mut site = Site::new().await;
        let worker = site.authority.issue(Role::Worker, 1).unwrap();
        let (failure, running) = run(bystander(worker, site.coordinator.address()));
        let running = tokio::spawn(running);
        assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
        // Longer than a message may be, and cut in the middle of a character.
        failure.report(format!("the data are gone {}", "ü".repeat(MAX_TEXT_BYTES)));
        let reason = loop {
            match site.event().await {
                JobEvent::Failed { reason } => break reason,
                JobEvent::Worker(WorkerEvent::Lost { cause, .. }) => panic!("attempt {attempt}: {cause}"),
                _other => {}
            }
        };
        assert!(reason.contains("the data are gone"), "{reason}");
        let outcome = soon(running).await.unwrap();
        assert!(matches!(outcome, Err(WorkerError::Model { reason }) if reason.len() <= MAX_TEXT_BYTES));
    }
}

#[tokio::test]
async fn the_last_orders_of_an_ending_coordinator_arrive() {
    let mut site = Site::new().await;
    let worker = site.authority.issue(Role::Worker, 1).unwrap();
    let (_failure, running) = run(bystander(worker, site.coordinator.address()));
    let running = tokio::spawn(running);
    assert!(matches!(site.event().await, JobEvent::Worker(WorkerEvent::Joined { .. })));
    site.coordinator.steering().request_stop();
    while !matches!(site.event().await, JobEvent::Failed { .. }) {}
    site.coordinator.end().await;
    let outcome = soon(running).await.unwrap();
    assert!(
        matches!(&outcome, Err(WorkerError::Dismissed { reason }) if reason.contains("stopped")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let site = Site::new().await;
    let listen = site.coordinator.address();
    let again = Site::with(Authority::new(JOB).unwrap(), |config| CoordinatorConfig { listen, ..config });
    let error = again.await.err().unwrap();
    assert!(
        matches!(error, CoordinatorError::Bind(BindError::AddressInUse { address }) if address == listen),
        "{error}"
    );
    assert!(error.to_string().contains("choose another port"), "{error}");
}
