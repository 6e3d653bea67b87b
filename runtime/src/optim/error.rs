//! Why an optimizer cannot work with its constants, and the ranges that several optimizers share.

/// Why an optimizer cannot work with its constants. No update was done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptimError {
    /// A constant is out of its range, or not a number: correct it where the optimizer is made.
    #[error("{optimizer}: expected {constant} to be {expected}, found {found}; correct it where the optimizer is made")]
    Constant {
        /// The optimizer.
        optimizer: &'static str,
        /// The constant's name, as in [`super::Optimizer::describe`].
        constant: &'static str,
        /// Its range.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
}

/// Says which optimizer it is that has a constant out of range.
pub(super) struct Constants(pub(super) &'static str);

impl Constants {
    /// A momentum, or the part of an average that stays. One that an f32 rounds to 1 would forget nothing.
    pub(super) fn fraction(&self, constant: &'static str, found: f64) -> Result<(), OptimError> {
        let right = (0.0..1.0).contains(&(found as f32)) && found >= 0.0;
        self.require(right, constant, "from 0 to below 1 as an f32", found)
    }

    /// What is added to a root that a quotient of f32 divides by. Where a gradient was always 0, so is the root: an epsilon that
    /// is 0 as an f32 would make the value 0 / 0.
    pub(super) fn divisor(&self, constant: &'static str, found: f64) -> Result<(), OptimError> {
        let normal = f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX);
        self.require(
            normal.contains(&found),
            constant,
            "from 1.2e-38 to 3.4e38, a normal f32",
            found,
        )
    }

    /// An error that says so, unless the constant is `right`.
    pub(super) fn require(
        &self,
        right: bool,
        constant: &'static str,
        expected: &'static str,
        found: f64,
    ) -> Result<(), OptimError> {
        if right {
            return Ok(());
        }
        Err(OptimError::Constant {
            optimizer: self.0,
            constant,
            expected,
            found,
        })
    }
}
