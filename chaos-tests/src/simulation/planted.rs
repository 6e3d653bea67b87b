//! Bugs that the simulator must find: how many seeds and how long each took. Only with the feature `planted-bugs`.

use std::time::{Duration, Instant};

use sardana_protocol::planted::{Bug, plant};

use super::Violation;
use super::campaign::play_caught;
use super::story::Telling;

/// How a bug was found.
#[derive(Debug)]
pub struct Hunt {
    /// Which.
    pub bug: Bug,
    /// How many runs it took, or all of them if it was not found.
    pub runs: u64,
    /// How long that took.
    pub took: Duration,
    /// The seed of the run that found it, and what it violated. None if it was not found.
    pub found: Option<(u64, Violation)>,
}

/// Lets a bug loose and plays runs from `seed` on until it is found, at most so many.
#[must_use]
pub fn hunt(bug: Bug, seed: u64, most: u64, minutes: u64) -> Hunt {
    let began = Instant::now();
    plant(Some(bug));
    let mut runs = 0;
    let mut found = None;
    while found.is_none() && runs < most {
        let seed = seed.wrapping_add(runs);
        found = play_caught(seed, minutes, Telling::No)
            .violation
            .map(|violation| (seed, violation));
        runs += 1;
    }
    plant(None);
    Hunt {
        bug,
        runs,
        took: began.elapsed(),
        found,
    }
}
