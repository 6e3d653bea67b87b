//! Every way to get a join file, a state directory or an order wrong: the exit code, and what the message must hold.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::program::as_worker;
use super::site::{Site, text};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn holds(found: &str, expected: &[&str]) {
    for word in expected {
        assert!(found.contains(word), "{word} is missing from: {found}");
    }
}

/// A copy of the join file `of`, changed by `change`.
fn changed(of: &Path, name: &str, change: impl Fn(&str) -> String) -> String {
    let path = of.with_file_name(name);
    fs::write(&path, change(&fs::read_to_string(of).unwrap())).unwrap();
    mode(&path, 0o600);
    text(&path).to_owned()
}

#[test]
fn join_files_that_are_no_good() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let good = site.invite("state", "operator", "100", "good.join");
    let open = changed(&good, "open.join", str::to_owned);
    mode(Path::new(&open), 0o644);
    let garbage = changed(&good, "garbage.join", |_| "no join file".to_owned());
    let later = changed(&good, "later.join", |text| text.replace("\"version\": 1", "\"version\": 9"));
    let expired = changed(&good, "expired.join", |text| {
        let mut file: serde_json::Value = serde_json::from_str(text).unwrap();
        file["expires"] = 1_000_000_000.into();
        file.to_string()
    });
    let worker = site.invite("state", "worker", "1", "worker.join");
    let missing = text(&site.path("missing.join")).to_owned();
    let used = site.invite("state", "operator", "1", "used.join");
    let holder = site.path("holder");
    site.done(&["status", "--join", text(&used), "--keyring", text(&holder)]);
    let folder = text(&site.path("")).to_owned();
    let rows: [(&str, &[&str]); 8] = [
        (&missing, &["missing.join", "not there", "see whether the path is right"]),
        (&open, &["open.join", "0600", "0644", "chmod"]),
        (&garbage, &["garbage.join", "not a join file", "sardana invite"]),
        (&later, &["later.join", "version", "9"]),
        (&expired, &["expired.join", "expired at"]),
        (text(&used), &["used up (1 of 1)", "sardana invite"]),
        (
            text(&worker),
            &["role worker", "expected operator", "sardana invite --role operator"],
        ),
        (&folder, &["expected a file"]),
    ];
    for (join, expected) in rows {
        for command in [
            &["status"][..],
            &["drain", "r0"],
            &["kill", "r0"],
            &["scale", "-n", "2"],
            &["stop"],
        ] {
            holds(&site.failed(&[command, &["--join", join]].concat(), 1), expected);
        }
    }
    let agent = ["agent", "-n", "1", "--join", text(&good), "--", "true"];
    holds(&site.failed(&agent, 1), &["role operator", "expected agent"]);
    coordinator.signal("KILL");
    coordinator.end();
}

#[test]
fn a_worker_by_hand_is_told_what_is_wrong_with_its_join_file() {
    let site = Site::new();
    let mut command = std::process::Command::new("env");
    command.arg(format!("SARDANA_JOIN={}", text(&site.path("missing.join"))));
    command.env("XDG_STATE_HOME", site.path(""));
    let output = as_worker(&mut command).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    holds(
        &super::program::words(&output),
        &["sardana worker: SARDANA_JOIN", "missing.join", "not there"],
    );
}

#[test]
fn orders_without_a_job() {
    let site = Site::new();
    for command in [
        &["status"][..],
        &["drain", "r0"],
        &["kill", "r0"],
        &["scale", "-n", "2"],
        &["stop"],
    ] {
        holds(
            &site.failed(command, 1),
            &["no job of this user runs on this host", "join file"],
        );
    }
}

#[test]
fn orders_that_cannot_be_carried_out() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    holds(&site.failed(&["drain", "r0"], 1), &["no workers yet", "found `r0`"]);
    holds(&site.failed(&["kill", "w12"], 1), &["no workers yet", "found `w12`"]);
    holds(&site.failed(&["scale", "-n", "2"], 1), &["agent"]);
    coordinator.signal("KILL");
    coordinator.end();
}

/// Workers that are none of the job's.
#[test]
fn orders_about_workers_that_are_not_there() {
    let site = Site::new();
    let running = site.run("2", "0");
    running.event("sardana::event::formed");
    let status = site.status(&[]);
    let ids: Vec<_> = (0..2)
        .map(|index| status["workers"][index]["worker"].as_str().unwrap())
        .collect();
    for order in ["kill", "drain"] {
        // A whole id, its start, a rank, a host.
        for whom in ["wffffffffffffffff", "wffffffff", "r7", "elsewhere"] {
            let found = format!("found `{whom}`");
            let expected = ["none of this job", &found, "sardana status", ids[0], ids[1], "r0", "r1"];
            holds(&site.failed(&[order, whom], 1), &expected);
        }
    }
    // No worker was drained or killed by mistake.
    assert_eq!(site.status(&[])["workers"].as_array().unwrap().len(), 2);
    running.signal("KILL");
    running.end();
}

/// A coordinator that does not start.
fn refused(site: &Site, arguments: &str) -> String {
    let words: Vec<&str> = ["coordinator"].into_iter().chain(arguments.split(' ')).collect();
    site.failed(&words, 1)
}

