//! The end of a worker is known before the system has taken back its memory, and its place is another's after that.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use memmap2::{Advice, MmapMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sardana_actors::agent::{Output, receive_bundle};

use super::orders::start;
use super::raw::{Site, soon};

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

#[tokio::test]
async fn the_end_of_a_worker_is_told_before_its_memory_is_free_and_another_is_started_after_that() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let script = format!(
        "export SARDANA_TEST_HELD={}; exec {} --exact ends::as_a_large_worker --nocapture",
        told.display(),
        std::env::current_exe().unwrap().display(),
    );
    let site = Site::new().await;
    let (agent, mut events) = start(&site, &script, 1, Output::Inherit).await;
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
    assert!(!has_ended(&process), "it is told as soon as no thread of it runs");
    events.started().await;
    assert!(has_ended(&process), "what it had is another's");
    drop(agent);
}
