//! How fast a training thread computes gradients, and makes updates: the time between a task and its result. Waiting for others is between a result and
//! the next task, and never counted. Must not know what is done with it.

use std::collections::VecDeque;
use std::time::Duration;

use sardana_protocol::words::Pace;
use tokio::time::Instant;

use crate::worker::limits::{PACE_LEAST, PACE_WINDOW};

/// The last gradients' times, and the last update's.
#[derive(Debug, Default)]
pub(super) struct Meter {
    began: Option<Instant>,
    /// Oldest first.
    last: VecDeque<Duration>,
    update_began: Option<Instant>,
    last_update: Option<Duration>,
}

impl Meter {
    /// A gradient is asked for.
    pub(super) fn begins(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// It is there.
    pub(super) fn ends(&mut self, now: Instant) {
        let Some(began) = self.began.take() else { return };
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

    /// How long the last gradient took.
    pub(super) fn last_gradient(&self) -> Option<Duration> {
        self.last.back().copied()
    }

    /// How long the last update took.
    pub(super) const fn last_update(&self) -> Option<Duration> {
        self.last_update
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
    fn the_last_ones_times_are_known_as_soon_as_they_are_over() {
        let (mut meter, now) = (Meter::default(), Instant::now());
        assert_eq!((meter.last_gradient(), meter.last_update()), (None, None));
        let after = |millis| now + Duration::from_millis(millis);
        meter.begins(now);
        meter.ends(after(3));
        meter.update_begins(after(5));
        assert_eq!(meter.last_update(), None);
        meter.update_ends(after(9));
        // Nobody asked for that one.
        meter.update_ends(after(30));
        let [gradient, update] = [3, 4].map(Duration::from_millis);
        assert_eq!((meter.last_gradient(), meter.last_update()), (Some(gradient), Some(update)));
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
