//! A job on several hosts, all of them this one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::program::{PATIENCE, Running, as_worker, gone};
use super::site::{Site, text};

/// An agent of the job of the state directory `state`.
pub(crate) fn agent(site: &Site, join: &str, workers: &str) -> Running {
    agent_through(site, join, workers, &[])
}

/// The same, whose workers are started by these words, which the command line of a worker follows.
fn agent_through(site: &Site, join: &str, workers: &str, through: &[&str]) -> Running {
    let mut command = site.command(&["agent", "--log-format", "json", "--join", join, "-n", workers]);
    // Of no machine on which these tests may run.
    command.args(["--notices", "none", "--"]).args(through);
    Running::start(as_worker(&mut command).env("RUST_LOG", "info"))
}

/// Waits until `workers` workers are there.
fn until(site: &Site, operator: &str, workers: usize) -> serde_json::Value {
    loop {
        let status = site.status(&["--join", operator]);
        if status["workers"].as_array().unwrap().len() == workers {
            return status;
        }
    }
}

#[test]
fn one_join_file_serves_only_its_holder_until_it_expires() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let operator = site.invite("state", "operator", "1", "mine.join");
    let operator = text(&operator);
    let join = site.invite("state", "agent", "1", "agent.join");
    let first = agent(&site, text(&join), "1");
    // Each of these is another process with the same file.
    until(&site, operator, 1);
    let second = ["agent", "--notices", "none", "--join", text(&join), "-n", "1", "--", "true"];
    let words = site.failed(&second, 1);
    for expected in [
        "for 1 uses",
        &format!("process {}", first.child.id()),
        "stop one",
        "sardana invite",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    // As at a power cut: nothing is said, and nothing is cleaned up.
    first.signal("KILL");
    first.end();
    let again = agent(&site, text(&join), "1");
    again.pids(1);
    until(&site, operator, 1);
    let stranger = site.path("stranger");
    let words = site.failed(&["status", "--join", operator, "--keyring", text(&stranger)], 1);
    assert!(words.contains("used up (1 of 1)"), "{words}");

    let keyring = site.path("sardana/keyring");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&keyring), 0o700);
    let files: Vec<_> = std::fs::read_dir(&keyring)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(files.len() >= 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    // The operator's keys are those that no process has locked.
    let own = |file: &&std::path::PathBuf| {
        file.extension().is_some_and(|end| end == "key") && !file.with_extension("lock").exists()
    };
    let own = files.iter().find(own).unwrap();
    let open_to = |mode| std::fs::set_permissions(own, std::fs::Permissions::from_mode(mode)).unwrap();
    open_to(0o640);
    let words = site.failed(&["status", "--join", operator], 1);
    assert!(
        words.contains("expected mode 0600, found 0640") && words.contains("chmod 600"),
        "{words}"
    );
    open_to(0o600);
    until(&site, operator, 1);
    for running in [again, coordinator] {
        running.signal("KILL");
        running.end();
    }
}

#[test]
fn an_agent_that_is_asked_to_end_drains_its_workers() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let operator = site.invite("state", "operator", "1", "operator.join");
    let operator = text(&operator);
    let join = site.invite("state", "agent", "1", "agent.join");
    let agent = agent(&site, text(&join), "2");
    let pids = agent.pids(2);
    until(&site, operator, 2);

    // One more worker, by hand.
    let join = site.invite("state", "worker", "1", "worker.join");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker::becomes_a_worker", "--nocapture"]);
    let by_hand = Running::start(
        command
            .env("SARDANA_JOIN", &join)
            .env("XDG_STATE_HOME", site.path(""))
            .stdin(std::process::Stdio::null()),
    );
    until(&site, operator, 3);
    let unowned = site.status(&["--join", operator]);
    let unowned = unowned["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|worker| worker["host"].is_null());
    let unowned = unowned.unwrap()["worker"].as_str().unwrap().to_owned();
    let words = site.failed(&["kill", &unowned, "--join", operator], 1);
    assert!(words.contains("agent"), "{words}");

    agent.stopped();
    for pid in pids {
        gone(pid);
    }
    until(&site, operator, 1);
    site.done(&["stop", "--join", operator]);
    let out = coordinator.ends_well();
    assert!(out.contains("state: "), "{out}");
    by_hand.ends_well();
}

/// Hears when a process has opened this pipe to write into it, and when all that have are gone.
fn writers_of(pipe: PathBuf) -> (Receiver<()>, Receiver<()>) {
    let ((come, has_come), (go, are_gone)) = (channel(), channel());
    thread::spawn(move || {
        let mut open = File::open(pipe).unwrap();
        come.send(()).unwrap();
        open.read_to_end(&mut Vec::new()).unwrap();
        go.send(())
    });
    (has_come, are_gone)
}

/// Nothing ends the agent's workers: they see that it is gone, and take along what they have started.
#[test]
fn an_agent_that_is_killed_leaves_nothing_of_its_workers() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let operator = site.invite("state", "operator", "1", "operator.join");
    let join = site.invite("state", "agent", "1", "agent.join");
    let pipe = site.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (is_started, is_gone) = writers_of(pipe.clone());
    // The shell becomes the worker, so that this is what the worker has started.
    let script = format!("sleep 1000 > {} & exec \"$0\" \"$@\"", text(&pipe));
    let agent = agent_through(&site, text(&join), "1", &["sh", "-c", &script]);
    let worker = agent.pids(1)[0];
    until(&site, text(&operator), 1);
    is_started.recv_timeout(PATIENCE).expect("it is started");
    assert_eq!(
        is_gone.try_recv(),
        Err(TryRecvError::Empty),
        "it lives as long as its worker does"
    );
    agent.signal("KILL");
    agent.end();
    is_gone
        .recv_timeout(PATIENCE)
        .expect("what a worker has started ends with it");
    gone(worker);
    coordinator.signal("KILL");
    coordinator.end();
}

/// The coordinator was not lost at all, and is followed. Started again it does not come back, for there is another one.
#[test]
fn a_coordinator_that_is_taken_over_says_by_whom_and_stays_away() {
    let site = Site::new();
    // The port stays taken until it is needed.
    let held = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    let standby = held.local_addr().unwrap().to_string();
    let (first, _) = site.coordinator("state", "127.0.0.1:0", &["-n", "2", "--standby", &standby]);
    let join = site.invite("state", "agent", "1", "agent.join");
    let agent = agent(&site, text(&join), "2");
    first.event("sardana::event::formed");
    drop(held);
    let second = site.takes_over("state", "elsewhere", &standby);
    let (status, words) = first.fails();
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(
        words.contains("another coordinator (i2) leads the job") && words.contains("--take-over"),
        "{words}"
    );
    second.event("sardana::event::adopted");
    let state = site.path("state");
    let again = ["coordinator", "--listen", "127.0.0.1:0", "--state-dir", text(&state)];
    assert_eq!(site.failed(&again, 1).trim_end(), words);
    second.stopped();
    agent.ends_well();
}

#[test]
fn a_restarted_coordinator_has_a_later_incarnation_and_takes_new_workers() {
    let site = Site::new();
    let (first, address) = site.coordinator("state", "127.0.0.1:0", &[]);
    first.signal("KILL");
    first.end();
    let (second, again) = site.coordinator("state", &address, &[]);
    assert_eq!(address, again);
    let join = site.invite("state", "agent", "1", "agent.join");
    let agent = agent(&site, text(&join), "2");
    let formed = second.event("sardana::event::formed");
    assert!(formed["generation"].as_str().unwrap().starts_with("g2."), "{formed}");
    second.stopped();
    agent.ends_well();
}
