//! A folder in which jobs run and are found, apart from all others of this user.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::program::{Running, as_worker, sardana, words};

pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program with these arguments; it finds only the jobs of this site.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = sardana(arguments);
        command
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("XDG_STATE_HOME", self.0.path());
        command
    }

    pub(crate) fn output<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What the command prints when it does what it should.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", words(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Why the command does not.
    pub(crate) fn failed(&self, arguments: &[&str], code: i32) -> String {
        let output = self.output(arguments);
        let words = words(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
        assert!(!words.contains("panicked"), "{arguments:?}: {words}");
        words
    }

    pub(crate) fn status(&self, more: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(&[&["status", "--json"], more].concat())).unwrap()
    }

    /// A job that trains in `workers` workers.
    pub(crate) fn run(&self, workers: &str, restarts: &str) -> Running {
        self.run_with(&["-n", workers, "--restarts", restarts])
    }

    /// A job with these options.
    pub(crate) fn run_with(&self, options: &[&str]) -> Running {
        let mut command = self.command(&["run", "--log-format", "json"]);
        command.args(options).arg("--");
        Running::start(as_worker(&mut command).env("RUST_LOG", "info"))
    }

    /// A coordinator with the state directory `state`, and where it listens.
    pub(crate) fn coordinator(&self, state: &str, listen: &str, more: &[&str]) -> (Running, String) {
        let mut command = self.command(&["coordinator", "--log-format", "json", "--listen", listen, "--state-dir"]);
        command.arg(self.path(state)).args(more);
        let running = Running::start(command.env("RUST_LOG", "info"));
        let listening = running.event("sardana::event::listening");
        let addresses = listening["addresses"].as_str().unwrap();
        let address = addresses.trim_matches(['[', ']']).to_owned();
        (running, address)
    }

    /// A coordinator that takes over at `listen`, with the state directory `state` and the authority of `from`.
    pub(crate) fn takes_over(&self, from: &str, state: &str, listen: &str) -> Running {
        let (from, state) = (self.path(from), self.path(state));
        if !state.exists() {
            DirBuilder::new().mode(0o700).create(&state).unwrap();
            std::fs::copy(from.join("authority.json"), state.join("authority.json")).unwrap();
        }
        let mut command = self.command(&[
            "coordinator",
            "--take-over",
            "--log-format",
            "json",
            "--listen",
            listen,
            "--state-dir",
        ]);
        Running::start(command.arg(state).env("RUST_LOG", "info"))
    }

    /// A join file for the job of the state directory `state`.
    pub(crate) fn invite(&self, state: &str, role: &str, uses: &str, out: &str) -> PathBuf {
        let (state, out) = (self.path(state), self.path(out));
        self.done(&[
            "invite",
            "--state-dir",
            text(&state),
            "--role",
            role,
            "--uses",
            uses,
            "-o",
            text(&out),
        ]);
        out
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
