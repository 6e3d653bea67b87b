//! LARS (You, Gitman, Ginsburg: "Large batch training of convolutional networks", 2017, algorithm 1).

use super::error::{Constants, OptimError};
use super::{Optimizer, Update, slots_of};

/// [`super::Sgd`] with momentum whose rate is, for each tensor, in proportion to the tensor's norm over its gradient's: the larger the
/// batch and the rate, the more it matters that no layer moves far at once.
///
/// With g the gradient and decay d: `ratio = trust·‖w‖ / (‖g‖ + d·‖w‖ + epsilon)`, `v = momentum·v + rate·ratio·(g + d·w)`,
/// `w -= v`. As in the paper, the rate is inside the velocity v. The paper has no epsilon.
///
/// The ratio is 1 for a tensor one of whose norms is 0, since it says nothing then. [`crate::fit::Fit`] gives norms of 0 for tensors that
/// the decay mask leaves out (biases, scales of normalisation), which the usual recipes train at the plain rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lars {
    trust: f64,
    momentum: f64,
    epsilon: f64,
}

impl Lars {
    /// With the paper's constants, trust 0.001 and momentum 0.9, and epsilon 1e-8.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            trust: 0.001,
            momentum: 0.9,
            epsilon: 1e-8,
        }
    }

    /// How far a tensor may move in one update at rate 1, as a part of its norm; above 0. The paper's η.
    #[must_use]
    pub const fn trust(self, trust: f64) -> Self {
        Self { trust, ..self }
    }

    /// Momentum, from 0 to below 1.
    #[must_use]
    pub const fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// What is added to the norms that the ratio divides by; 0 or more.
    #[must_use]
    pub const fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    fn ratio(&self, update: &Update) -> f64 {
        let Update { decay, norms, .. } = update;
        if norms.values == 0.0 || norms.gradient == 0.0 {
            return 1.0;
        }
        self.trust * norms.values / (norms.gradient + decay * norms.values + self.epsilon)
    }
}

impl Default for Lars {
    fn default() -> Self {
        Self::new()
    }
}

impl Optimizer for Lars {
    fn slots(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn wants_norms(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let Self {
            trust,
            momentum,
            epsilon,
        } = self;
        format!("lars(trust {trust}, momentum {momentum}, epsilon {epsilon})")
    }

    fn check(&self) -> Result<(), OptimError> {
        let constants = Constants("lars");
        let trusts = self.trust > 0.0 && self.trust.is_finite();
        constants.require(trusts, "trust", "finite and above 0", self.trust)?;
        constants.fraction("momentum", self.momentum)?;
        let adds = self.epsilon >= 0.0 && self.epsilon.is_finite();
        constants.require(adds, "epsilon", "finite and 0 or more", self.epsilon)
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let [velocity] = slots_of(values, gradient, slots);
        let rate = (update.rate * self.ratio(update)) as f32;
        follow(values, gradient, velocity, [rate, update.decay as f32, self.momentum as f32]);
    }
}

fn follow(values: &mut [f32], gradient: &[f32], velocity: &mut [f32], [rate, decay, momentum]: [f32; 3]) {
    for ((w, &g), v) in values.iter_mut().zip(gradient).zip(velocity) {
        *v = momentum * *v + rate * (g + decay * *w);
        *w -= *v;
    }
}
