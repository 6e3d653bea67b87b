//! A job on several hosts, all of them this one.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::program::{PATIENCE, Running, as_worker, gone, has};
use super::site::Site;

/// An agent with the join file `join`. It watches for no notices: of no machine on which these tests may run.
pub(crate) fn agent(site: &Site, join: &str, workers: u32) -> Running {
    site.start_workers(&format!("agent --notices none --join {join} -n {workers}"))
}

/// Waits until `workers` workers are there.
fn until(site: &Site, workers: usize) -> serde_json::Value {
    loop {
        let status = site.json("status --join operator.join");
        if status["workers"].as_array().unwrap().len() == workers {
            return status;
        }
    }
}

#[test]
fn one_join_file_serves_only_its_holder_until_it_expires() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "operator", "operator.join");
    site.invite("state", "agent", "agent.join");
    let first = agent(&site, "agent.join", 1);
    // Each of these is another process with the same file.
    until(&site, 1);
    let owner = format!("process {}", first.child.id());
    let second = "agent --notices none --join agent.join -n 1 -- true";
    site.fails(second, &["for 1 uses", &owner, "stop one", "sardana invite"]);
    first.killed();
    let again = agent(&site, "agent.join", 1);
    again.pids(1);
    until(&site, 1);
    site.fails("status --join operator.join --keyring stranger", &["used up (1 of 1)"]);

    let keyring = site.path("sardana/keyring");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&keyring), 0o700);
    let entries = fs::read_dir(&keyring).unwrap();
    let files: Vec<_> = entries.map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    // The operator's keys are those that no process has locked.
    let own = |file: &&PathBuf| file.extension().is_some_and(|end| end == "key") && !file.with_extension("lock").exists();
    let own = files.iter().find(own).unwrap();
    let open_to = |mode| fs::set_permissions(own, Permissions::from_mode(mode)).unwrap();
    open_to(0o640);
    site.fails(
        "status --join operator.join",
        &["expected mode 0600, found 0640", "chmod 600"],
    );
    open_to(0o600);
    until(&site, 1);
    again.killed();
    coordinator.killed();
}

#[test]
fn an_agent_that_is_asked_to_end_drains_its_workers() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "operator", "operator.join");
    site.invite("state", "agent", "agent.join");
    let agent = agent(&site, "agent.join", 2);
    let pids = agent.pids(2);
    until(&site, 2);

    // One more worker, by hand.
    site.invite("state", "worker", "worker.join");
    let mut command = Command::new("env");
    command.arg(format!("SARDANA_JOIN={}", site.path("worker.join").display()));
    let by_hand = Running::start(
        as_worker(&mut command)
            .env("XDG_STATE_HOME", site.path(""))
            .stdin(Stdio::null()),
    );
    let status = until(&site, 3);
    let mut workers = status["workers"].as_array().unwrap().iter();
    let unowned = workers.find(|worker| worker["host"].is_null()).unwrap();
    let unowned = unowned["worker"].as_str().unwrap();
    site.fails(&format!("kill {unowned} --join operator.join"), &["agent"]);

    agent.stopped();
    pids.into_iter().for_each(gone);
    until(&site, 1);
    site.done("stop --join operator.join");
    has(&coordinator.ends_well(), &["state: "]);
    by_hand.ends_well();
}

#[test]
fn an_agent_whose_workers_were_all_drained_ends_well() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "operator", "operator.join");
    let [goes, stays] = ["goes", "stays"].map(|host| {
        let join = format!("{host}.join");
        site.invite("state", "agent", &join);
        site.start_workers(&format!("agent --notices none --join {join} -n 2 --host {host}"))
    });
    until(&site, 4);
    site.done("drain goes --join operator.join");
    goes.ends_well();
    until(&site, 2);
    site.done("stop --join operator.join");
    coordinator.ends_well();
    stays.ends_well();
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
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "operator", "operator.join");
    site.invite("state", "agent", "agent.join");
    let pipe = site.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (is_started, is_gone) = writers_of(pipe);
    // The shell becomes the worker, so that this is what the worker has started.
    let mut command = site.command("agent --log-format json --notices none --join agent.join -n 1 -- sh -c");
    command.arg("sleep 1000 > pipe & exec \"$0\" \"$@\"");
    let agent = Running::start(as_worker(&mut command));
    let worker = agent.pids(1)[0];
    until(&site, 1);
    is_started.recv_timeout(PATIENCE).expect("it is started");
    assert_eq!(
        is_gone.try_recv(),
        Err(TryRecvError::Empty),
        "it lives as long as its worker does"
    );
    agent.killed();
    let ended = is_gone.recv_timeout(PATIENCE);
    ended.expect("what a worker has started ends with it");
    gone(worker);
    coordinator.killed();
}

/// The coordinator was not lost at all, and is followed. Started again it does not come back, for there is another one.
#[test]
fn a_coordinator_that_is_taken_over_says_by_whom_and_stays_away() {
    let site = Site::new();
    // A loopback host that no other process uses. A port that was held until it is needed would stay taken a while longer, by each child
    // of this process that is between its fork and its program.
    let standby = format!(
        "{}:7000",
        Ipv4Addr::from_bits(0x7f80_0000 | (std::process::id() & 0x007f_ffff))
    );
    let (first, _) = site.coordinator("state", "127.0.0.1:0", &format!("-n 2 --standby {standby}"));
    site.invite("state", "agent", "agent.join");
    let agent = agent(&site, "agent.join", 2);
    first.event("sardana::event::formed");
    let second = site.takes_over("state", "elsewhere", &standby);
    let (status, words) = first.fails();
    assert_eq!(status.code(), Some(1), "{words}");
    has(&words, &["another coordinator (i2) leads the job", "--take-over"]);
    second.event("sardana::event::adopted");
    let again = site.failed("coordinator --listen 127.0.0.1:0 --state-dir state");
    assert_eq!(again.trim_end(), words);
    second.stopped();
    agent.ends_well();
}

#[test]
fn a_restarted_coordinator_has_a_later_incarnation_and_takes_new_workers() {
    let site = Site::new();
    let (first, address) = site.coordinator("state", "127.0.0.1:0", "");
    first.killed();
    let (second, again) = site.coordinator("state", &address, "");
    assert_eq!(address, again);
    site.invite("state", "agent", "agent.join");
    let agent = agent(&site, "agent.join", 2);
    let formed = second.event("sardana::event::formed");
    assert!(formed["generation"].as_str().unwrap().starts_with("g2."), "{formed}");
    second.stopped();
    agent.ends_well();
}
