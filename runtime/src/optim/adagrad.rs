//! Adagrad (Duchi, Hazan, Singer: "Adaptive subgradient methods for online learning and stochastic optimization", JMLR 2011).

use super::error::{Constants, OptimError};
use super::{Optimizer, Update, slots_of};

/// Divides each value's gradient by the root of the sum of all its squares so far; L2 decay; as PyTorch's `Adagrad`, whose sum
/// starts at 0 and whose rate does not decay by itself: a [`crate::schedule::Schedule`] does that.
///
/// With g the gradient and decay d: `g += d·w`, `s += g²`, `w -= rate·g/(√s + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    epsilon: f64,
}

impl Adagrad {
    /// With PyTorch's constant: epsilon 1e-10.
    #[must_use]
    pub const fn new() -> Self {
        Self { epsilon: 1e-10 }
    }

    /// What is added to the root; above 0.
    #[must_use]
    pub const fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon }
    }
}

impl Default for Adagrad {
    fn default() -> Self {
        Self::new()
    }
}

impl Optimizer for Adagrad {
    fn slots(&self) -> &'static [&'static str] {
        &["sum_of_squares"]
    }

    fn describe(&self) -> String {
        format!("adagrad(epsilon {})", self.epsilon)
    }

    fn check(&self) -> Result<(), OptimError> {
        Constants("adagrad").divisor("epsilon", self.epsilon)
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let [squares] = slots_of(values, gradient, slots);
        follow(
            values,
            gradient,
            squares,
            [update.rate as f32, update.decay as f32, self.epsilon as f32],
        );
    }
}

fn follow(values: &mut [f32], gradient: &[f32], squares: &mut [f32], [rate, decay, epsilon]: [f32; 3]) {
    for ((w, &g), s) in values.iter_mut().zip(gradient).zip(squares) {
        let g = g + decay * *w;
        *s += g * g;
        *w -= rate * (g / (s.sqrt() + epsilon));
    }
}
