//! Optimizers: functions over a parameter's values, the mean gradient and named slots. They know no framework, no membership, and keep
//! nothing themselves: what they remember is in the slots, which are part of the state.
//!
//! Values, gradients and slots are f32, and so is the arithmetic on them; what all values share (the rate, the decay, a correction of
//! bias) is derived in f64, once a call. Only operations that IEEE 754 fixes to the bit are used, each value is computed from its own
//! place alone, and nothing is fused: two hosts with different mathematical libraries get the same bits, wherever a tensor is cut.
//!
//! - [`Sgd`]: plain, with momentum, or Nesterov's; [`Lars`]: the same with a rate of its own for each tensor, for large batches;
//! - [`RmsProp`], [`Adagrad`], [`Adam`], [`AdamW`]: a rate of its own for each value.
//!
//! ```
//! use sardana::optim::{Adam, Norms, Optimizer, Update};
//!
//! let adam = Adam::new().betas(0.9, 0.95);
//! assert!(adam.check().is_ok());
//! assert_eq!(adam.describe(), "adam(beta1 0.9, beta2 0.95, epsilon 0.00000001)");
//!
//! let (mut mean, mut square) = ([0.0], [0.0]);
//! let mut values = [1.0];
//! let first = Update { number: 1, rate: 0.25, decay: 0.0, norms: Norms::default() };
//! adam.update(&first, &mut values, &[3.0], &mut [&mut mean, &mut square]);
//! // Whatever the gradient's size, the first update goes as far as the rate.
//! assert!((values[0] - 0.75_f32).abs() < 1e-6);
//! ```

mod adagrad;
mod adam;
mod error;
mod lars;
mod power;
mod rmsprop;
mod sgd;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use error::OptimError;
pub use lars::Lars;
pub(crate) use power::power;
pub use rmsprop::RmsProp;
pub use sgd::Sgd;

/// How one update is done, for one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Which update it is, counted from 1.
    pub number: u64,
    /// The learning rate.
    pub rate: f64,
    /// The weight decay of this tensor; 0 where the mask leaves it out.
    pub decay: f64,
    /// The Euclidean norms of the whole tensor, for an optimizer that asks for them.
    pub norms: Norms,
}

/// Euclidean norms of one tensor, in f64; 0 for an optimizer that does not ask for them, and for a tensor that the decay mask leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Norms {
    /// Of its values.
    pub values: f64,
    /// Of its mean gradient, after clipping.
    pub gradient: f64,
}

/// How parameters follow gradients.
pub trait Optimizer: Debug + Send + Sync {
    /// Names of what it remembers of each value of a parameter, such as `momentum`; each starts at 0.
    fn slots(&self) -> &'static [&'static str];

    /// Whether it needs [`Update::norms`].
    fn wants_norms(&self) -> bool {
        false
    }

    /// What it does and with all its constants, as part of the job's identity.
    fn describe(&self) -> String;

    /// Whether its constants are ones that it can work with; asked once, before the job begins.
    ///
    /// # Errors
    /// When a constant is out of its range, or not a number.
    fn check(&self) -> Result<(), OptimError>;

    /// Which of the updates that devices have kernels for has the bits of [`Self::update`]. None, unless an optimizer says otherwise: then what it
    /// updates comes to the host and goes back, each time.
    fn device_update(&self) -> Option<DeviceUpdate> {
        None
    }

    /// Updates one run of a tensor's values: `gradient` and each of `slots` (in the order of [`Self::slots`]) are as long as `values`.
    /// A tensor may come in several runs, each value once; the result must not depend on where it is cut.
    ///
    /// # Panics
    /// When there are not as many slots as it has, or the gradient or a slot is not as long as the values.
    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]);
}

/// An update that devices have a kernel for, with its constants. Slots are in the order of those of the optimizer that is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceUpdate {
    /// That of [`Sgd`] without momentum: no slot.
    Sgd,
    /// That of [`Sgd`] with momentum: one slot.
    Momentum {
        /// The part of the velocity that stays.
        momentum: f64,
    },
    /// That of [`Sgd`] with Nesterov's momentum: one slot.
    Nesterov {
        /// The part of the velocity that stays.
        momentum: f64,
    },
    /// That of [`Adam`] or [`AdamW`]: two slots.
    Adam {
        /// The parts of both means that stay.
        betas: [f64; 2],
        /// What is added to the root.
        epsilon: f64,
        /// Whether the decay is taken off the value, as by [`AdamW`], in place of being added to the gradient.
        decoupled: bool,
    },
}

impl DeviceUpdate {
    /// How many slots it has.
    #[must_use]
    pub const fn slots(&self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::Momentum { .. } | Self::Nesterov { .. } => 1,
            Self::Adam { .. } => 2,
        }
    }
}

/// The slots of one run, once it is certain that nothing would be left out: `zip` stops silently at the shortest.
fn slots_of<'a, const N: usize>(values: &[f32], gradient: &[f32], slots: &'a mut [&mut [f32]]) -> [&'a mut [f32]; N] {
    let (length, found) = (values.len(), slots.len());
    assert_eq!(gradient.len(), length, "a gradient is as long as the values");
    let Ok(slots) = <&mut [_; N]>::try_from(slots) else {
        panic!("expected {N} slots, found {found}: pass those that `slots` names");
    };
    slots.each_mut().map(|slot| {
        assert_eq!(slot.len(), length, "a slot is as long as the values");
        &mut **slot
    })
}
