//! Bugs that the simulator must find: how many seeds and how long each took. Only with the feature `planted-bugs`.

use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use sardana_protocol::job::JobKind;
use sardana_protocol::planted::{Bug, plant};

use super::campaign::{caught, play_caught};
use super::story::Telling;
use super::swarm::Swarm;
use super::{Violation, group};

/// How bugs are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Hunting {
    /// The first run's seed; the next ones follow.
    pub seed: u64,
    /// A bug that so many runs have not found is missed.
    pub runs: u64,
    /// For how many virtual minutes faults come in each run.
    pub minutes: u64,
    /// On how many threads.
    pub threads: usize,
}

/// How a bug was found.
#[derive(Debug)]
pub struct Hunt {
    /// The bug.
    pub bug: Bug,
    /// How many runs it took, or all of them if it was not found.
    pub runs: u64,
    /// How long that took.
    pub took: Duration,
    /// The seed of the run that found it, and what it violated. None if it was not found.
    pub found: Option<(u64, Violation)>,
}

/// The line of a table, as [`HEAD`] says.
impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match &self.found {
            Some((_, violation)) => violation.invariant,
            None => "NOT FOUND",
        };
        let (bug, seconds) = (format!("{:?}", self.bug), self.took.as_secs_f64());
        write!(f, "{bug:<22} {by:<35} {:>5} {seconds:>6.1} s  {}", self.runs, self.bug.what())
    }
}

/// What the columns of a [`Hunt`] are.
pub const HEAD: &str = "bug                    found by                             runs     took  what is wrong";

impl Hunting {
    /// Lets these bugs loose, one after the other on each thread, and plays runs until each is found. `watch` sees each hunt at its
    /// end. In the order of `bugs`.
    ///
    /// # Panics
    /// When `watch` does.
    #[must_use]
    pub fn hunt_all(&self, bugs: &[Bug], watch: impl Fn(&Hunt) + Sync) -> Vec<Hunt> {
        // The last ones first: those that are hardest to find are the latest.
        let waiting = Mutex::new(bugs.iter().copied().enumerate().rev());
        let hunts = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                        let Some((index, bug)) = next else { return };
                        let hunt = self.hunt(bug);
                        watch(&hunt);
                        let mut hunts = hunts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        hunts.push((index, hunt));
                    }
                });
            }
        });
        let mut hunts = hunts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        hunts.sort_by_key(|(index, _)| *index);
        hunts.into_iter().map(|(_, hunt)| hunt).collect()
    }

    /// Lets a bug loose in this thread's machines.
    fn hunt(&self, bug: Bug) -> Hunt {
        let began = Instant::now();
        plant(Some(bug));
        let (mut runs, mut seed) = (0, self.seed);
        let mut found = None;
        while found.is_none() && runs < self.runs {
            while !may_show(bug, &Swarm::of_run(seed, self.minutes)) {
                seed = seed.wrapping_add(1);
            }
            let violation = match bug.kind() {
                JobKind::Training => play_caught(seed, self.minutes, Telling::No).violation,
                JobKind::Group => caught(|| group(seed, self.minutes)).map_or_else(Some, |grouped| grouped.violation),
            };
            found = violation.map(|violation| (seed, violation));
            (runs, seed) = (runs + 1, seed.wrapping_add(1));
        }
        plant(None);
        Hunt {
            bug,
            runs,
            took: began.elapsed(),
            found,
        }
    }
}

/// Whether a bug can show in a run that is drawn like this: one that needs what is drawn seldom is looked for where that is, not in ten times as many runs.
fn may_show(bug: Bug, swarm: &Swarm) -> bool {
    // A manifest on two of three hosts, and another one that was to be on all of them.
    let thinner = || swarm.depots == [0, 1, 2] && swarm.saves.is_some_and(|saves| saves.replicas == 2);
    bug != Bug::ThinnerKept || thinner()
}
