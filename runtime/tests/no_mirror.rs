//! What a build without mirrors says of them: what to build.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::process::Command;

/// The exit code of the program with these arguments, and what it says.
fn says(line: &str) -> (Option<i32>, String) {
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sardana"))
        .args(line.split_whitespace())
        .current_dir(place.path())
        .env("RUST_LOG", "error")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_not_built_in_is_said_and_how_to_build_it() {
    for line in [
        "checkpoints list s3://bucket/job",
        "checkpoints copy gs://bucket/job DIR",
        "checkpoints verify az://container/job",
        "run -n 1 --checkpoint-every 10 --checkpoint-dir D --mirror file:///mirror -- true",
        "coordinator --listen 127.0.0.1:0 --state-dir S --checkpoint-every 10 --checkpoint-dir D --mirror s3://bucket/job",
    ] {
        let (code, words) = says(line);
        if cfg!(feature = "mirror") {
            // It is asked, and is not there, or does not know the user that asks.
            assert!(!words.contains("built without"), "{line}: {words}");
        } else {
            assert_eq!(code, Some(1), "{line}: {words}");
            assert!(
                words.contains("cargo build --release -p sardana --features mirror"),
                "{line}: {words}"
            );
        }
    }
}

#[test]
fn a_url_is_checked_in_every_build() {
    for line in [
        "checkpoints list http://host/x",
        "checkpoints copy D s3://",
        "run -n 1 --checkpoint-every 10 --checkpoint-dir D --mirror dir -- true",
    ] {
        let (code, words) = says(line);
        assert_eq!(code, Some(2), "{line}: {words}");
        assert!(words.contains("s3://BUCKET/PREFIX"), "{line}: {words}");
    }
    for line in [
        "run -n 1 --mirror s3://bucket/job -- true",
        "coordinator --listen 127.0.0.1:0 --state-dir S --mirror s3://bucket/job",
    ] {
        let (code, words) = says(line);
        assert_eq!(code, Some(2), "{line}: {words}");
        assert!(words.contains("--checkpoint-every"), "{line}: {words}");
    }
    let (code, words) = says("coordinator --listen 127.0.0.1:0 --state-dir S --checkpoint-every 9 --mirror s3://bucket/job");
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("--checkpoint-dir"), "{words}");
}
