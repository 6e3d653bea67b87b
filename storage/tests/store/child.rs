//! This program once more: it makes checkpoints and says so, or opens a store and says what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sardana_storage::store::{Options, Store};

use crate::history::{self, Word};
use crate::process::{Process, asked_for, heard, say};

const OPTIONS: Options = Options { segment_bytes: 1 << 20 };

/// To make checkpoints for ever; `failed REASON` when it can no more.
const MAKE: &str = "make";

/// To open, read and say what is there.
const JUDGE: &str = "judge";

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
    process: Process,
    said: Said,
    heard: u64,
}

impl Making {
    pub(crate) fn start(folder: &Path, mut said: Said) -> Self {
        said.failed = None;
        let (process, heard) = (Process::start(MAKE, folder), 0);
        Self { process, said, heard }
    }

    /// Waits until it has said so many words, and is in the middle of what comes next.
    pub(crate) fn wait(&mut self, words: u64) {
        while self.heard < words {
            let line = self.process.line();
            self.said.hear(&line);
            assert_eq!(self.said.failed, None);
            self.heard += u64::from(line.starts_with("Committed") || line.starts_with("Del") || line.starts_with("open"));
        }
    }

    /// Kills it, and hears what it had said before.
    pub(crate) fn kill(mut self) -> Said {
        self.process.kill().lines().for_each(|line| self.said.hear(line));
        self.said
    }

    /// Waits until it can no more.
    pub(crate) fn hear_out(mut self) -> Said {
        self.process.rest().lines().for_each(|line| self.said.hear(line));
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

/// Lets a child judge the store in `folder`.
pub(crate) fn judged(folder: &Path) -> Judgement {
    let mut judgement = Judgement::default();
    for line in heard(JUDGE, folder).lines() {
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

/// Not a test, but what a child does. Without a folder it has nothing to do.
#[test]
fn child() {
    match asked_for() {
        Some((work, folder)) if work == MAKE => make(&folder),
        Some((_, folder)) => judge(&folder),
        None => {}
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
