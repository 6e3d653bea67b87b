//! A folder in which jobs run and are found, apart from all others of this user.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::program::{Running, as_worker, has, said, sardana};

pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program with these arguments, in the site's folder; it finds only the jobs of this site.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = sardana(line);
        command
            .current_dir(self.0.path())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("XDG_STATE_HOME", self.0.path());
        command
    }

    /// The command, whose log is JSON and is followed.
    pub(crate) fn start(&self, line: &str) -> Running {
        Running::start(self.command(line).args(["--log-format", "json"]))
    }

    /// The same of a command that runs workers.
    pub(crate) fn start_workers(&self, line: &str) -> Running {
        let mut command = self.command(line);
        Running::start(as_worker(command.args(["--log-format", "json", "--"])))
    }

    /// What the command prints when it does what it should.
    pub(crate) fn done(&self, line: &str) -> String {
        let [out, _] = said(&mut self.command(line), 0);
        out
    }

    /// Why the command fails.
    pub(crate) fn failed(&self, line: &str) -> String {
        let [_, err] = said(&mut self.command(line), 1);
        err
    }

    /// Requires that it fails, with these words.
    pub(crate) fn fails(&self, line: &str, words: &[&str]) {
        has(&self.failed(line), words);
    }

    /// What the command prints as JSON.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.done(&format!("{line} --json"))).unwrap()
    }

    /// A job of workers of this very test program.
    pub(crate) fn run(&self, options: &str) -> Running {
        self.start_workers(&format!("run {options}"))
    }

    /// A coordinator with the state directory `state` and these options, and where it listens.
    pub(crate) fn coordinator(&self, state: &str, listen: &str, options: &str) -> (Running, String) {
        let running = self.start(&format!("coordinator --listen {listen} --state-dir {state} {options}"));
        let listening = running.event("sardana::event::listening");
        let addresses = listening["addresses"].as_str().unwrap();
        let address = addresses.trim_matches(['[', ']']).to_owned();
        (running, address)
    }

    /// A coordinator that takes over at `listen`, with the state directory `state` and the authority of `from`.
    pub(crate) fn takes_over(&self, from: &str, state: &str, listen: &str) -> Running {
        let folder = self.path(state);
        if !folder.exists() {
            DirBuilder::new().mode(0o700).create(&folder).unwrap();
            std::fs::copy(self.path(from).join("authority.json"), folder.join("authority.json")).unwrap();
        }
        self.start(&format!("coordinator --take-over --listen {listen} --state-dir {state}"))
    }

    /// A join file for one holder in the job of the state directory `state`.
    pub(crate) fn invite(&self, state: &str, role: &str, out: &str) {
        self.done(&format!("invite --state-dir {state} --role {role} -o {out}"));
    }
}
