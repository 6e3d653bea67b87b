//! The `sardana` program as a person meets it: what it says, and its exit codes.

use std::process::{Command, Output};

fn sardana(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sardana"))
        .args(arguments)
        .env("RUST_LOG", "error")
        .output()
        .expect("the program was built for this test")
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_teaches() {
    let output = sardana(&["run", "--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    for word in ["PROGRAM", "--min", "--restarts", "sardana::train", "Exit codes", "SIGINT"] {
        assert!(text.contains(word), "{word} is missing from: {text}");
    }
}

#[test]
fn wrong_usage_says_what_was_expected() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["run", "-n", "0", "--", "x"], &["1..=1024", "0"]),
        (
            &["run", "-n", "2", "--min", "3", "--", "x"],
            &["--min <= --workers", "--min 3", "--workers 2"],
        ),
        (&["run", "-n", "2"], &["PROGRAM"]),
        (&["run", "-n", "2", "--listen", "here", "--", "x"], &["here"]),
    ];
    for (arguments, expected) in cases {
        let output = sardana(arguments);
        let words = words(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        for word in expected {
            assert!(words.contains(word), "{arguments:?}: {word} is missing from: {words}");
        }
    }
}

#[test]
fn a_program_that_is_not_there_or_is_no_worker_ends_the_job() {
    let output = sardana(&["run", "-n", "1", "--", "./no-such-program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output).contains("no-such-program"), "{}", words(&output));
    let output = sardana(&["run", "-n", "2", "--restarts", "1", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output).contains("exit code 0"), "{}", words(&output));
}
