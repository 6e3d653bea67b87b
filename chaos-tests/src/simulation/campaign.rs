//! Many runs, one seed after the other, on several threads, until enough time was simulated or something did not hold.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::coverage::Coverage;
use super::invariants::Violation;
use super::story::Telling;
use super::tally::Counts;
use super::{Played, play};

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The first seed; the others follow it.
    pub seed: u64,
    /// How much counted time is enough.
    pub enough: Duration,
    /// At most so many runs.
    pub runs: u64,
    /// No run begins later than this, in real time; those under way are played to their end.
    pub until: Option<Instant>,
    /// How long faults come in each run, in virtual minutes.
    pub minutes: u64,
    /// On how many threads.
    pub threads: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Runs that are over.
    pub runs: u64,
    /// Time that counts.
    pub counted: Duration,
    /// What all runs went through.
    pub counts: Counts,
    /// What the runs reached.
    pub coverage: Coverage,
    /// How often each invariant was checked.
    pub checked: BTreeMap<&'static str, u64>,
    /// How often a check was left out, and why.
    pub excused: BTreeMap<&'static str, u64>,
    /// The seeds of the runs in which something did not hold, and what.
    pub violations: Vec<(u64, Violation)>,
}

impl Report {
    fn add(&mut self, seed: u64, played: Played) {
        self.runs += 1;
        self.counted += played.counts.counted();
        self.counts.add(&played.counts);
        self.coverage.add(&played.coverage);
        for (invariant, times) in played.checked {
            *self.checked.entry(invariant).or_default() += times;
        }
        for (why, times) in played.excused {
            *self.excused.entry(why).or_default() += times;
        }
        self.violations.extend(played.violation.map(|violation| (seed, violation)));
    }
}

impl Campaign {
    /// Plays runs until it is enough. `watch` sees the report after each.
    ///
    /// # Panics
    /// When `watch` does.
    #[must_use]
    pub fn fight(&self, watch: impl Fn(&Report) + Sync) -> Report {
        let shared = Mutex::new((0_u64, Report::default()));
        let lock = || shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = {
                            let mut shared = lock();
                            let (next, report) = &mut *shared;
                            let over = report.counted >= self.enough || !report.violations.is_empty();
                            let late = self.until.is_some_and(|until| Instant::now() >= until);
                            if over || late || *next >= self.runs {
                                return;
                            }
                            *next += 1;
                            self.seed.wrapping_add(*next - 1)
                        };
                        let played = play_caught(seed, self.minutes, Telling::No);
                        let mut shared = lock();
                        shared.1.add(seed, played);
                        watch(&shared.1);
                    }
                });
            }
        });
        let (_, report) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        report
    }
}

/// A machine that panics has broken something, too.
pub(crate) fn play_caught(seed: u64, minutes: u64, telling: Telling) -> Played {
    caught(|| play(seed, minutes, telling)).unwrap_or_else(|violation| Played {
        counts: Counts::default(),
        coverage: Coverage::default(),
        checked: BTreeMap::new(),
        excused: BTreeMap::new(),
        violation: Some(violation),
        digest: 0,
    })
}

/// What a run is, or that a machine has panicked in it.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Violation::new("no machine panics", text.unwrap_or_default())
    })
}
