//! A gradual warm-up (Goyal et al.: "Accurate, large minibatch SGD: training ImageNet in 1 hour", 2017, section 2.2).

use super::error::ScheduleError;

/// A factor of the rate that grows by the same amount at each update: from `from` at the first to 1 at number `updates`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WarmUp {
    pub(super) from: f64,
    pub(super) updates: u64,
}

impl WarmUp {
    /// The factor at an update, counted from 0; 1 from the last update of the warm-up on, exactly.
    pub(super) fn factor(&self, update: u64) -> f64 {
        let steps = self.updates.saturating_sub(1);
        if update >= steps {
            return 1.0;
        }
        self.from + (1.0 - self.from) * (update as f64 / steps as f64)
    }

    pub(super) fn describe(&self) -> String {
        format!("warm_up(from {}, updates {})", self.from, self.updates)
    }

    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        if (0.0..=1.0).contains(&self.from) {
            return Ok(());
        }
        Err(ScheduleError::Constant {
            shape: "warm_up",
            constant: "from",
            expected: "a factor from 0 to 1",
            found: self.from,
        })
    }
}
