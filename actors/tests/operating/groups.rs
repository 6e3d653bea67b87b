//! What a worker has started ends with it, however it ends.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sardana_actors::agent::{BUNDLE_VARIABLE, Bundle, Output, receive_bundle};
use sardana_net::trust::{Authority, Role};
use sardana_net::wire::limits::BUNDLE_BYTES;
use sardana_net::wire::write_frame_blocking;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};

use super::orders::start;
use super::raw::{JOB, LOOPBACK, PATIENCE, Site, soon};

/// What a shell does that starts another process, and says so in `told`.
fn starting(told: &Path, then: &str) -> String {
    let new = told.with_extension("new");
    format!(
        "sleep 1000 & echo $! > {0}; mv {0} {1}; {then}",
        new.display(),
        told.display()
    )
}

/// The process that was started.
async fn started(told: &Path) -> Pid {
    let read = async {
        loop {
            match std::fs::read_to_string(told) {
                Ok(text) => break Pid::from_raw(text.trim().parse().unwrap()).unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    soon(read).await
}

/// Returns when the process has ended.
async fn ended(pid: Pid) {
    let descriptor = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return,
        Err(error) => panic!("{error}"),
    };
    let limit = Timespec::try_from(PATIENCE).unwrap();
    let wait = move || poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap();
    let ended = tokio::task::spawn_blocking(wait).await.unwrap();
    assert!(ended > 0, "what a worker has started ends with it");
}

fn is_there(pid: Pid) -> bool {
    kill_process(pid, Signal::CONT).is_ok()
}

#[tokio::test]
async fn a_worker_that_ends_or_is_killed_takes_along_what_it_has_started() {
    // By itself, well or not, and by signals.
    for then in ["exit 0", "exit 7", "kill -KILL $$", "kill -TERM $$"] {
        let place = tempfile::tempdir().unwrap();
        let told = place.path().join("told");
        let site = Site::new().await;
        // It goes on when the test has seen what it has started.
        let go = place.path().join("go");
        let script = starting(
            &told,
            &format!("while [ ! -e {} ]; do sleep 0.01; done; {then}", go.display()),
        );
        let (agent, mut events) = start(&site, &script, 1, Output::Inherit).await;
        let child = started(&told).await;
        assert!(is_there(child), "{then}");
        std::fs::write(&go, "").unwrap();
        ended(child).await;
        events.end().await;
        drop(agent);
    }
}

#[tokio::test]
async fn an_operator_that_kills_a_worker_kills_what_it_has_started() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let site = Site::new().await;
    let (agent, mut events) = start(&site, &starting(&told, "exec sleep 1000"), 1, Output::Inherit).await;
    let (worker, _) = events.started().await;
    let child = started(&told).await;
    // The shell does not join; the test does so in its name, as only workers that have joined can be named.
    let _joined = site.join(worker.get()).await;
    let mut operator = site.operator().await;
    let whom = worker.to_string();
    let answer = operator.ask(&OperatorRequest::Kill { whom }).await.unwrap();
    assert!(matches!(answer, OperatorAnswer::Done { .. }), "{answer:?}");
    ended(child).await;
    assert_eq!(events.end().await, "signal 9");
    drop(agent);
}

#[tokio::test]
async fn an_agent_that_is_dropped_or_ends_leaves_nothing_of_its_workers() {
    for way in ["dropped", "ended"] {
        let place = tempfile::tempdir().unwrap();
        let told = place.path().join("told");
        let site = Site::new().await;
        // It does not heed the end of the job.
        let script = starting(&told, "trap '' TERM; while :; do sleep 0.01; done");
        let (agent, _events) = start(&site, &script, 1, Output::Inherit).await;
        let child = started(&told).await;
        if way == "ended" {
            agent.end().await;
        } else {
            drop(agent);
        }
        ended(child).await;
    }
}

/// Not a test by itself: what the next one starts as a worker.
#[test]
fn as_a_worker() {
    let Some(told) = std::env::var_os("SARDANA_TEST_TOLD") else {
        return;
    };
    receive_bundle().unwrap().expect("a bundle is given");
    Command::new("sh")
        .arg("-c")
        .arg(starting(Path::new(&told), "wait"))
        .status()
        .unwrap();
}

/// As when the agent is killed: its workers are not waited for, and they read the end of their input.
#[tokio::test]
async fn a_worker_whose_agent_is_gone_ends_with_all_that_it_has_started() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "groups::as_a_worker", "--nocapture"])
        .env("SARDANA_TEST_TOLD", &told)
        .env(BUNDLE_VARIABLE, "stdin, own group")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let authority = Authority::new(JOB).unwrap();
    let bundle = Bundle {
        credentials: authority.issue(Role::Worker, 5).unwrap(),
        coordinator: LOOPBACK.into(),
        listen: LOOPBACK,
        advertise: None,
        tally: None,
        memory: None,
        ends: Vec::new(),
    };
    let mut lifeline = worker.stdin.take().unwrap();
    let mut frame = Vec::new();
    write_frame_blocking(&mut frame, &bundle, BUNDLE_BYTES).unwrap();
    lifeline.write_all(&frame).unwrap();
    let child = started(&told).await;
    assert!(is_there(child));
    drop(lifeline);
    ended(child).await;
    assert_eq!(worker.wait().unwrap().signal(), Some(9));
}
