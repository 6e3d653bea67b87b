//! An operator and a job that trains: what is shown is what happens, and what is asked is done.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "mistakes/loopback.rs"]
mod loopback;
#[path = "cli/worker.rs"]
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sardana::operator::{Access, Doing, JobStatus, LinksShown, OperatorAnswer, OperatorRequest, ask, table};
use sardana::worker::{Ended, ProcessError, serve};
use sardana::{JobEvent, Stage, reference};
use sardana_actors::coordinator::Coordinator;
use sardana_net::quic::{bind_stranger, connect};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_protocol::words::{JobId, Step};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use loopback::{PATIENCE, bundle, coordinator};

async fn status(access: &Access) -> JobStatus {
    match ask(access, &OperatorRequest::Status).await.unwrap() {
        OperatorAnswer::Status(status) => *status,
        other @ (OperatorAnswer::Done { .. } | OperatorAnswer::Refused { .. }) => {
            panic!("expected a status, found {other:?}")
        }
    }
}

/// A job that two workers train.
struct Job {
    authority: Arc<Authority>,
    coordinator: Coordinator,
    events: mpsc::UnboundedReceiver<JobEvent>,
    outcomes: Receiver<Result<Ended, ProcessError>>,
    access: Access,
}

async fn trained() -> Job {
    let authority = Arc::new(Authority::new(JobId::new([5; 16])).unwrap());
    let (coordinator, events) = coordinator(&authority, 2).await;
    let (ended, outcomes) = channel();
    for id in 1..=2 {
        let bundle = bundle(&coordinator, authority.issue(Role::Worker, id).unwrap());
        let ended = ended.clone();
        thread::spawn(move || ended.send(serve(bundle, &worker::job(), worker::build)));
    }
    let access = Access {
        coordinator: coordinator.address(),
        credentials: authority.issue(Role::Operator, 1).unwrap(),
        way: None,
    };
    Job {
        authority,
        coordinator,
        events,
        outcomes,
        access,
    }
}

/// The status of a job that trains, once it is true of it.
async fn seen(access: &Access, is_so: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let (mut last, mut times) = (None, 0);
    let seeing = async {
        loop {
            let status = status(access).await;
            if status.overview.stage == Stage::Running && is_so(&status) {
                return status;
            }
            (last, times) = (Some(status), times + 1);
        }
    };
    match timeout(PATIENCE, seeing).await {
        Ok(status) => status,
        Err(_) => panic!("not in {PATIENCE:?}, in which {times} were seen; the last is {last:#?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_that_trains_is_seen_and_stopped() {
    let Job {
        coordinator,
        mut events,
        outcomes,
        access,
        ..
    } = trained().await;
    let seen = seen(&access, |status| status.steps_per_second > 0.0).await;
    let spec = worker::job().spec().clone();
    assert_eq!(seen.spec.as_ref(), Some(&spec));
    assert_eq!(seen.overview.workers.len(), 2);
    assert!(
        seen.overview.workers.iter().all(|view| view.doing == Doing::Training),
        "{seen:?}"
    );
    assert!(seen.last.as_ref().is_some_and(|last| last.samples == spec.batch), "{seen:?}");
    let text = table(&seen, LinksShown::Worst);
    assert!(text.contains("endless"), "{text}");

    let answer = ask(&access, &OperatorRequest::Stop).await.unwrap();
    assert!(matches!(answer, OperatorAnswer::Done { .. }), "{answer:?}");
    let done = async {
        loop {
            if let JobEvent::Done(summary) = events.recv().await.unwrap() {
                return summary;
            }
        }
    };
    let summary = timeout(PATIENCE, done).await.unwrap();
    assert!(summary.step >= seen.overview.step, "{summary:?}");
    for _ in 0..2 {
        let ended = outcomes.recv_timeout(PATIENCE).unwrap().unwrap();
        assert!(matches!(ended, Ended::Done { hash, .. } if hash == summary.hash), "{ended:?}");
    }
    // The same job, given so many steps, ends in the same bits.
    let mut shorter = spec;
    shorter.steps = summary.step;
    let mut model = worker::build(&shorter).unwrap();
    assert_eq!(reference::train(&shorter, &mut model).unwrap().hash, summary.hash);
    coordinator.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_crowd_that_says_nothing_does_not_disturb_the_job() {
    let job = trained().await;
    let before = seen(&job.access, |status| status.overview.step > Step::ZERO).await;
    let address = job.coordinator.address();
    let coordinator = PeerIdentity::coordinator(job.coordinator.job());
    let certificate = job.authority.certificate().clone();
    let crowd = async move {
        let endpoint = bind_stranger(certificate, address).unwrap();
        let mut crowd = JoinSet::new();
        for _ in 0..1_000 {
            let endpoint = endpoint.clone();
            crowd.spawn(async move {
                // Some are turned away before they are heard, the others when they have said nothing for long.
                if let Ok(connection) = connect(&endpoint, address, coordinator, PATIENCE).await {
                    connection.closed().await;
                }
            });
        }
        timeout(PATIENCE, crowd.join_all())
            .await
            .expect("all of them go in time")
            .len()
    };
    // What a thousand strangers compute is theirs to do, not the thread's that the coordinator has.
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let gone = tokio::task::spawn_blocking(move || runtime().block_on(crowd)).await.unwrap();
    assert_eq!(gone, 1_000);
    let after = seen(&job.access, |status| status.overview.step > before.overview.step).await;
    assert_eq!(after.overview.generation, before.overview.generation, "no worker halted");
    assert_eq!(after.overview.workers.len(), 2);
    job.coordinator.steering().request_stop();
    for _ in 0..2 {
        assert!(matches!(
            job.outcomes.recv_timeout(PATIENCE).unwrap().unwrap(),
            Ended::Done { .. }
        ));
    }
    job.coordinator.end().await;
}
