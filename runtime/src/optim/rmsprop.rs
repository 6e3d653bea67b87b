//! `RMSProp` (Tieleman and Hinton: "Lecture 6.5 - RMSProp", Neural Networks for Machine Learning, 2012).

use super::error::{Constants, OptimError};
use super::{Optimizer, Update, slots_of};

/// Divides each value's gradient by the root of a running mean of its squares; L2 decay; as PyTorch's `RMSprop`, not centered.
///
/// With g the gradient and decay d: `g += d·w`, `s = alpha·s + (1 - alpha)·g²`, `v = momentum·v + g/(√s + epsilon)`, `w -= rate·v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    alpha: f64,
    epsilon: f64,
    momentum: f64,
}

impl RmsProp {
    /// With PyTorch's constants: alpha 0.99, epsilon 1e-8, no momentum.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            alpha: 0.99,
            epsilon: 1e-8,
            momentum: 0.0,
        }
    }

    /// The part of the mean of squares that stays at each update, from 0 to below 1.
    #[must_use]
    pub const fn alpha(self, alpha: f64) -> Self {
        Self { alpha, ..self }
    }

    /// What is added to the root; above 0.
    #[must_use]
    pub const fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    /// Momentum, from 0 to below 1; with 0 there is no slot for it.
    #[must_use]
    pub const fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    fn without_momentum(&self) -> bool {
        self.momentum == 0.0
    }
}

impl Default for RmsProp {
    fn default() -> Self {
        Self::new()
    }
}

impl Optimizer for RmsProp {
    fn slots(&self) -> &'static [&'static str] {
        if self.without_momentum() {
            &["mean_square"]
        } else {
            &["mean_square", "momentum"]
        }
    }

    fn describe(&self) -> String {
        let Self {
            alpha,
            epsilon,
            momentum,
        } = self;
        format!("rmsprop(alpha {alpha}, epsilon {epsilon}, momentum {momentum})")
    }

    fn check(&self) -> Result<(), OptimError> {
        let constants = Constants("rmsprop");
        constants.fraction("alpha", self.alpha)?;
        constants.divisor("epsilon", self.epsilon)?;
        constants.fraction("momentum", self.momentum)
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let scalars = Scalars {
            rate: update.rate as f32,
            decay: update.decay as f32,
            fresh: (1.0 - self.alpha) as f32,
            epsilon: self.epsilon as f32,
            momentum: self.momentum as f32,
        };
        if self.without_momentum() {
            let [squares] = slots_of(values, gradient, slots);
            scalars.follow(values, gradient, squares);
        } else {
            let [squares, velocity] = slots_of(values, gradient, slots);
            scalars.follow_with_momentum(values, gradient, squares, velocity);
        }
    }
}

/// What all values share.
struct Scalars {
    rate: f32,
    decay: f32,
    /// 1 - alpha. That alpha itself is not used is what keeps the mean unbiased: as f32s, the two do not add up to 1.
    fresh: f32,
    epsilon: f32,
    momentum: f32,
}

impl Scalars {
    fn follow(&self, values: &mut [f32], gradient: &[f32], squares: &mut [f32]) {
        for ((w, &g), s) in values.iter_mut().zip(gradient).zip(squares) {
            *w -= self.rate * self.direction(*w, g, s);
        }
    }

    fn follow_with_momentum(&self, values: &mut [f32], gradient: &[f32], squares: &mut [f32], velocity: &mut [f32]) {
        for (((w, &g), s), v) in values.iter_mut().zip(gradient).zip(squares).zip(velocity) {
            *v = self.momentum * *v + self.direction(*w, g, s);
            *w -= self.rate * *v;
        }
    }

    #[inline(always)]
    fn direction(&self, w: f32, g: f32, s: &mut f32) -> f32 {
        let g = g + self.decay * w;
        *s += self.fresh * (g * g - *s);
        g / (s.sqrt() + self.epsilon)
    }
}