#[test]
fn addresses_of_a_coordinator() {
    let site = Site::new();
    let state = site.path("state");
    let listen = |address: &str| format!("--state-dir {} --listen {address}", text(&state));
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap();
    holds(
        &refused(&site, &listen(&taken.to_string())),
        &["port is taken", "choose another port"],
    );
    drop(held);
    holds(&refused(&site, &listen("192.0.2.1:0")), &["192.0.2.1", "no such address"]);
    holds(&refused(&site, &listen("0.0.0.0:0")), &["0.0.0.0", "--advertise"]);
    holds(
        &refused(&site, &format!("{} --advertise 0.0.0.0:1", listen("127.0.0.1:0"))),
        &["no process can dial 0.0.0.0:1"],
    );
}

#[test]
fn state_directories_that_are_no_good() {
    let site = Site::new();
    let start = |state: &Path| refused(&site, &format!("--listen 127.0.0.1:0 --state-dir {}", text(state)));
    let open = site.path("open");
    fs::create_dir(&open).unwrap();
    mode(&open, 0o755);
    holds(&start(&open), &["open", "0700", "0755", "chmod"]);
    let file = site.path("file");
    fs::write(&file, "").unwrap();
    holds(&start(&file), &["expected a folder"]);
    if fs::metadata("/").is_ok_and(|root| std::os::unix::fs::MetadataExt::uid(&root) != rustix::process::getuid().as_raw()) {
        holds(&start(Path::new("/")), &["owner"]);
    }

    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let state = site.path("state");
    let pid = coordinator.child.id().to_string();
    holds(&start(&state), &["another coordinator uses this state directory", &pid]);
    let join = site.invite("state", "agent", "1", "agent.join");
    let again = ["invite", "--state-dir", text(&state), "-o", text(&join)];
    holds(&site.failed(&again, 1), &["agent.join", "there already"]);
    coordinator.signal("KILL");
    coordinator.end();

    let authority = state.join("authority.json");
    let whole = fs::read_to_string(&authority).unwrap();
    fs::write(&authority, &whole[..whole.len() / 2]).unwrap();
    holds(&start(&state), &["authority is damaged", "from a copy"]);
    fs::write(&authority, &whole).unwrap();
    mode(&authority, 0o644);
    holds(&start(&state), &["authority", "0600", "0644"]);
    let (nowhere, out) = (site.path("nowhere"), site.path("x.join"));
    let nowhere = ["invite", "--state-dir", text(&nowhere), "-o", text(&out)];
    holds(&site.failed(&nowhere, 1), &["not there"]);
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
    std::os::unix::fs::chown(&theirs, Some(65_534), None).unwrap();
    let start = |state: &Path| refused(&site, &format!("--listen 127.0.0.1:0 --state-dir {}", text(state)));
    let words = [
        "theirs",
        "expected the owner 0",
        "found 65534",
        "use one of your own, or run as its owner",
    ];
    holds(&start(&theirs), &words);
    let join = site.path("x.join");
    let invite = ["invite", "--state-dir", text(&theirs), "-o", text(&join)];
    holds(&site.failed(&invite, 1), &words);
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "nothing is left in it");

    // The folder is one's own, and what is in it is not.
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    coordinator.signal("KILL");
    coordinator.end();
    let state = site.path("state");
    std::os::unix::fs::chown(state.join("authority.json"), Some(65_534), None).unwrap();
    holds(&start(&state), &["authority.json", "expected the owner 0", "found 65534"]);
}

/// The program where no file may grow: the nearest to a full disk that needs no disk and no root.
fn without_room(site: &Site, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    // The signal that comes with it is ignored, so that the write fails.
    command.args([
        "-c",
        "trap '' XFSZ && ulimit -f 0 && exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_sardana"),
    ]);
    command.args(arguments).env("XDG_RUNTIME_DIR", site.path(""));
    command.env("XDG_STATE_HOME", site.path(""));
    command.env("RUST_LOG", "error").stdin(std::process::Stdio::null());
    command
}

#[test]
fn state_directories_on_a_full_disk() {
    let site = Site::new();
    let probe = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ && ulimit -f 0 && ! echo x > \"$1\"", "sh"])
        .arg(site.path("probe"))
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return println!("skipped: the size of files cannot be limited here");
    }
    let state = site.path("state");
    let start = ["coordinator", "--listen", "127.0.0.1:0", "--state-dir", text(&state)];
    let output = without_room(&site, &start).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = ["state", "File too large", "free some space", "a folder on another disk"];
    holds(&super::program::words(&output), &words);
    // Once there is room it starts as if nothing had happened.
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let join = site.path("full.join");
    let invite = ["invite", "--state-dir", text(&state), "-o", text(&join)];
    let output = without_room(&site, &invite).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    holds(&super::program::words(&output), &["full.join", "free some space"]);
    assert!(!join.exists(), "no half of a file is left");
    coordinator.signal("KILL");
    coordinator.end();
}

#[test]
fn an_agent_whose_program_fails_says_so() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let join = site.invite("state", "agent", "1", "agent.join");
    let quiet = ["-n", "1", "--notices", "none", "--restarts", "0", "--", "false"];
    let agent = [&["agent", "--join", text(&join)][..], &quiet].concat();
    holds(&site.failed(&agent, 1), &["no worker is left", "exit code 1"]);
    let join = site.invite("state", "agent", "1", "other.join");
    let missing = [
        "agent",
        "--join",
        text(&join),
        "-n",
        "1",
        "--notices",
        "none",
        "--",
        "./no-such-program",
    ];
    let words = ["no-such-program could not be started", "No such file", "give the path"];
    holds(&site.failed(&missing, 1), &words);
    coordinator.signal("KILL");
    coordinator.end();
}
