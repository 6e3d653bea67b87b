//! Help that teaches.

use super::program::{has, said, sardana};

#[test]
fn every_command_says_what_it_does_and_shows_examples() {
    let cases: [(&str, &[&str]); 11] = [
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
                "--device",
                "cuda:N",
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
        ("status", &["--watch", "--links", "--json", "--join"]),
        ("drain", &["WHOM", "drain r2", "boundary"]),
        ("kill", &["WORKER", "SIGKILL", "replaced"]),
        ("scale", &["-n 8", "highest"]),
        ("stop", &["boundary", "--join"]),
        (
            "checkpoints",
            &["list", "verify", "export", "import", "prune", "copy", "--checkpoint-dir"],
        ),
        ("bench", &["all-reduce", "link", "copy", "gpu", "limits"]),
        ("data", &["check", "index", "every sample can be read", "no job waits"]),
        ("doctor", &["loopback", "GPUs", "needed for", "--json"]),
    ];
    for (command, expected) in cases {
        let [text, _] = said(&mut sardana(&format!("{command} --help")), 0);
        has(&text, expected);
        has(&text, &["Examples:", "Exit codes:", "--log-format"]);
    }
    let [text, _] = said(&mut sardana("--help"), 0);
    for (command, _) in cases {
        has(&text, &[&format!("\n  {command}")]);
    }
    has(&text, &["sardana run -n 4 -- ./train", "RUST_LOG"]);
}
