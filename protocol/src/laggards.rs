//! Members that take many times as long as others for the same work. What goes on may take any time, so that only the others tell how long is
//! too long. Must not know what the work is.

use std::time::Duration;

use crate::limits::{LAG_GRACE, LAG_TIMES};

/// How long the first half of those that have the same work to do took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Laggards {
    begun: Duration,
    half: Option<Duration>,
}

impl Laggards {
    /// Of work that begins now.
    pub(crate) const fn new(now: Duration) -> Self {
        let half = None;
        Self { begun: now, half }
    }

    /// The same for what is left of it, which others do from now on: how long it takes is known.
    pub(crate) fn again(&mut self, now: Duration) {
        self.begun = now;
    }

    /// So many of so many are done now.
    pub(crate) fn done(&mut self, done: usize, of: usize, now: Duration) {
        if done > 0 && done.saturating_mul(2) >= of {
            self.half.get_or_insert(now.saturating_sub(self.begun));
        }
    }

    /// Whether those that are not done now take too long.
    pub(crate) fn are_late(&self, now: Duration) -> bool {
        let most = self.half.map(|half| half.saturating_mul(LAG_TIMES).saturating_add(LAG_GRACE));
        most.is_some_and(|most| now.saturating_sub(self.begun) >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn how_long_is_too_long_the_first_half_tells() {
        let mut work = Laggards::new(seconds(100));
        work.done(1, 4, seconds(110));
        assert!(!work.are_late(seconds(1_000_000)), "one of four may be quick");
        work.done(2, 4, seconds(160));
        work.done(3, 4, seconds(900));
        let most = 100 + 60 * u64::from(LAG_TIMES) + LAG_GRACE.as_secs();
        assert!(!work.are_late(seconds(most - 1)) && work.are_late(seconds(most)));
    }
}
