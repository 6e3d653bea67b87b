//! Signals to the program, and what is left of it.

use super::program::{Running, gone, has, said, sardana};
use super::site::Site;

#[test]
fn the_first_signal_ends_the_job_at_a_boundary() {
    for signal in ["INT", "TERM"] {
        let site = Site::new();
        let running = site.run("-n 2 --restarts 0");
        let pids = running.pids(2);
        running.event("sardana::event::formed");
        running.signal(signal);
        has(&running.ends_well(), &["steps: ", "state: "]);
        pids.into_iter().for_each(gone);
    }
}

#[test]
fn the_second_signal_ends_everything_at_once() {
    for (second, code) in [("INT", 130), ("TERM", 143)] {
        // These workers never join, and do not end by themselves.
        let running = Running::start(&mut sardana("run --log-format json -n 2 -- sleep 1000"));
        let pids = running.pids(2);
        running.signal("INT");
        running.event("sardana::event::signal");
        running.signal(second);
        let (status, _) = running.end();
        assert_eq!(status.code(), Some(code));
        pids.into_iter().for_each(gone);
    }
}

/// No worker ever comes.
#[test]
fn one_signal_ends_a_take_over_that_waits_for_its_first_worker() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let site = Site::new();
        let (lost, address) = site.coordinator("lost", "127.0.0.1:0", "");
        lost.killed();
        let running = site.takes_over("lost", "elsewhere", &address);
        running.event("sardana::event::taking_over");
        running.signal(signal);
        let (status, out) = running.end();
        assert_eq!(status.code(), Some(code), "{out}");
        // It has let go of everything: another coordinator may wait there.
        let again = site.takes_over("lost", "elsewhere", &address);
        again.event("sardana::event::taking_over");
        again.killed();
    }
}

#[test]
fn sigkill_leaves_no_process() {
    let site = Site::new();
    let running = site.run("-n 3 --restarts 0");
    let pids = running.pids(3);
    running.event("sardana::event::formed");
    running.killed();
    pids.into_iter().for_each(gone);
}

#[test]
fn a_log_in_json_is_one_object_per_line() {
    let mut command = sardana("run --log-format json -n 1 --restarts 0 -- true");
    let [_, text] = said(command.env("RUST_LOG", "info"), 1);
    let (log, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    assert!(!log.is_empty());
    for line in log {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["target"].is_string(), "{line}");
    }
    assert!(rest.iter().all(|line| line.starts_with("sardana run: ")), "{rest:?}");
}
