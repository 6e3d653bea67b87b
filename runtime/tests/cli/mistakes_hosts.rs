//! Every way to get a join file, a state directory or an order wrong: the exit code, and what the message must hold.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use super::operating::{ORDERS, ids};
use super::program::{as_worker, has, said};
use super::site::Site;

/// Another user.
const STRANGER: Option<u32> = Some(65_534);

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn join_files_that_are_no_good() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.done("invite --state-dir state --role operator --uses 100 -o good.join");
    let good = fs::read_to_string(site.path("good.join")).unwrap();
    let changed = |name: &str, text: &str| {
        fs::write(site.path(name), text).unwrap();
        mode(&site.path(name), 0o600);
    };
    changed("open.join", &good);
    mode(&site.path("open.join"), 0o644);
    changed("garbage.join", "no join file");
    changed("later.join", &good.replace("\"version\": 1", "\"version\": 9"));
    let mut expired: serde_json::Value = serde_json::from_str(&good).unwrap();
    expired["expires"] = 1_000_000_000.into();
    changed("expired.join", &expired.to_string());
    site.invite("state", "worker", "worker.join");
    site.invite("state", "operator", "used.join");
    site.done("status --join used.join --keyring holder");
    let rows: [(&str, &[&str]); 8] = [
        (
            "missing.join",
            &["missing.join", "not there", "see whether the path is right"],
        ),
        ("open.join", &["open.join", "0600", "0644", "chmod"]),
        ("garbage.join", &["garbage.join", "not a join file", "sardana invite"]),
        ("later.join", &["later.join", "version", "9"]),
        ("expired.join", &["expired.join", "expired at"]),
        ("used.join", &["used up (1 of 1)", "sardana invite"]),
        (
            "worker.join",
            &["role worker", "expected operator", "sardana invite --role operator"],
        ),
        (".", &["expected a file"]),
    ];
    for (join, expected) in rows {
        for order in ORDERS {
            site.fails(&format!("{order} --join {join}"), expected);
        }
    }
    site.fails("agent -n 1 --join good.join -- true", &["role operator", "expected agent"]);
    coordinator.killed();
}

#[test]
fn a_worker_by_hand_is_told_what_is_wrong_with_its_join_file() {
    let site = Site::new();
    let mut command = Command::new("env");
    command.arg("SARDANA_JOIN=missing.join").current_dir(site.path(""));
    let [_, words] = said(as_worker(&mut command).env("XDG_STATE_HOME", site.path("")), 3);
    has(&words, &["sardana worker: SARDANA_JOIN", "missing.join", "not there"]);
}

#[test]
fn orders_without_a_job() {
    let site = Site::new();
    for order in ORDERS {
        site.fails(order, &["no job of this user runs on this host", "join file"]);
    }
}

#[test]
fn orders_that_cannot_be_carried_out() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.fails("drain r0", &["no workers yet", "found `r0`"]);
    site.fails("kill w12", &["no workers yet", "found `w12`"]);
    site.fails("scale -n 2", &["agent"]);
    coordinator.killed();
}

/// Workers that are none of the job's.
#[test]
fn orders_about_workers_that_are_not_there() {
    let site = Site::new();
    let running = site.run("-n 2 --restarts 0");
    running.event("sardana::event::formed");
    let workers = ids(&site.json("status"));
    for order in ["kill", "drain"] {
        // A whole id, its start, a rank, a host.
        for whom in ["wffffffffffffffff", "wffffffff", "r7", "elsewhere"] {
            let found = format!("found `{whom}`");
            let expected = [
                "none of this job",
                &found,
                "sardana status",
                &workers[0],
                &workers[1],
                "r0",
                "r1",
            ];
            site.fails(&format!("{order} {whom}"), &expected);
        }
    }
    // No worker was drained or killed by mistake.
    assert_eq!(ids(&site.json("status")), workers);
    running.killed();
}

#[test]
fn addresses_of_a_coordinator() {
    let site = Site::new();
    let refused = |address: &str, words: &[&str]| {
        site.fails(&format!("coordinator --state-dir state --listen {address}"), words);
    };
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap();
    refused(&taken.to_string(), &["port is taken", "choose another port"]);
    drop(held);
    refused("192.0.2.1:0", &["192.0.2.1", "no such address"]);
    refused("0.0.0.0:0", &["0.0.0.0", "--advertise"]);
    refused("127.0.0.1:0 --advertise 0.0.0.0:1", &["no process can dial 0.0.0.0:1"]);
}

