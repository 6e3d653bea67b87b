//! Starts the program, and follows what it says.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments, separated by spaces, apart from the settings of the person who runs the tests.
pub(crate) fn sardana(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardana"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command.env("RUST_LOG", "error");
    command
}

/// What a command prints, and what it says on standard error, when it ends with this code.
pub(crate) fn said(command: &mut Command, code: i32) -> [String; 2] {
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(output.status.code(), Some(code), "{command:?}: {out}{err}");
    assert!(!err.contains("panicked"), "{command:?}: {err}");
    [out, err]
}

/// Requires that a text has all of these words.
pub(crate) fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is missing from: {text}");
    }
}

/// The command line goes on with this very test program, as a worker.
pub(crate) fn as_worker(command: &mut Command) -> &mut Command {
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "worker::becomes_a_worker", "--nocapture"])
}

/// A program whose standard error is a log in JSON, line by line.
pub(crate) struct Running {
    pub(crate) child: Child,
    log: Receiver<serde_json::Value>,
    /// What was read of it.
    said: RefCell<Vec<serde_json::Value>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.env("RUST_LOG", "info").env("NO_COLOR", "1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = follow(child.stderr.take().unwrap());
        let said = RefCell::default();
        Self { child, log, said }
    }

    /// The next line with this target.
    pub(crate) fn event(&self, target: &str) -> serde_json::Value {
        self.any_event(&[target])
    }

    /// The next line with one of these targets.
    pub(crate) fn any_event(&self, targets: &[&str]) -> serde_json::Value {
        self.line(targets)["fields"].clone()
    }

    /// One line with each of these targets, in whichever order they come. Returns them in this one.
    pub(crate) fn events<const N: usize>(&self, targets: [&str; N]) -> [serde_json::Value; N] {
        let mut found = [const { serde_json::Value::Null }; N];
        let is_missing = |found: &serde_json::Value| found.is_null();
        while found.iter().any(is_missing) {
            let missing = || (0..N).filter(|&index| found[index].is_null());
            let line = self.line(&missing().map(|index| targets[index]).collect::<Vec<_>>());
            let index = missing().find(|&index| line["target"] == targets[index]);
            found[index.expect("one of those was waited for")] = line["fields"].clone();
        }
        found
    }

    /// The next line with one of these targets.
    fn line(&self, targets: &[&str]) -> serde_json::Value {
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{error}; none of {targets:?} after {:#?}", self.said.borrow()));
            self.said.borrow_mut().push(line.clone());
            if targets.iter().any(|target| line["target"] == *target) {
                return line;
            }
        }
    }

    /// What was warned of so far, of all that tests have waited for.
    pub(crate) fn warnings(&self) -> Vec<serde_json::Value> {
        let warns = |line: &&serde_json::Value| line["level"] == "WARN";
        self.said.borrow().iter().filter(warns).cloned().collect()
    }

    /// Waits for its end. Returns how it ended, and all that it has said, also before.
    pub(crate) fn ends_having_said(self) -> (ExitStatus, Vec<serde_json::Value>) {
        let mut said = self.said.take();
        // Its end closes the pipe.
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end, after {said:#?}"),
            }
        }
        (self.end().0, said)
    }

    /// The processes of the first `workers` workers.
    pub(crate) fn pids(&self, workers: u32) -> Vec<u64> {
        let pid = |_| self.event("sardana::event::started")["pid"].as_u64().unwrap();
        (0..workers).map(pid).collect()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until it says why it fails, and ends. Returns how it ended, and why.
    pub(crate) fn fails(self) -> (ExitStatus, String) {
        let why = loop {
            let line = self.log.recv_timeout(PATIENCE).expect("it says why it fails");
            if let Some(words) = line.as_str().filter(|words| words.starts_with("sardana ")) {
                break words.to_owned();
            }
        };
        (self.end().0, why)
    }

    /// Ends it as a power cut does: nothing is said, and nothing is cleaned up.
    pub(crate) fn killed(self) {
        self.signal("KILL");
        self.end();
    }

    /// Asks it to end, and waits until it has, as it should: its standard output.
    pub(crate) fn stopped(self) -> String {
        self.signal("TERM");
        self.ends_well()
    }

    /// Waits until it has ended as it should: its standard output.
    pub(crate) fn ends_well(self) -> String {
        let (status, out) = self.end();
        assert_eq!(status.code(), Some(0), "{out}");
        out
    }

    /// Waits for its end. Returns how it ended, and its standard output.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        let (ended, outcome) = channel();
        thread::spawn(move || ended.send(self.child.wait_with_output()));
        let outcome = outcome.recv_timeout(PATIENCE).expect("it ends in time").unwrap();
        (outcome.status, String::from_utf8_lossy(&outcome.stdout).into_owned())
    }
}

fn follow(stderr: ChildStderr) -> Receiver<serde_json::Value> {
    let (sender, log) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            // Workers have their own lines, and the last one is for people.
            let words = |_| String::from_utf8_lossy(&line).into_owned().into();
            if sender.send(serde_json::from_slice(&line).unwrap_or_else(words)).is_err() {
                return;
            }
        }
    });
    log
}

/// Waits until a process is gone.
pub(crate) fn gone(pid: u64) {
    let stat = format!("/proc/{pid}/stat");
    let (ended, is_gone) = channel();
    thread::spawn(move || {
        // A zombie is gone, too: its parent has not looked yet.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            thread::yield_now();
        }
        ended.send(())
    });
    is_gone.recv_timeout(PATIENCE).expect("the process ends");
}
