//! Stochastic gradient descent: plain, with momentum (Polyak 1964), or with Nesterov's.

use super::error::{Constants, OptimError};
use super::{DeviceUpdate, Optimizer, Update, slots_of};

/// Stochastic gradient descent with L2 decay, as PyTorch's `SGD` with dampening 0.
///
/// With g the gradient and decay d: `g += d·w`, `v = momentum·v + g`, `w -= rate·v`; Nesterov's takes `w -= rate·(g + momentum·v)`
/// (Sutskever, Martens, Dahl, Hinton: "On the importance of initialization and momentum in deep learning", ICML 2013). The rate is
/// outside the velocity v, so a change of the rate acts at once and in full, and needs no correction of momentum (Goyal et al. 2017,
/// remark 2). Without momentum nothing is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    momentum: f64,
    form: Form,
}

/// Which way a value goes, once its velocity is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Form {
    /// Along the velocity.
    #[default]
    Heavy,
    /// Along the gradient, and the velocity as it will be after the next one.
    Nesterov,
}

impl Sgd {
    /// Without momentum.
    #[must_use]
    pub const fn new() -> Self {
        let (momentum, form) = (0.0, Form::Heavy);
        Self { momentum, form }
    }

    /// With Nesterov's momentum, which is above 0 and below 1.
    #[must_use]
    pub const fn nesterov(momentum: f64) -> Self {
        let form = Form::Nesterov;
        Self { momentum, form }
    }

    /// The same with another momentum, from 0 to below 1.
    #[must_use]
    pub const fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    fn plain(&self) -> bool {
        self.momentum == 0.0
    }
}

impl Optimizer for Sgd {
    fn slots(&self) -> &'static [&'static str] {
        if self.plain() { &[] } else { &["momentum"] }
    }

    fn describe(&self) -> String {
        let form = match self.form {
            Form::Heavy => "",
            Form::Nesterov => ", nesterov",
        };
        format!("sgd(momentum {}{form})", self.momentum)
    }

    fn check(&self) -> Result<(), OptimError> {
        let constants = Constants("sgd");
        match self.form {
            Form::Heavy => constants.fraction("momentum", self.momentum),
            Form::Nesterov => {
                constants.require(!self.plain(), "momentum", "above 0 for Nesterov's", self.momentum)?;
                constants.fraction("momentum", self.momentum)
            }
        }
    }

    fn device_update(&self) -> Option<DeviceUpdate> {
        let momentum = self.momentum;
        if self.plain() {
            return Some(DeviceUpdate::Sgd);
        }
        Some(match self.form {
            Form::Heavy => DeviceUpdate::Momentum { momentum },
            Form::Nesterov => DeviceUpdate::Nesterov { momentum },
        })
    }

    fn update(&self, update: &Update, values: &mut [f32], gradient: &[f32], slots: &mut [&mut [f32]]) {
        let (rate, decay) = (update.rate as f32, update.decay as f32);
        if self.plain() {
            let [] = slots_of(values, gradient, slots);
            return descend(values, gradient, rate, decay);
        }
        let [velocity] = slots_of(values, gradient, slots);
        let momentum = self.momentum as f32;
        match self.form {
            Form::Heavy => heavy(values, gradient, velocity, [rate, decay, momentum]),
            Form::Nesterov => nesterov(values, gradient, velocity, [rate, decay, momentum]),
        }
    }
}

fn descend(values: &mut [f32], gradient: &[f32], rate: f32, decay: f32) {
    for (w, &g) in values.iter_mut().zip(gradient) {
        *w -= rate * (g + decay * *w);
    }
}

fn heavy(values: &mut [f32], gradient: &[f32], velocity: &mut [f32], [rate, decay, momentum]: [f32; 3]) {
    for ((w, &g), v) in values.iter_mut().zip(gradient).zip(velocity) {
        *v = momentum * *v + (g + decay * *w);
        *w -= rate * *v;
    }
}

fn nesterov(values: &mut [f32], gradient: &[f32], velocity: &mut [f32], [rate, decay, momentum]: [f32; 3]) {
    for ((w, &g), v) in values.iter_mut().zip(gradient).zip(velocity) {
        let g = g + decay * *w;
        *v = momentum * *v + g;
        *w -= rate * (g + momentum * *v);
    }
}