/// Requires that no coordinator starts with the state directory `state`.
fn refused(site: &Site, state: &str, words: &[&str]) {
    site.fails(&format!("coordinator --listen 127.0.0.1:0 --state-dir {state}"), words);
}

#[test]
fn state_directories_that_are_no_good() {
    let site = Site::new();
    fs::create_dir(site.path("open")).unwrap();
    mode(&site.path("open"), 0o755);
    refused(&site, "open", &["open", "0700", "0755", "chmod"]);
    fs::write(site.path("file"), "").unwrap();
    refused(&site, "file", &["expected a folder"]);
    if fs::metadata("/").is_ok_and(|root| root.uid() != rustix::process::getuid().as_raw()) {
        refused(&site, "/", &["owner"]);
    }

    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    let pid = coordinator.child.id().to_string();
    refused(&site, "state", &["another coordinator uses this state directory", &pid]);
    site.invite("state", "agent", "agent.join");
    site.fails("invite --state-dir state -o agent.join", &["agent.join", "there already"]);
    coordinator.killed();

    let authority = site.path("state/authority.json");
    let whole = fs::read_to_string(&authority).unwrap();
    fs::write(&authority, &whole[..whole.len() / 2]).unwrap();
    refused(&site, "state", &["authority is damaged", "from a copy"]);
    fs::write(&authority, &whole).unwrap();
    mode(&authority, 0o644);
    refused(&site, "state", &["authority", "0600", "0644"]);
    site.fails("invite --state-dir nowhere -o x.join", &["not there"]);
}

#[test]
fn state_directories_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root, to give a folder to another user");
    }
    let site = Site::new();
    let theirs = site.path("theirs");
    fs::create_dir(&theirs).unwrap();
    mode(&theirs, 0o700);
    chown(&theirs, STRANGER, None).unwrap();
    let words = [
        "theirs",
        "expected the owner 0",
        "found 65534",
        "use one of your own, or run as its owner",
    ];
    refused(&site, "theirs", &words);
    site.fails("invite --state-dir theirs -o x.join", &words);
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "nothing is left in it");

    // The folder is one's own, and what is in it is not.
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    coordinator.killed();
    chown(site.path("state/authority.json"), STRANGER, None).unwrap();
    refused(&site, "state", &["authority.json", "expected the owner 0", "found 65534"]);
}

/// What the program says where no file may grow: the nearest to a full disk that needs no disk and no root.
fn without_room(site: &Site, line: &str) -> String {
    let program = site.command(line);
    // The signal that comes with it is ignored, so that the write fails.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ && ulimit -f 0 && exec \"$@\"", "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    let set = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let [_, words] = said(command.envs(set).current_dir(site.path("")).stdin(Stdio::null()), 1);
    words
}

#[test]
fn state_directories_on_a_full_disk() {
    let site = Site::new();
    let probe = Command::new("sh")
        .args(["-c", "trap '' XFSZ && ulimit -f 0 && ! echo x > \"$1\"", "sh"])
        .arg(site.path("probe"))
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return println!("skipped: the size of files cannot be limited here");
    }
    let words = ["state", "File too large", "free some space", "a folder on another disk"];
    has(
        &without_room(&site, "coordinator --listen 127.0.0.1:0 --state-dir state"),
        &words,
    );
    // Once there is room it starts as if nothing had happened.
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    let invited = without_room(&site, "invite --state-dir state -o full.join");
    has(&invited, &["full.join", "free some space"]);
    assert!(!site.path("full.join").exists(), "no half of a file is left");
    coordinator.killed();
}

#[test]
fn an_agent_whose_program_fails_says_so() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    let fails = |join: &str, program: &str, words: &[&str]| {
        site.invite("state", "agent", join);
        site.fails(&format!("agent --join {join} -n 1 --notices none {program}"), words);
    };
    fails("agent.join", "--restarts 0 -- false", &["no worker is left", "exit code 1"]);
    let words = ["no-such-program could not be started", "No such file", "give the path"];
    fails("other.join", "-- ./no-such-program", &words);
    coordinator.killed();
}
