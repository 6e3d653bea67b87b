//! When an agent starts a worker in place of one that ended: at once if that one had taken part in training, since the others miss it.
//! Waiting is for programs that cannot start: they would only burn the processors.

use std::time::Duration;

use crate::limits::{LIVED, REPLACE_LATER, REPLACE_LATER_MOST};
use crate::messages::Tally;
use crate::words::Step;

/// What an agent remembers of the workers that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replacing {
    /// Workers in a row that ended soon after their start and had not taken part.
    failures: u32,
}

impl Replacing {
    /// How long the successor of a worker waits that ended, or could not be started, after so long. `tally` is its count, if it told one.
    pub fn wait(&mut self, lived: Duration, tally: Option<Tally>) -> Duration {
        if lived >= LIVED || tally.is_some_and(has_taken_part) {
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
        }
        match self.failures.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => (REPLACE_LATER * 2_u32.pow(doublings.min(10))).min(REPLACE_LATER_MOST),
        }
    }
}

/// Whether a worker has computed a gradient, or has had the state of some step.
fn has_taken_part(tally: Tally) -> bool {
    tally.total > 0 || tally.step > Step::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: (Duration, Option<Tally>) = (Duration::ZERO, None);

    /// It was ready to take part.
    const READY: (Duration, Option<Tally>) = (
        Duration::from_secs(1),
        Some(Tally {
            total: 0,
            step: Step::ZERO,
            this_step: 0,
            previous_step: 0,
        }),
    );

    fn waits(lives: &[(Duration, Option<Tally>)]) -> Vec<u128> {
        let mut replacing = Replacing::default();
        let wait = |&(lived, tally): &(Duration, Option<Tally>)| replacing.wait(lived, tally).as_millis();
        lives.iter().map(wait).collect()
    }

    #[test]
    fn a_program_that_cannot_start_is_started_later_and_later_up_to_a_bound() {
        assert_eq!(waits(&[FAILED; 6]), [0, 100, 200, 400, 800, 1_600]);
        assert_eq!(waits(&[FAILED, READY, FAILED, READY]), [0, 100, 200, 400]);
        assert_eq!(waits(&[FAILED; 100]).last(), Some(&REPLACE_LATER_MOST.as_millis()));
    }

    #[test]
    fn one_that_has_taken_part_or_lived_long_is_replaced_at_once_and_all_is_forgiven() {
        let computed = Tally {
            total: 1,
            ..Tally::default()
        };
        // A spare computes nothing, and a joiner nothing yet.
        let had_the_state = Tally {
            step: Step::new(3),
            ..Tally::default()
        };
        for good in [
            (Duration::ZERO, Some(computed)),
            (Duration::ZERO, Some(had_the_state)),
            (LIVED, None),
        ] {
            assert_eq!(
                waits(&[FAILED, FAILED, FAILED, good, FAILED, FAILED]),
                [0, 100, 200, 0, 0, 100]
            );
            assert_eq!(waits(&[good; 9]), [0; 9]);
        }
    }
}
