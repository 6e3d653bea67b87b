//! How fast a training thread computes gradients: the time between a task and its result. Waiting for others is between a result and
//! the next task, and never counted. Must not know what is done with it.

use std::collections::VecDeque;
use std::time::Duration;

use sardana_protocol::words::Pace;
use tokio::time::Instant;

use crate::worker::limits::{PACE_LEAST, PACE_WINDOW};

/// The last gradients' times.
#[derive(Debug, Default)]
pub(super) struct Meter {
    began: Option<Instant>,
    /// Oldest first.
    last: VecDeque<Duration>,
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
    fn a_result_that_nobody_asked_for_is_not_measured() {
        let mut meter = Meter::default();
        for _ in 0..PACE_WINDOW {
            meter.ends(Instant::now());
        }
        assert_eq!(meter.pace(), None);
    }
}
