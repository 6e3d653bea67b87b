//! Every way to get the command line wrong: the exit code, and what the message must hold.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use super::program::{output, words};

/// A command line, its exit code, and words of its message.
type Row = (Vec<String>, i32, Vec<&'static str>);

fn row(arguments: &str, code: i32, words: &[&'static str]) -> Row {
    let arguments = arguments.split_whitespace().map(str::to_owned).collect();
    (arguments, code, words.to_vec())
}

fn check(rows: Vec<Row>) {
    for (arguments, code, expected) in rows {
        let output = output(&arguments);
        let words = words(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
        for word in expected {
            assert!(words.contains(word), "{arguments:?}: {word} is missing from: {words}");
        }
        assert!(!words.contains("panicked"), "{arguments:?}: {words}");
    }
}

#[test]
fn arguments_that_cannot_be_read() {
    check(vec![
        row("", 2, &["Usage", "run", "status"]),
        row("fly", 2, &["unrecognized subcommand 'fly'"]),
        row("run", 2, &["--workers", "PROGRAM"]),
        row("run -n 2", 2, &["PROGRAM"]),
        row("run -n 2 train", 2, &["train", "--"]),
        row("run -- true", 2, &["--workers <N>"]),
        row("run -n 0 -- true", 2, &["0", "1..=1024"]),
        row("run -n 1025 -- true", 2, &["1025", "1..=1024"]),
        row("run -n two -- true", 2, &["two"]),
        row("run -n 1 --restarts=-1 -- true", 2, &["-1", "--restarts"]),
        row("run -n 1 --listen here -- true", 2, &["here", "--listen"]),
        row("run -n 1 --listen 127.0.0.1 -- true", 2, &["127.0.0.1", "--listen"]),
        row(
            "run -n 1 --log-dir x --no-prefix -- true",
            2,
            &["--log-dir", "--no-prefix", "cannot be used"],
        ),
        row("run -n 1 --balance maybe -- true", 2, &["maybe", "--balance"]),
        row("run -n 1 --log-format yaml -- true", 2, &["yaml", "human", "json"]),
        row("status --watch --json", 2, &["--watch", "--json", "cannot be used"]),
        row("status r0", 2, &["r0"]),
        row("drain", 2, &["<WHOM>"]),
        row("drain r0 r1", 2, &["r1"]),
        row("kill", 2, &["<WORKER>"]),
        row("scale", 2, &["--workers <N>"]),
        row("scale -n 0", 2, &["0", "1..=1024"]),
        row("scale 3", 2, &["3"]),
        row("stop now", 2, &["now"]),
    ]);
}

#[test]
fn numbers_of_workers_that_contradict_each_other() {
    for (min, workers, max) in [(3, 2, 4), (1, 2, 1), (0, 1, 1)] {
        let arguments = format!("run -n {workers} --min {min} --max {max} -- true");
        let mut row = row(&arguments, 2, &["expected 1 <= --min <= --workers <= --max"]);
        row.0.retain(|word| !word.is_empty());
        check(vec![row]);
    }
    let found = words(&output(&["run", "-n", "2", "--min", "3", "--", "true"]));
    assert!(found.contains("found --min 3, --workers 2"), "{found}");
}

#[test]
fn programs_that_cannot_be_workers() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o644)).unwrap();
    let run = |program: &str| {
        let words = ["run", "-n", "1", "--restarts", "1", "--", program];
        words.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let not_started = ["no more workers can be started", "give the path of a program"];
    let missing = ["no-such-program could not be started", "No such file or directory"];
    check(vec![
        (run("./no-such-program"), 1, [not_started, missing].concat()),
        (run(text.to_str().unwrap()), 1, [&not_started[..], &["denied"]].concat()),
        (run(folder.path().to_str().unwrap()), 1, not_started.to_vec()),
        (run(""), 2, vec!["expected a program after --"]),
        (
            run("true"),
            1,
            vec!["exit code 0 before it computed anything", "calls sardana::train"],
        ),
        (run("false"), 1, vec!["exit code 1", "calls sardana::train"]),
    ]);
    // What never ran has no words of its own, and what it calls is not known.
    let words = words(&output(&run("./no-such-program")));
    assert!(
        !words.contains("standard error") && !words.contains("sardana::train"),
        "{words}"
    );
}

#[test]
fn addresses_that_cannot_be_had() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listen = |address: &str| format!("run -n 1 --listen {address} -- true");
    check(vec![
        row(&listen(&address.to_string()), 1, &["cannot listen on 127.0.0.1", "another"]),
        // Of a network that is kept for documentation.
        row(&listen("192.0.2.1:0"), 1, &["cannot listen on 192.0.2.1:0"]),
    ]);
}

#[test]
fn folders_for_logs_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Where no user, not even root, can make a folder.
    let below = file.join("logs");
    for path in [file.to_str().unwrap(), below.to_str().unwrap(), "/proc/logs"] {
        let arguments = format!("run -n 1 --log-dir {path} -- true");
        check(vec![row(
            &arguments,
            2,
            &["cannot be written to", "give a folder of your own"],
        )]);
        assert!(words(&output(&arguments.split(' ').collect::<Vec<_>>())).contains(path));
    }
}
