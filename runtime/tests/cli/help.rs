//! Help that teaches.

use super::program::output;

#[test]
fn every_command_says_what_it_does_and_shows_examples() {
    let cases: [(&str, &[&str]); 8] = [
        (
            "run",
            &[
                "PROGRAM",
                "--min",
                "--restarts",
                "--log-dir",
                "--no-prefix",
                "sardana::train",
                "SIGINT",
                "SIGTERM",
                "--notices",
                "no other host to go on with",
            ],
        ),
        (
            "agent",
            &[
                "--join",
                "--notices",
                "[default: auto]",
                "--heed",
                "--metadata",
                "withdrawn",
                "boundary",
            ],
        ),
        ("status", &["--watch", "--json", "--join"]),
        ("drain", &["WHOM", "drain r2", "boundary"]),
        ("kill", &["WORKER", "SIGKILL", "replaced"]),
        ("scale", &["-n 8", "highest"]),
        ("stop", &["boundary", "--join"]),
        (
            "checkpoints",
            &["list", "verify", "export", "import", "prune", "copy", "--checkpoint-dir"],
        ),
    ];
    for (command, expected) in cases {
        let output = output(&[command, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0));
        for word in expected.iter().chain(&["Examples:", "Exit codes:", "--log-format"]) {
            assert!(text.contains(word), "{command}: {word} is missing from: {text}");
        }
    }
    let output = output(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for (command, _) in cases {
        assert!(text.contains(&format!("\n  {command}")), "{command} is missing from: {text}");
    }
    assert!(
        text.contains("sardana run -n 4 -- ./train") && text.contains("RUST_LOG"),
        "{text}"
    );
}
