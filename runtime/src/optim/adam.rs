//! Adam (Kingma and Ba: "Adam: a method for stochastic optimization", ICLR 2015) and `AdamW` (Loshchilov and Hutter: "Decoupled
//! weight decay regularization", ICLR 2019). They share their moments and differ in where the decay goes.

use multiversion::multiversion;

use super::error::{Constants, OptimError};
use super::{DeviceUpdate, Optimizer, Update, power, slots_of};

/// Follows the running mean of each value's gradients, divided by the root of the running mean of their squares, both corrected for
/// having started at 0; L2 decay; as PyTorch's `Adam`.
///
/// With g the gradient, decay d and update t: `g += d·w`, `m = beta1·m + (1 - beta1)·g`, `s = beta2·s + (1 - beta2)·g²`,
/// `w -= rate · m/(1 - beta1^t) / (√(s/(1 - beta2^t)) + epsilon)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Adam {
    moments: Moments,
}

impl Adam {
    /// With PyTorch's constants, which are the paper's: betas 0.9 and 0.999, epsilon 1e-8.
    #[must_use]
    pub const fn new() -> Self {
        let moments = Moments::new();
        Self { moments }
    }

    /// The parts of the mean of gradients and of the mean of squares that stay at each update, each from 0 to below 1.
    #[must_use]
    pub const fn betas(self, beta1: f64, beta2: f64) -> Self {
        let moments = self.moments.betas(beta1, beta2);
        Self { moments }
    }

    /// What is added to the root; above 0.
    #[must_use]
    pub const fn epsilon(self, epsilon: f64) -> Self {
        let moments = self.moments.epsilon(epsilon);
        Self { moments }
    }
}

impl Optimizer for Adam {
    fn slots(&self) -> &'static [&'static str] {
        SLOTS
    }

    fn describe(&self) -> String {
        self.moments.describe("adam")
    }

    fn check(&self) -> Result<(), OptimError> {
        self.moments.check(&Constants("adam"))
    }

    fn device_update(&self) -> Option<DeviceUpdate> {
        Some(self.moments.device_update(false))
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let decay = Decay {
            gradient: update.decay,
            value: 0.0,
        };
        self.moments.follow(update, decay, values, gradient, slots);
    }
}

/// [`Adam`] whose decay does not pass through the moments: each update also takes `rate·decay·w` off the value; as PyTorch's `AdamW`.
///
/// PyTorch's decay is 0.01 unless told otherwise; here it is 0 unless the job says otherwise, as for every optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdamW {
    moments: Moments,
}

impl AdamW {
    /// With PyTorch's constants: betas 0.9 and 0.999, epsilon 1e-8.
    #[must_use]
    pub const fn new() -> Self {
        let moments = Moments::new();
        Self { moments }
    }

    /// As [`Adam::betas`].
    #[must_use]
    pub const fn betas(self, beta1: f64, beta2: f64) -> Self {
        let moments = self.moments.betas(beta1, beta2);
        Self { moments }
    }

    /// As [`Adam::epsilon`].
    #[must_use]
    pub const fn epsilon(self, epsilon: f64) -> Self {
        let moments = self.moments.epsilon(epsilon);
        Self { moments }
    }
}

impl Optimizer for AdamW {
    fn slots(&self) -> &'static [&'static str] {
        SLOTS
    }

    fn describe(&self) -> String {
        self.moments.describe("adamw")
    }

    fn check(&self) -> Result<(), OptimError> {
        self.moments.check(&Constants("adamw"))
    }

    fn device_update(&self) -> Option<DeviceUpdate> {
        Some(self.moments.device_update(true))
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let decay = Decay {
            gradient: 0.0,
            value: update.rate * update.decay,
        };
        self.moments.follow(update, decay, values, gradient, slots);
    }
}

const SLOTS: &[&str] = &["mean", "mean_square"];

/// How the two moments are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moments {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
}

/// Which part of a value is added to its gradient, and which is taken off the value itself.
struct Decay {
    gradient: f64,
    value: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self::new()
    }
}

impl Moments {
    const fn new() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        }
    }

    const fn betas(self, beta1: f64, beta2: f64) -> Self {
        let epsilon = self.epsilon;
        Self { beta1, beta2, epsilon }
    }

    const fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    fn describe(&self, name: &str) -> String {
        let Self { beta1, beta2, epsilon } = self;
        format!("{name}(beta1 {beta1}, beta2 {beta2}, epsilon {epsilon})")
    }

    fn check(&self, constants: &Constants) -> Result<(), OptimError> {
        constants.fraction("beta1", self.beta1)?;
        constants.fraction("beta2", self.beta2)?;
        constants.divisor("epsilon", self.epsilon)
    }

    const fn device_update(self, decoupled: bool) -> DeviceUpdate {
        let Self { beta1, beta2, epsilon } = self;
        DeviceUpdate::Adam {
            betas: [beta1, beta2],
            epsilon,
            decoupled,
        }
    }

    fn follow(&self, update: &Update, decay: Decay, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let [means, squares] = slots_of(values, gradient, slots);
        let scalars = Scalars {
            to_gradient: decay.gradient as f32,
            off_value: decay.value as f32,
            fresh_mean: (1.0 - self.beta1) as f32,
            fresh_square: (1.0 - self.beta2) as f32,
            step: (update.rate / (1.0 - power(self.beta1, update.number))) as f32,
            unbias_root: (1.0 / (1.0 - power(self.beta2, update.number)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        };
        follow(&scalars, values, gradient, means, squares);
    }
}

/// What all values share.
struct Scalars {
    to_gradient: f32,
    /// Not 1 less this, which f32 rounds to within 6e-8 of 1: a large part of a decay that is small itself.
    off_value: f32,
    /// 1 - beta1.
    fresh_mean: f32,
    /// 1 - beta2. That beta2 itself is not used is what keeps the mean unbiased: as f32s, 0.999 and 0.001 add up to 1 + 1.3e-8, and
    /// over the thousand updates that the mean looks back that would become 1.3e-5 of it.
    fresh_square: f32,
    /// The rate, and the correction of the mean.
    step: f32,
    /// The correction of the root of the mean of squares.
    unbias_root: f32,
    epsilon: f32,
}

/// The processor decides which of its versions runs. They differ in how many values an instruction takes, and not in what becomes of a value.
#[multiversion(targets("x86_64+avx2"))]
fn follow(scalars: &Scalars, values: &mut [f32], gradient: &[f32], means: &mut [f32], squares: &mut [f32]) {
    for (((w, &g), m), s) in values.iter_mut().zip(gradient).zip(means).zip(squares) {
        let g = g + scalars.to_gradient * *w;
        *m += scalars.fresh_mean * (g - *m);
        // Not below 0, however it is rounded: rounding keeps order, and g·g - s is not below -s.
        *s += scalars.fresh_square * (g * g - *s);
        let root = s.sqrt() * scalars.unbias_root + scalars.epsilon;
        *w -= scalars.off_value * *w + scalars.step * (*m / root);
    }
}
