//! Learning rates: a schedule is a pure function of the number of the update, so it knows neither epochs nor membership, and a job
//! that resumes finds the rate that it would have had.
//!
//! Updates count from 0, the first, and always from the job's beginning: a warm-up multiplies the rate by its factor and moves
//! nothing, so that "at epoch 30" stays at epoch 30. The rates are computed by operations that every machine rounds alike.
//!
//! ```
//! use sardana::schedule::Schedule;
//!
//! // ImageNet in batches of 8,192 (Goyal et al. 2017): 5 epochs of warm-up, and a tenth of the rate from epochs 30, 60 and 80 on.
//! let epoch = 157;
//! let pieces = [(0, 3.2), (30 * epoch, 0.32), (60 * epoch, 0.032), (80 * epoch, 0.0032)];
//! let schedule = Schedule::pieces(&pieces).warm_up(5 * epoch);
//! assert!(schedule.check().is_ok());
//! assert_eq!(schedule.at(29 * epoch), 3.2);
//! assert_eq!(schedule.at(30 * epoch), 0.32);
//! ```

mod curve;
mod error;
mod shape;
#[cfg(test)]
mod tests;
mod warm_up;

pub use error::ScheduleError;

use shape::Shape;
use warm_up::WarmUp;

/// The learning rate of each update.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    shape: Shape,
    warm_up: Option<WarmUp>,
}

impl Schedule {
    /// Always `rate`.
    #[must_use]
    pub const fn constant(rate: f64) -> Self {
        Self::of(Shape::Constant { rate })
    }

    /// `rate`, times `factor` once more at each multiple of `every`.
    #[must_use]
    pub const fn step(rate: f64, every: u64, factor: f64) -> Self {
        Self::of(Shape::Step { rate, every, factor })
    }

    /// `rate · factor^(update / every)`, without steps.
    #[must_use]
    pub const fn exponential(rate: f64, every: u64, factor: f64) -> Self {
        Self::of(Shape::Exponential { rate, factor, every })
    }

    /// From `from` at update 0 to `to` at update `over` along half a period of a cosine, and `to` after it (Loshchilov and Hutter:
    /// "SGDR: stochastic gradient descent with warm restarts", ICLR 2017; without the restarts).
    #[must_use]
    pub const fn cosine(from: f64, to: f64, over: u64) -> Self {
        Self::of(Shape::Cosine { from, to, over })
    }

    /// From `from` at update 0 to `to` at update `over` by the same amount at each, and `to` after it.
    #[must_use]
    pub const fn linear(from: f64, to: f64, over: u64) -> Self {
        Self::of(Shape::Linear { from, to, over })
    }

    /// A table: from which update on there is which rate. The first piece begins at update 0, each other one after the one before it.
    #[must_use]
    pub fn pieces(pieces: &[(u64, f64)]) -> Self {
        Self::of(Shape::Pieces(pieces.to_vec()))
    }

    /// The same with a gradual warm-up over the first `updates`: the rate is multiplied by `1/updates` at the first of them, by
    /// `2/updates` at the next, and so on to 1 at the last, from which on it is what it would have been. 0 or 1 is no warm-up.
    #[must_use]
    pub const fn warm_up(self, updates: u64) -> Self {
        let from = 1.0 / (if updates == 0 { 1 } else { updates }) as f64;
        self.warm_up_from(from, updates)
    }

    /// The same with a gradual warm-up over the first `updates`, from `factor` at the first of them, by the same amount at each, to 1
    /// at the last. For a rate that was scaled to a batch k times as large, Goyal et al. (2017, section 2.2) begin at the factor 1/k:
    /// the rate from before it was scaled. A warm-up replaces an earlier one.
    #[must_use]
    pub const fn warm_up_from(mut self, factor: f64, updates: u64) -> Self {
        self.warm_up = Some(WarmUp { from: factor, updates });
        self
    }

    /// The rate of an update, counted from 0. It is finite and not negative for every update, if [`Self::check`] finds nothing.
    #[must_use]
    pub fn at(&self, update: u64) -> f64 {
        let factor = self.warm_up.map_or(1.0, |warm_up| warm_up.factor(update));
        (self.shape.at(update) * factor).min(f64::MAX)
    }

    /// The schedule with all its constants, as part of the job's identity.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.warm_up {
            None => self.shape.describe(),
            Some(warm_up) => format!("{} times {}", self.shape.describe(), warm_up.describe()),
        }
    }

    /// Whether there is a rate for each update.
    ///
    /// # Errors
    /// When a rate or factor is negative, infinite or not a number; when something takes no updates; when a table of pieces is not
    /// sorted or does not begin at update 0.
    pub fn check(&self) -> Result<(), ScheduleError> {
        self.shape.check()?;
        self.warm_up.map_or(Ok(()), |warm_up| warm_up.check())
    }

    const fn of(shape: Shape) -> Self {
        let warm_up = None;
        Self { shape, warm_up }
    }
}

impl From<f64> for Schedule {
    fn from(rate: f64) -> Self {
        Self::constant(rate)
    }
}
