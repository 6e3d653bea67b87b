//! How much of something there is a second: over the last seconds, not since the start.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{RATE_OVER, RATE_SAMPLE};

/// Counts steps, or samples, as they are reported.
#[derive(Debug, Default)]
pub struct Rate {
    /// When a part of the window began, and how many were reported in it. The oldest one only says since when the others count.
    parts: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// So many more were reported at `now`, a time since any beginning.
    pub fn count(&mut self, now: Duration, more: u64) {
        match self.parts.back_mut() {
            Some((began, sum)) if now.saturating_sub(*began) < RATE_SAMPLE => *sum += more,
            Some(_) | None => self.parts.push_back((now, more)),
        }
        // What comes more seldom than the window is long still has a rate: the last two parts stay.
        while self.parts.len() > 2 && self.parts.get(1).is_some_and(|(began, _)| *began + RATE_OVER < now) {
            self.parts.pop_front();
        }
    }

    /// How many a second at `now`; 0 when nothing was reported for longer than it should take.
    #[must_use]
    pub fn per_second(&self, now: Duration) -> f64 {
        let (Some(&(oldest, _)), Some(&(newest, _))) = (self.parts.front(), self.parts.back()) else {
            return 0.0;
        };
        let usual = (newest.saturating_sub(oldest)).max(RATE_OVER);
        let counted: u64 = self.parts.iter().skip(1).map(|(_, counted)| counted).sum();
        let over = now.saturating_sub(oldest);
        if counted == 0 || over.is_zero() || now.saturating_sub(newest) > usual {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let counted = counted as f64;
        counted / over.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_job_has_its_rate_and_a_still_one_has_none() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(0)).to_bits(), 0.0_f64.to_bits());
        for tick in 0..1_000 {
            rate.count(at(tick * 10), 2);
        }
        let found = rate.per_second(at(10_000));
        assert!((found - 200.0).abs() < 5.0, "{found}");
        assert!(rate.parts.len() <= 60, "{}", rate.parts.len());
        assert!(rate.per_second(at(14_000)) < found);
        assert_eq!(rate.per_second(at(30_000)).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn slow_steps_have_a_rate_too() {
        let mut rate = Rate::default();
        for tick in 0..5 {
            rate.count(at(tick * 20_000), 1);
        }
        let found = rate.per_second(at(80_000));
        assert!((found - 0.05).abs() < 0.001, "{found}");
    }

    #[test]
    fn what_was_before_the_window_does_not_count() {
        let mut rate = Rate::default();
        // A minute in which nothing comes, as after a start, then a burst, then a tenth of it.
        rate.count(at(60_000), 5);
        for tick in 1..=1_000 {
            rate.count(at(60_000 + tick * 10), 10);
        }
        let found = rate.per_second(at(70_000));
        assert!((found - 1_000.0).abs() < 25.0, "{found}");
        for tick in 1..=1_000 {
            rate.count(at(70_000 + tick * 10), 1);
        }
        let found = rate.per_second(at(80_000));
        assert!((found - 100.0).abs() < 2.5, "{found}");
    }
}
