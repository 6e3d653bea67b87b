//! Steps per second over the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use crate::operator::limits::{RATE_OVER, RATE_SAMPLE};

/// Counts steps as they are reported.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When a sample began, and how many steps were reported in it. The oldest one only says since when the others count.
    samples: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// So many steps more were reported.
    pub(super) fn count(&mut self, now: Duration, steps: u64) {
        match self.samples.back_mut() {
            Some((began, sum)) if now.saturating_sub(*began) < RATE_SAMPLE => *sum += steps,
            Some(_) | None => self.samples.push_back((now, steps)),
        }
        // Steps that take longer than the window still have a rate: the last two samples stay.
        while self.samples.len() > 2 && self.samples.get(1).is_some_and(|(began, _)| *began + RATE_OVER < now) {
            self.samples.pop_front();
        }
    }

    /// Steps per second; 0 when nothing was reported for longer than it should take.
    pub(super) fn per_second(&self, now: Duration) -> f64 {
        let (Some(&(oldest, _)), Some(&(newest, _))) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        let usual = (newest.saturating_sub(oldest)).max(RATE_OVER);
        let steps: u64 = self.samples.iter().skip(1).map(|(_, steps)| steps).sum();
        let over = now.saturating_sub(oldest);
        if steps == 0 || over.is_zero() || now.saturating_sub(newest) > usual {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let steps = steps as f64;
        steps / over.as_secs_f64()
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
        assert!(rate.samples.len() <= 60, "{}", rate.samples.len());
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
}
