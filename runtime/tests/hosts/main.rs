//! A job on several hosts, as far as one host can show it: a coordinator with a state directory, and workers with join files.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test waits for the events that it is about")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sardana::hosts::by_hand::bundle_from;
use sardana::hosts::{
    AgentHost, AgentJoin, CoordinateConfig, Hosting, HostingError, InviteConfig, InviteError, Keyring, PlaceError,
    PrivateFolder, Role, StateError, agent, coordinate, enrol, find_running, invite,
};
use sardana::launch::Output;
use sardana::worker::serve;
use sardana::{AgentEvent, Balance, JobEvent, WorkerEvent};
use sardana_actors::coordinator::CoordinatorError;
use sardana_net::quic::BindError;
use sardana_storage::private::Missing;
use tokio::time::timeout;

#[path = "../../../actors/tests/notices/cloud.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod cloud;
mod notices;
#[path = "../cli/worker.rs"]
mod worker;

use worker::slope::{Slope, job};

/// Nothing in these tests takes long; whatever has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(state_dir: &Path, workers: u32) -> CoordinateConfig {
    CoordinateConfig {
        saves: None,
        checkpoint_dir: None,
        mirror: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        standbys: Vec::new(),
        state_dir: state_dir.to_owned(),
        min: workers,
        max: 8,
        expected: workers,
        succession: sardana::hosts::coordinate::Succession::Resume,
        balance: Balance::default(),
    }
}

/// A join file for the job of `state_dir`.
fn invited(state_dir: &Path, role: Role, uses: u32) -> PathBuf {
    let out = state_dir.with_file_name(format!("{role}-{uses}.join"));
    let config = InviteConfig {
        state_dir: state_dir.to_owned(),
        role,
        expires: Duration::from_secs(600),
        uses,
        out: out.clone(),
    };
    invite(&config).unwrap();
    out
}

/// A host with this join file, and workers of this program that are not replaced.
async fn host(join: &Path, workers: u32, program: PathBuf, arguments: &[&str]) -> AgentHost {
    let join = AgentJoin {
        enrolled: enrol(join, Role::Agent).await.unwrap(),
        listen: None,
        advertise: None,
        host: None,
        checkpoint_dir: None,
        workers,
        restarts: 0,
        output: Output::Inherit,
        program,
        arguments: arguments.iter().map(OsString::from).collect(),
        environment: vec![],
        device: Default::default(),
    };
    agent(join).await.unwrap()
}

/// Starts a coordinator at an address whose last holder, in this very process, may still be letting go of it.
async fn coordinate_again(config: CoordinateConfig) -> Hosting {
    let trying = async {
        loop {
            match coordinate(config.clone()).await {
                Err(HostingError::Coordinator(CoordinatorError::Bind(BindError::AddressInUse { .. }))) => {
                    tokio::task::yield_now().await;
                }
                other => return other.unwrap(),
            }
        }
    };
    timeout(PATIENCE, trying).await.expect("the address is free in time")
}

async fn until_joined(hosting: &mut Hosting) {
    let joined = async {
        loop {
            match hosting.next_event().await.expect("the coordinator lives") {
                JobEvent::Worker(WorkerEvent::Joined { .. }) => return,
                _other => {}
            }
        }
    };
    timeout(PATIENCE, joined).await.expect("it joins in time");
}

#[tokio::test]
async fn workers_by_hand_train_a_job() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let hosting = coordinate(config(&state, 2)).await.unwrap();
    // Both workers count as one use of the file.
    let join = invited(&state, Role::Worker, 1);
    let keyring = Keyring::open(&place.path().join("keyring")).unwrap();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (join, keyring) = (join.clone(), keyring.clone());
            thread::spawn(move || serve(bundle_from(&join, &keyring).unwrap(), &job(2), Slope::new).unwrap())
        })
        .collect();
    let finishing = timeout(PATIENCE, hosting.finish(|_, _| {})).await;
    let summary = finishing.expect("it ends in time").unwrap();
    for worker in workers {
        let ended = worker.join().unwrap();
        assert!(
            matches!(ended, sardana::worker::Ended::Done { hash, .. } if hash == summary.hash),
            "{ended:?}"
        );
    }
    // Also where a runtime runs already.
    let error = bundle_from(&invited(&state, Role::Agent, 1), &keyring)
        .unwrap_err()
        .to_string();
    assert!(error.contains("role agent, expected worker"), "{error}");
}

