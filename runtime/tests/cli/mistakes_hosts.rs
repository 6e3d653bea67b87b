//! Every way to get a join file, a state directory or an order wrong: the exit code, and what the message must hold.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::program::{Running, as_worker};
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
    site.done(&["status", "--join", text(&used)]);
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

    let running = site.run("2", "0");
    running.event("sardana::event::formed");
    let first = site.status(&[])["workers"][0]["worker"].as_str().unwrap().to_owned();
    holds(&site.failed(&["drain", "elsewhere"], 1), &["found `elsewhere`", &first]);
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
        &["nobody can dial 0.0.0.0:1"],
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
fn an_agent_whose_program_fails_says_so() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let join = site.invite("state", "agent", "1", "agent.join");
    let mut command = site.command(&["agent", "--join", text(&join), "-n", "1", "--notices", "none"]);
    command.args(["--restarts", "0", "--", "false"]);
    let (status, _) = Running::start(&mut command).end();
    assert_eq!(status.code(), Some(1));
    coordinator.signal("KILL");
    coordinator.end();
}
