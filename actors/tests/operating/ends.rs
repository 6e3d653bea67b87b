//! The end of a worker is known before the system has taken back its memory, and its place is another's after that.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use memmap2::{Advice, MmapMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sardana_actors::agent::{AgentConfig, AgentEvent, Output, receive_bundle};
use sardana_actors::coordinator::CoordinatorConfig;
use sardana_net::trust::Authority;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};

use super::orders::status;
use super::raw::{JOB, Site, soon, start_agent};

/// In small pages, which takes the system long to take back.
const HELD_BYTES: usize = 512 << 20;

/// Not a test by itself: what the one below starts as a worker. The first one holds much memory, and says so in a file.
#[test]
fn as_a_large_worker() {
    let Some(told) = std::env::var_os("SARDANA_TEST_HELD") else {
        return;
    };
    receive_bundle().unwrap().expect("a bundle is given");
    let first = !Path::new(&told).exists();
    let mut memory = MmapMut::map_anon(if first { HELD_BYTES } else { 1 }).unwrap();
    memory.advise(Advice::NoHugePage).unwrap();
    memory.fill(1);
    std::fs::write(&told, "").unwrap();
    loop {
        thread::park();
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)).unwrap() > 0
}

/// What starts the worker that is to follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    ByItsAgent,
    ByAnOperator,
}

/// A round: whether the end was told before the process had ended. The next worker is started after that in any case.
async fn told_early(next: Next) -> bool {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let script = format!(
        "export SARDANA_TEST_HELD={}; exec {} --exact ends::as_a_large_worker --nocapture",
        told.display(),
        std::env::current_exe().unwrap().display(),
    );
    let of_one = |config| CoordinatorConfig {
        min: 1,
        expected: 1,
        ..config
    };
    let site = Site::with(Authority::new(JOB).unwrap(), of_one).await.unwrap();
    let config = AgentConfig {
        output: Output::Inherit,
        restarts: u32::from(next == Next::ByItsAgent),
        ..site.agent("sh", &["-c", &script])
    };
    let (agent, mut events) = start_agent(config).await.unwrap();
    let (_, pid) = events.started().await;
    soon(async {
        while !told.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let process = pidfd_open(pid, PidfdFlags::NONBLOCK).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(events.end().await, "signal 9");
    let early = !has_ended(&process);
    if next == Next::ByAnOperator {
        assert_eq!(events.next().await, AgentEvent::Exhausted);
        let mut operator = site.operator().await;
        // The coordinator starts one more only once it knows of the end.
        while !status(&mut operator).await.agents[0].children.is_empty() {}
        let answer = operator.ask(&OperatorRequest::Scale { workers: 1 }).await.unwrap();
        assert!(
            matches!(&answer, OperatorAnswer::Done { what } if what.contains("1 on here")),
            "{answer:?}"
        );
        assert_eq!(events.next().await, AgentEvent::Grown { left: 1 });
    }
    events.started().await;
    assert!(has_ended(&process), "what it had is another's");
    drop(agent);
    early
}

/// A busy host may see to its agent late.
const ROUNDS: usize = 5;

async fn is_told_early(next: Next) {
    for _ in 0..ROUNDS {
        if told_early(next).await {
            return;
        }
    }
    panic!("in none of {ROUNDS} rounds the end was told before the system had taken back the memory");
}

#[tokio::test]
async fn the_end_of_a_worker_is_told_before_its_memory_is_free_and_another_is_started_after_that() {
    is_told_early(Next::ByItsAgent).await;
}

#[tokio::test]
async fn nor_is_one_more_started_before_that() {
    is_told_early(Next::ByAnOperator).await;
}
