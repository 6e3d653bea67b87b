//! This program once more, as a process that can be killed: it works in a folder, and says line by line what it does.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const FOLDER: &str = "SARDANA_TEST_FOLDER";
const WORK: &str = "SARDANA_TEST_WORK";

/// How to start a process that does this work in `folder`. With a `wrapper`, that program is started with its arguments and the process's.
pub(crate) fn command(wrapper: &[&str], work: &str, folder: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(PathBuf::from).chain([this]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--exact", "child::child", "--nocapture"]);
    command.env(FOLDER, folder).env(WORK, work).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The work that this process was started for, and where; none if it runs the tests.
pub(crate) fn asked_for() -> Option<(String, PathBuf)> {
    let folder = std::env::var_os(FOLDER)?.into();
    say("");
    Some((std::env::var(WORK).unwrap(), folder))
}

pub(crate) fn say(line: &str) {
    // One write for a line: half a line is none.
    let mut out = std::io::stdout();
    let said = out.write_all(format!("{line}\n").as_bytes());
    said.and_then(|()| out.flush()).unwrap();
}

/// All that a process says that does this work in `folder` and ends. Another process, so that this one has nothing open on a file system that
/// is unmounted next, and its sled, whose threads serve all that a process has open, is not broken for other tests.
pub(crate) fn heard(work: &str, folder: &Path) -> String {
    let output = command(&[], work, folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    said
}

/// A process at work.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(work: &str, folder: &Path) -> Self {
        let mut child = command(&[], work, folder).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended by itself");
        line
    }

    /// Kills it. What it had said before.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.rest()
    }

    /// Waits for its end. What it says until then, without half a line.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
        rest.truncate(rest.rfind('\n').unwrap_or(0));
        rest
    }
}