#[tokio::test]
async fn an_agent_with_a_join_file_has_its_children_certified() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let hosting = coordinate(config(&state, 2)).await.unwrap();
    // It reads what it is given: credentials, among others.
    let script = ["-c", "head -c 100 >/dev/null && exit 3"];
    let mut host = host(&invited(&state, Role::Agent, 1), 1, "sh".into(), &script).await;
    let mut seen = Vec::new();
    while !seen.contains(&"exhausted") {
        let event = timeout(PATIENCE, host.next_event()).await.expect("it ends in time");
        match event.expect("the agent lives") {
            AgentEvent::Started { .. } => seen.push("started"),
            AgentEvent::Ended { how, .. } => {
                assert!(how.starts_with("exit code 3"), "{how}");
                seen.push("ended");
            }
            AgentEvent::Exhausted => seen.push("exhausted"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["started", "ended", "exhausted"]);
    host.end().await;
    hosting.end().await;
}

#[tokio::test]
async fn a_restarted_coordinator_has_the_same_job_and_remembers_what_was_used_up() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let first = coordinate(config(&state, 1)).await.unwrap();
    let (job, address) = (first.job(), first.addresses()[0]);
    let join = invited(&state, Role::Operator, 1);
    enrol(&join, Role::Operator).await.unwrap();

    let error = coordinate(config(&state, 1)).await.unwrap_err();
    assert!(
        matches!(&error, HostingError::State(StateError::Locked { pid, .. }) if *pid == std::process::id().to_string()),
        "{error}"
    );
    first.end().await;

    let again = CoordinateConfig {
        listen: address,
        ..config(&state, 1)
    };
    let second = coordinate_again(again).await;
    assert_eq!(second.job(), job);
    let error = enrol(&join, Role::Operator).await.unwrap_err().to_string();
    assert!(error.contains("used up (1 of 1)"), "{error}");
    second.end().await;
}

#[test]
fn there_is_no_invitation_to_a_job_that_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let config = InviteConfig {
        state_dir: state.clone(),
        role: Role::Agent,
        expires: Duration::from_secs(60),
        uses: 1,
        out: place.path().join("x.join"),
    };
    let error = invite(&config).unwrap_err();
    assert!(matches!(error, InviteError::State(StateError::Private(_))), "{error}");
    PrivateFolder::open(&state, Missing::Create).unwrap();
    let error = invite(&config).unwrap_err();
    assert!(matches!(error, InviteError::State(StateError::NoJob(_))), "{error}");
    assert!(error.to_string().contains("start its coordinator first"), "{error}");
}

#[tokio::test]
async fn an_operator_finds_the_only_job_and_files_of_dead_ones_vanish() {
    let folder = tempfile::tempdir().unwrap();
    let place = PrivateFolder::open(&folder.path().join("place"), Missing::Create).unwrap();
    assert!(matches!(find_running(&place).await, Err(PlaceError::NoJob(_))));

    let mut first = coordinate(config(&folder.path().join("one"), 1)).await.unwrap();
    let file = first.operator_join_file(&place).unwrap().to_owned();
    assert_eq!(find_running(&place).await.unwrap(), file);
    enrol(&file, Role::Operator).await.unwrap();

    // The file of a process that was killed.
    let stale = invited(&folder.path().join("one"), Role::Operator, 1);
    let dead = place.file("dead.join");
    let text = std::fs::read_to_string(&stale).unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = first.addresses()[0].to_string();
    std::fs::rename(&stale, &dead).unwrap();
    std::fs::write(&dead, text.replace(&address, &silent.local_addr().unwrap().to_string())).unwrap();
    assert_eq!(find_running(&place).await.unwrap(), file);
    assert!(!dead.exists());

    let mut second = coordinate(config(&folder.path().join("two"), 1)).await.unwrap();
    let other = second.operator_join_file(&place).unwrap().to_owned();
    let error = find_running(&place).await.unwrap_err();
    assert!(matches!(&error, PlaceError::Several(files) if files.len() == 2), "{error}");
    assert!(error.to_string().contains(&other.display().to_string()), "{error}");

    second.end().await;
    assert!(!other.exists(), "it goes with its job");
    assert_eq!(find_running(&place).await.unwrap(), file);
    first.end().await;
}

#[tokio::test]
async fn a_worker_comes_although_the_coordinator_starts_late() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let first = coordinate(config(&state, 2)).await.unwrap();
    let address = first.addresses()[0];
    let join = invited(&state, Role::Worker, 1);
    first.end().await;
    let keyring = Keyring::open(&place.path().join("keyring")).unwrap();
    let worker = thread::spawn(move || bundle_from(&join, &keyring).map(|bundle| serve(bundle, &job(2), Slope::new)));
    let late = CoordinateConfig {
        listen: address,
        ..config(&state, 2)
    };
    let mut hosting = coordinate_again(late).await;
    until_joined(&mut hosting).await;
    hosting.steering().request_stop();
    // It waits for another worker, so that there is no boundary to stop at; the one that is there is told.
    let error = timeout(PATIENCE, hosting.finish(|_, _| {})).await.expect("it ends in time");
    assert!(matches!(error, Err(HostingError::Failed(_))), "{error:?}");
    // How it ends is another test's matter.
    let _ = worker.join().unwrap().unwrap();
}
