//! What a watcher remembers, since a status only says how things are.

use std::collections::VecDeque;

use sardana_protocol::status::JobStatus;
use sardana_protocol::words::Step;

use crate::operator::words::sums;

/// As many points as a wide screen has columns.
const KEPT: usize = 256;

/// The means of the last steps that were seen, and the rates.
#[derive(Debug, Clone, Default)]
pub struct History {
    newest: Option<Step>,
    means: VecDeque<Vec<f64>>,
    rates: VecDeque<f64>,
}

impl History {
    /// Takes in a status.
    pub fn note(&mut self, status: &JobStatus) {
        keep(&mut self.rates, status.steps_per_second);
        let Some(last) = &status.last else { return };
        if self.newest != Some(last.step) {
            self.newest = Some(last.step);
            keep(&mut self.means, sums(status).into_iter().map(|(_, mean)| mean).collect());
        }
    }

    /// The last values of the sum at `place`, oldest first, as heights up to `most`; none where there was no number.
    #[must_use]
    pub fn heights(&self, place: usize, most: u64) -> Vec<Option<u64>> {
        let values = self.means.iter().map(|means| means.get(place).copied());
        heights(values, most)
    }

    /// The same for steps per second.
    #[must_use]
    pub fn rate_heights(&self, most: u64) -> Vec<Option<u64>> {
        heights(self.rates.iter().copied().map(Some), most)
    }
}

fn keep<T>(kept: &mut VecDeque<T>, newest: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(newest);
}

/// Between the smallest value, which is 1, and the largest, which is `most`.
fn heights(values: impl Iterator<Item = Option<f64>> + Clone, most: u64) -> Vec<Option<u64>> {
    let finite = || values.clone().flatten().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let height = |value: f64| {
        let part = if high > low { (value - low) / (high - low) } else { 0.5 };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a height of a bar: the part is within 0 and 1"
        )]
        let height = (part * most.saturating_sub(1) as f64) as u64;
        height + 1
    };
    values
        .map(|value| value.filter(|value| value.is_finite()).map(height))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_lie_between_one_and_the_most() {
        let values = [Some(2.0), None, Some(f64::NAN), Some(4.0), Some(3.0)];
        assert_eq!(heights(values.into_iter(), 9), [Some(1), None, None, Some(9), Some(5)]);
        assert_eq!(heights([Some(7.0), Some(7.0)].into_iter(), 9), [Some(5), Some(5)]);
        assert!(heights(std::iter::empty(), 9).is_empty());
    }
}
