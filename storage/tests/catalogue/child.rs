//! This program once more, as a process that can be killed: it commits and says so, or opens and says what it found.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use sardana_storage::catalogue::Catalogue;

use crate::history;

const FOLDER: &str = "SARDANA_TEST_CATALOGUE";
const WORK: &str = "SARDANA_TEST_CATALOGUE_WORK";

/// What its judgement begins with.
const WORDS: [&str; 3] = ["whole ", "wrong ", "refused "];

/// What a child is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Commit for ever: `acknowledged N` after each; `failed REASON` when it can no more, and then whether it is so for
    /// good.
    Commit,
    /// Open, read and say `whole N`, after which one more commit is made, or `refused REASON`.
    Judge,
}

impl Work {
    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Judge => "judge",
        }
    }
}

/// How to start a child for the catalogue in `folder`. With a `wrapper`, that program is started with its arguments and the
/// child's.
pub(crate) fn command(wrapper: &[&str], work: Work, folder: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
        None => Command::new(this),
    };
    command.args(["--exact", "child::child", "--nocapture"]);
    command
        .env(FOLDER, folder)
        .env(WORK, work.word())
        .env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A child that commits.
pub(crate) struct Committing {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) acknowledged: u64,
}

impl Committing {
    pub(crate) fn start(folder: &Path, acknowledged: u64) -> Self {
        let mut child = command(&[], Work::Commit, folder).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            lines,
            acknowledged,
        }
    }

    /// Waits until it has acknowledged so many more.
    pub(crate) fn wait(&mut self, more: u64) {
        let wanted = self.acknowledged + more;
        while self.acknowledged < wanted {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended by itself");
            assert!(!line.starts_with("failed"), "{line}");
            self.acknowledged = number(&line).unwrap_or(self.acknowledged);
        }
    }

    /// Kills it, and reads what it had said before: how many were acknowledged.
    pub(crate) fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
        let last = rest.lines().filter_map(number).next_back();
        last.unwrap_or(self.acknowledged)
    }
}

/// Lets a child judge the catalogue in `folder`: what it says. Another process, so that this one has nothing open on a file
/// system that is unmounted next, and its sled, whose threads serve all that a process has open, is not broken for other
/// tests.
pub(crate) fn judged(folder: &Path) -> String {
    let output = command(&[], Work::Judge, folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    let line = said.lines().find(|line| WORDS.iter().any(|word| line.starts_with(word)));
    line.unwrap_or_else(|| panic!("no judgement in {said}")).to_owned()
}

/// Requires that the catalogue in `folder` has `acknowledged` commits, or the one more that was under way, and their whole
/// contents: how many it has now, with the one that the child makes.
pub(crate) fn require(folder: &Path, acknowledged: u64) -> u64 {
    let said = judged(folder);
    let commits = said
        .strip_prefix("whole ")
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    let commits = commits.unwrap_or_else(|| panic!("expected {acknowledged} commits, but: {said}"));
    assert!(
        (acknowledged..=acknowledged + 1).contains(&commits),
        "{acknowledged} were acknowledged, {commits} are there"
    );
    commits + 1
}

/// The number of a line `acknowledged N`.
pub(crate) fn number(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ")?.trim_end().parse().ok()
}

fn say(line: &str) {
    // One write for a line: half a line is none.
    let mut out = std::io::stdout();
    out.write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush())
        .unwrap();
}

/// Not a test, but what a child does. Without a folder it has nothing to do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    say("");
    match std::env::var(WORK).unwrap().as_str() {
        "commit" => commit(&folder),
        "judge" => judge(&folder),
        work => panic!("unknown work: {work}"),
    }
}

fn commit(folder: &Path) {
    let catalogue = match Catalogue::open(folder) {
        Ok(opened) => opened.catalogue,
        Err(error) => return say(&format!("failed {error}")),
    };
    let Err(error) = history::go_on(&catalogue, u64::MAX, |number| say(&format!("acknowledged {number}"))) else {
        return;
    };
    say(&format!("failed {error}"));
    let table = catalogue.table("jobs").unwrap();
    let calls = [
        table.put(b"x", b"y"),
        table.get(b"newest").map(drop),
        table.scan(b"", 1).map(drop),
    ];
    for call in calls {
        match call {
            Err(again) if again.to_string() == error.to_string() => say("refused for good"),
            other => say(&format!("expected the same error again, found {other:?}")),
        }
    }
}

fn judge(folder: &Path) {
    let opened = Catalogue::open_within(folder, Duration::from_secs(60));
    let judged = opened.and_then(|opened| {
        let commits = opened.catalogue.commits();
        let whole = history::read(&opened.catalogue)? == history::after(commits);
        history::go_on(&opened.catalogue, commits + 1, |_| ())?;
        Ok((commits, whole, opened.found))
    });
    match judged {
        Ok((commits, true, found)) => say(&format!("whole {commits} {found:?}")),
        Ok((commits, false, found)) => say(&format!("wrong {commits} {found:?}")),
        Err(error) => say(&format!("refused {error}")),
    }
}
