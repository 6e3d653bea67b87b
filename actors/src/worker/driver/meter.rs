//! How fast a training thread computes gradients, and makes updates: the time between a task and its result. Waiting for others is between a result and
//! the next task, and never counted. Must not know what is done with it.

use std::collections::VecDeque;
use std::time::Duration;

use sardana_protocol::words::Pace;
use tokio::time::Instant;

use crate::worker::limits::{BRIEF, PACE_LEAST, PACE_WINDOW};

/// The last gradients' times, and the last update's.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When each gradient was asked for that is not there, oldest first.
    began: VecDeque<Instant>,
    /// When the last one was there.
    ended: Option<Instant>,
    /// Oldest first.
    last: VecDeque<Duration>,
    update_began: Option<Instant>,
    last_update: Option<Duration>,
}

impl Meter {
    /// A gradient is asked for.
    pub(super) fn begins(&mut self, now: Instant) {
        self.began.push_back(now);
    }

    /// The first of them is there. It has taken no time while the one before it was computed.
    pub(super) fn ends(&mut self, now: Instant) {
        let Some(began) = self.began.pop_front() else { return };
        let began = self.ended.replace(now).map_or(began, |ended| began.max(ended));
        if self.last.len() == PACE_WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(now.saturating_duration_since(began));
    }

    /// An update is asked for.
    pub(super) fn update_begins(&mut self, now: Instant) {
        self.update_began = Some(now);
    }

    /// It is made.
    pub(super) fn update_ends(&mut self, now: Instant) {
        let took = self.update_began.take().map(|began| now.saturating_duration_since(began));
        self.last_update = took.or(self.last_update);
    }

    /// Whether the last gradients were all [`BRIEF`]: it is not taken for brief after an empty shard that the next one will be.
    pub(super) fn gradients_are_brief(&self) -> bool {
        self.last.iter().max().is_some_and(|longest| *longest <= BRIEF)
    }

    /// Whether the last update was.
    pub(super) fn updates_are_brief(&self) -> bool {
        self.last_update.is_some_and(|last| last <= BRIEF)
    }

    /// The median: neither an interrupted gradient nor an empty shard counts for more than others.
    pub(super) fn pace(&self) -> Option<Pace> {
        let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        let enough = sorted.len() >= PACE_LEAST;
        enough.then(|| Pace::new(sorted[sorted.len() / 2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(millis: impl IntoIterator<Item = u64>) -> Option<Pace> {
        let mut meter = Meter::default();
        let mut now = Instant::now();
        for millis in millis {
            meter.begins(now);
            now += Duration::from_millis(millis);
            meter.ends(now);
            // What it waits for others.
            now += Duration::from_secs(1);
        }
        meter.pace()
    }

    fn ms(millis: u64) -> Option<Pace> {
        Some(Pace::new(Duration::from_millis(millis)))
    }

    #[test]
    fn a_pace_is_the_median_of_the_last_gradients() {
        assert_eq!(measured([5, 5, 5]), None, "too few");
        assert_eq!(measured([900, 5, 5, 5]), ms(5), "the first one took longer");
        assert_eq!(
            measured([5, 7, 300, 6, 5, 0, 7]),
            ms(6),
            "an interruption, and an empty shard"
        );
        assert_eq!(measured([5; 100].into_iter().chain([20; 9])), ms(20), "it has become slow");
        assert_eq!(measured([5; 100].into_iter().chain([20; 7])), ms(5), "or has it?");
    }

    #[test]
    fn of_gradients_that_are_enqueued_one_behind_another_each_takes_what_it_takes_alone() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        meter.begins(at(0));
        for shard in 1..=4 {
            meter.begins(at(10 * shard - 9));
            meter.ends(at(10 * shard));
        }
        meter.ends(at(50));
        assert_eq!(meter.last, [Duration::from_millis(10); 5]);
    }

    #[test]
    fn gradients_are_brief_as_long_as_none_of_the_last_was_long() {
        let (mut meter, mut now) = (Meter::default(), Instant::now());
        let mut gradient = |meter: &mut Meter, took| {
            meter.begins(now);
            now += took;
            meter.ends(now);
            meter.gradients_are_brief()
        };
        assert!(!meter.gradients_are_brief(), "it is not known");
        assert!(gradient(&mut meter, BRIEF));
        assert!(!gradient(&mut meter, BRIEF + Duration::from_micros(1)));
        for _ in 1..PACE_WINDOW {
            assert!(
                !gradient(&mut meter, Duration::ZERO),
                "an empty shard tells nothing of others"
            );
        }
        assert!(gradient(&mut meter, BRIEF));
    }

    #[test]
    fn an_update_is_as_brief_as_the_last_one() {
        let (mut meter, now) = (Meter::default(), Instant::now());
        let mut update = |took| {
            meter.update_begins(now);
            meter.update_ends(now + took);
            // It was not asked for.
            meter.update_ends(now + Duration::from_secs(9));
            meter.updates_are_brief()
        };
        assert!(update(BRIEF) && !update(BRIEF + Duration::from_micros(1)) && update(Duration::ZERO));
    }

    #[test]
    fn a_result_that_nobody_asked_for_is_not_measured() {
        let mut meter = Meter::default();
        for _ in 0..PACE_WINDOW {
            meter.ends(Instant::now());
        }
        assert_eq!(meter.pace(), None);
    }
}
