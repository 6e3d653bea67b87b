//! This program once more: it commits and says so, or opens and says what it found.

use std::path::Path;
use std::time::Duration;

use sardana_storage::catalogue::Catalogue;

use crate::history;
use crate::process::{Process, asked_for, heard, say};

/// To commit for ever: `acknowledged N` after each; `failed REASON` when it can no more, and then whether it is so for good.
pub(crate) const COMMIT: &str = "commit";

/// To open, read and say `whole N`, after which one more commit is made, or `refused REASON`.
const JUDGE: &str = "judge";

/// What its judgement begins with.
const WORDS: [&str; 3] = ["whole ", "wrong ", "refused "];

/// A child that commits.
pub(crate) struct Committing {
    process: Process,
    pub(crate) acknowledged: u64,
}

impl Committing {
    pub(crate) fn start(folder: &Path, acknowledged: u64) -> Self {
        let process = Process::start(COMMIT, folder);
        Self { process, acknowledged }
    }

    /// Waits until it has acknowledged so many more.
    pub(crate) fn wait(&mut self, more: u64) {
        let wanted = self.acknowledged + more;
        while self.acknowledged < wanted {
            let line = self.process.line();
            assert!(!line.starts_with("failed"), "{line}");
            self.acknowledged = number(&line).unwrap_or(self.acknowledged);
        }
    }

    /// Kills it, and reads what it had said before: how many were acknowledged.
    pub(crate) fn kill(self) -> u64 {
        let rest = self.process.kill();
        let last = rest.lines().filter_map(number).next_back();
        last.unwrap_or(self.acknowledged)
    }
}

/// Lets a child judge the catalogue in `folder`: what it says.
pub(crate) fn judged(folder: &Path) -> String {
    let said = heard(JUDGE, folder);
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

/// Not a test, but what a child does. Without a folder it has nothing to do.
#[test]
fn child() {
    match asked_for() {
        Some((work, folder)) if work == COMMIT => commit(&folder),
        Some((_, folder)) => judge(&folder),
        None => {}
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
