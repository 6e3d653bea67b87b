//! This program once more, as a process that can be killed: it makes checkpoints and says so, or opens a store and says what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use sardana_storage::store::{Options, Store};

use crate::history::{self, Word};

const FOLDER: &str = "SARDANA_TEST_STORE";
const WORK: &str = "SARDANA_TEST_STORE_WORK";

const OPTIONS: Options = Options { segment_bytes: 1 << 20 };

#[derive(Clone, Copy, Debug)]
enum Work {
    /// Make checkpoints for ever; `failed REASON` when it can no more.
    Make,
    /// Open, read and say what is there.
    Judge,
}

fn command(work: Work, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::child", "--nocapture"]);
    let work = match work {
        Work::Make => "make",
        Work::Judge => "judge",
    };
    command.env(FOLDER, folder).env(WORK, work).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// What was said of checkpoints: the newest word of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    committed: BTreeSet<u64>,
    /// It may be there or not.
    deleting: BTreeSet<u64>,
    deleted: BTreeSet<u64>,
    pub(crate) failed: Option<String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let mut words = line.trim_end().splitn(2, ' ');
        let (word, rest) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let number = || rest.parse().unwrap();
        match word {
            "Committed" => drop(self.committed.insert(number())),
            "Deleting" => {
                self.committed.remove(&number());
                self.deleting.insert(number());
            }
            "Deleted" => {
                self.deleting.remove(&number());
                self.deleted.insert(number());
            }
            "failed" => self.failed = Some(rest.to_owned()),
            _ => {}
        }
    }

    /// Requires that all of it is so in the store in `folder`; what was unclear is clear then.
    pub(crate) fn require(&mut self, folder: &Path) {
        let judgement = judged(folder);
        assert!(judgement.refused.is_none(), "{judgement:?}");
        for number in &self.committed {
            assert_eq!(judgement.found.get(number), Some(&None), "checkpoint {number}: {judgement:?}");
        }
        for (number, wrong) in &judgement.found {
            assert!(!self.deleted.contains(number), "checkpoint {number} has come back");
            assert!(wrong.is_none(), "checkpoint {number} is there, but not whole: {judgement:?}");
        }
        self.committed = judgement.found.into_keys().collect();
        self.deleting.clear();
    }

    pub(crate) fn committed(&self) -> usize {
        self.committed.len()
    }
}

/// A child that makes checkpoints.
pub(crate) struct Making {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: Said,
    heard: u64,
}

impl Making {
    pub(crate) fn start(folder: &Path, mut said: Said) -> Self {
        said.failed = None;
        let mut child = command(Work::Make, folder).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let heard = 0;
        Self {
            child,
            lines,
            said,
            heard,
        }
    }

    /// Waits until it has said so many words, and is in the middle of what comes next.
    pub(crate) fn wait(&mut self, words: u64) {
        while self.heard < words {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended by itself");
            self.said.hear(&line);
            assert_eq!(self.said.failed, None);
            self.heard += u64::from(line.starts_with("Committed") || line.starts_with("Del") || line.starts_with("open"));
        }
    }

    /// Kills it, and hears what it had said before.
    pub(crate) fn kill(mut self) -> Said {
        self.child.kill().unwrap();
        self.hear_out()
    }

    /// Waits until it can no more.
    pub(crate) fn hear_out(mut self) -> Said {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
        // Half a line is none.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().for_each(|line| self.said.hear(line));
        self.said
    }
}

/// What a child found in a store: the checkpoints, and what is wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) found: BTreeMap<u64, Option<String>>,
    pub(crate) findings: Vec<String>,
    pub(crate) deleted: BTreeSet<u64>,
    pub(crate) refused: Option<String>,
}

/// Lets a child judge the store in `folder`. Another process, so that this one has nothing open on a file system that is unmounted next,
/// and a sled that breaks is not that of other tests.
pub(crate) fn judged(folder: &Path) -> Judgement {
    let output = command(Work::Judge, folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    let mut judgement = Judgement::default();
    for line in said.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "whole" => drop(judgement.found.insert(rest.parse().unwrap(), None)),
            "broken" => {
                let (number, reason) = rest.split_once(' ').unwrap();
                judgement.found.insert(number.parse().unwrap(), Some(reason.to_owned()));
            }
            "finding" => judgement.findings.push(rest.to_owned()),
            "gone" => drop(judgement.deleted.insert(rest.parse().unwrap())),
            "refused" => judgement.refused = Some(rest.to_owned()),
            _ => {}
        }
    }
    judgement
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
        "make" => make(&folder),
        "judge" => judge(&folder),
        work => panic!("unknown work: {work}"),
    }
}

fn make(folder: &Path) {
    let store = match Store::open_with(folder, OPTIONS) {
        Ok(opened) => opened.store,
        Err(error) => return say(&format!("failed {error}")),
    };
    say("opened");
    let listed = store.list().into_iter().map(|listed| listed.key);
    let newest = listed.chain(store.deleted()).map(|key| key.step.get()).max();
    for number in newest.map_or(0, |newest| newest + 1).. {
        if let Err(error) = history::make(&store, number, |word: Word, number| say(&format!("{word:?} {number}"))) {
            return say(&format!("failed {error}"));
        }
    }
}

fn judge(folder: &Path) {
    let opened = match Store::open_with(folder, OPTIONS) {
        Ok(opened) => opened,
        Err(error) => return say(&format!("refused {error}")),
    };
    opened.findings.iter().for_each(|finding| say(&format!("finding {finding}")));
    opened
        .store
        .deleted()
        .iter()
        .for_each(|key| say(&format!("gone {}", key.step.get())));
    // What is read and damaged is known afterwards.
    let _verified = opened.store.verify(&mut |_| ());
    for listed in opened.store.list() {
        let number = listed.key.step.get();
        match (history::read(&opened.store, number), listed.problem) {
            (Ok(()), None) => say(&format!("whole {number}")),
            (Err(_), Some(problem)) => say(&format!("broken {number} {problem}")),
            (read, problem) => panic!("checkpoint {number}: {read:?}, but {problem:?}"),
        }
    }
}
