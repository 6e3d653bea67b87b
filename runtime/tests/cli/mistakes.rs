//! Every way to get the command line wrong: the exit code, and what the message must hold.

use std::ffi::OsStr;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use super::program::{has, said, sardana};

/// Each command line must end with this code, and say these words.
fn check(rows: &[(&str, i32, &[&str])]) {
    for (line, code, expected) in rows {
        let [_, words] = said(&mut sardana(line), *code);
        has(&words, expected);
    }
}

#[test]
fn arguments_that_cannot_be_read() {
    check(&[
        ("", 2, &["Usage", "run", "status"]),
        ("fly", 2, &["unrecognized subcommand 'fly'"]),
        ("run", 2, &["--workers", "PROGRAM"]),
        ("run -n 2", 2, &["PROGRAM"]),
        ("run -n 2 train", 2, &["train", "--"]),
        ("run -- true", 2, &["--workers <N>"]),
        ("run -n 0 -- true", 2, &["0", "1..=1024"]),
        ("run -n 1025 -- true", 2, &["1025", "1..=1024"]),
        ("run -n two -- true", 2, &["two"]),
        ("run -n 1 --restarts=-1 -- true", 2, &["-1", "--restarts"]),
        ("run -n 1 --listen here -- true", 2, &["here", "--listen"]),
        ("run -n 1 --listen 127.0.0.1 -- true", 2, &["127.0.0.1", "--listen"]),
        (
            "run -n 1 --log-dir x --no-prefix -- true",
            2,
            &["--log-dir", "--no-prefix", "cannot be used"],
        ),
        ("run -n 1 --balance maybe -- true", 2, &["maybe", "--balance"]),
        ("run -n 1 --log-format yaml -- true", 2, &["yaml", "human", "json"]),
        ("run -n 1 --device gpu -- true", 2, &["gpu", "`cuda:N`", "--device"]),
        ("status --watch --json", 2, &["--watch", "--json", "cannot be used"]),
        ("status --watch --links", 2, &["--watch", "--links", "cannot be used"]),
        ("status r0", 2, &["r0"]),
        ("drain", 2, &["<WHOM>"]),
        ("drain r0 r1", 2, &["r1"]),
        ("kill", 2, &["<WORKER>"]),
        ("scale", 2, &["--workers <N>"]),
        ("scale -n 0", 2, &["0", "1..=1024"]),
        ("scale 3", 2, &["3"]),
        ("stop now", 2, &["now"]),
    ]);
}

#[test]
fn numbers_of_workers_that_contradict_each_other() {
    for (min, workers, max) in [(3, 2, 4), (1, 2, 1), (0, 1, 1)] {
        let line = format!("run -n {workers} --min {min} --max {max} -- true");
        check(&[(&line, 2, &["expected 1 <= --min <= --workers <= --max"])]);
    }
    check(&[("run -n 2 --min 3 -- true", 2, &["found --min 3, --workers 2"])]);
}

#[test]
fn gpus_that_are_not_there_are_missed_before_anything_starts() {
    let cases = [
        ("", "cuda", ["CUDA_VISIBLE_DEVICES hides all", "`--device cpu`"]),
        ("all", "auto", ["in CUDA_VISIBLE_DEVICES, found \"all\"", "`--device cpu`"]),
    ];
    // A program that was built with the feature asks the driver first, which may be missing.
    if !cfg!(feature = "cuda") {
        for (visible, device, words) in cases {
            let line = format!("run -n 1 --device {device} -- ./no-such-program");
            let [_, err] = said(sardana(&line).env("CUDA_VISIBLE_DEVICES", visible), 1);
            has(&err, &words);
            assert!(!err.contains("no-such-program"), "{err}");
        }
    }
    let mut wrong = sardana("run -n 1 -- true");
    let [_, err] = said(wrong.env("SARDANA_DEVICE", "tpu"), 2);
    has(&err, &["in SARDANA_DEVICE, found \"tpu\""]);
}

#[test]
fn programs_that_cannot_be_workers() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o644)).unwrap();
    let run = |program: &OsStr, code, words: &[&str]| {
        let [_, err] = said(sardana("run -n 1 --restarts 1 --").arg(program), code);
        has(&err, words);
        err
    };
    let not_started = ["no more workers can be started", "give the path of a program"];
    let words = run("./no-such-program".as_ref(), 1, &not_started);
    has(&words, &["no-such-program could not be started", "No such file or directory"]);
    // What never ran has no words of its own, and what it calls is not known.
    assert!(
        !words.contains("standard error") && !words.contains("sardana::train"),
        "{words}"
    );
    has(&run(text.as_ref(), 1, &not_started), &["denied"]);
    run(folder.path().as_ref(), 1, &not_started);
    run("".as_ref(), 2, &["expected a program after --"]);
    let useless = "exit code 0 before it computed anything";
    run("true".as_ref(), 1, &[useless, "calls sardana::train"]);
    run("false".as_ref(), 1, &["exit code 1", "calls sardana::train"]);
}

#[test]
fn addresses_that_cannot_be_had() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let listen = |address: &str| format!("run -n 1 --listen {address} -- true");
    check(&[
        (&listen(&taken.to_string()), 1, &["cannot listen on 127.0.0.1", "another"]),
        // Of a network that is kept for documentation.
        (&listen("192.0.2.1:0"), 1, &["cannot listen on 192.0.2.1:0"]),
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
        let line = format!("run -n 1 --log-dir {path} -- true");
        check(&[(&line, 2, &["cannot be written to", "give a folder of your own", path])]);
    }
}
