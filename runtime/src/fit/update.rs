//! One update: from the mean gradient to the next state. What it reads is the state, the mean and constants.

use std::sync::Arc;

use super::error::FitError;
use super::network::{Network, Parameter, Role};
use super::norm::Squares;
use super::state::State;
use crate::model::{GradientError, Mean, ModelError};
use crate::optim::{Norms, Optimizer, Update};
use crate::schedule::Schedule;

/// How parameters follow gradients: constants of the job.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) optimizer: Box<dyn Optimizer>,
    pub(super) schedule: Schedule,
    /// The longest that the whole gradient may be.
    pub(super) clip_norm: Option<f64>,
    pub(super) decay: f64,
    /// Of each tensor, whether it decays.
    pub(super) decays: Vec<bool>,
}

impl Rule {
    /// What it is, for comparing workers.
    pub(super) fn describe(&self) -> String {
        let Self {
            optimizer,
            schedule,
            clip_norm,
            decay,
            decays,
        } = self;
        format!(
            "{}; rate {}; clip norm {clip_norm:?}; decay {decay} of {decays:?}",
            optimizer.describe(),
            schedule.describe()
        )
    }

    /// Makes the next state.
    pub(super) fn apply<N: Network>(
        &self,
        network: &mut N,
        state: &mut State,
        parameters: &[Parameter],
        mean: &Mean<'_>,
    ) -> Result<(), ModelError> {
        let factor = self.clip_factor(parameters, mean)?;
        let rate = self.schedule.at(state.updates);
        state.updates += 1;
        for (tensor, parameter) in parameters.iter().enumerate() {
            match parameter.role {
                Role::Trained => {
                    let norms = self.norms(network, tensor, factor, mean)?;
                    let update = Update {
                        number: state.updates,
                        rate,
                        decay: if self.decays[tensor] { self.decay } else { 0.0 },
                        norms,
                    };
                    self.train(network, state, tensor, (&update, factor), mean)?;
                }
                Role::RunningMean { momentum } => {
                    follow(network, tensor, momentum, mean, |_, run| run.to_vec())?;
                }
                Role::RunningVariance { momentum, mean: of } => {
                    let means = mean.f32(of)?;
                    let variance = |at: usize, squares: &mut [f32]| {
                        let of_each = squares.iter().zip(&means[at..]);
                        // Rounding may leave a little less than nothing.
                        of_each.map(|(square, mean)| (square - mean * mean).max(0.0)).collect()
                    };
                    follow(network, tensor, momentum, mean, variance)?;
                }
            }
        }
        Ok(())
    }

    /// By what the whole gradient is multiplied, so that it is no longer than it may be (Pascanu, Mikolov, Bengio: "On the difficulty of
    /// training recurrent neural networks", 2013).
    fn clip_factor(&self, parameters: &[Parameter], mean: &Mean<'_>) -> Result<Option<f32>, ModelError> {
        let Some(most) = self.clip_norm else { return Ok(None) };
        let mut sum = 0.0;
        for (tensor, parameter) in parameters.iter().enumerate() {
            if parameter.role == Role::Trained {
                sum += squares(mean, tensor)?;
            }
        }
        let norm = sum.sqrt();
        // A norm that is not a number must show, and makes everything one that is not.
        Ok((norm > most || norm.is_nan()).then(|| (most / norm) as f32))
    }

    /// The norms of a tensor and of its gradient, if the optimizer wants them and the tensor is not left out.
    fn norms<N: Network>(
        &self,
        network: &N,
        tensor: usize,
        factor: Option<f32>,
        mean: &Mean<'_>,
    ) -> Result<Norms, ModelError> {
        if !self.optimizer.wants_norms() || !self.decays[tensor] {
            return Ok(Norms::default());
        }
        let mut values = Squares::default();
        network.values().see(tensor, &mut |all| values.add(all))?;
        let factor = factor.map_or(1.0, f64::from);
        Ok(Norms {
            values: values.sum().sqrt(),
            gradient: squares(mean, tensor)?.sqrt() * factor,
        })
    }

    fn train<N: Network>(
        &self,
        network: &mut N,
        state: &mut State,
        tensor: usize,
        (update, factor): (&Update, Option<f32>),
        mean: &Mean<'_>,
    ) -> Result<(), ModelError> {
        let slots = Arc::make_mut(&mut state.slots[tensor]);
        let mut done = Ok(());
        network.change(tensor, &mut |values| {
            done = mean.runs_f32(tensor, |at, gradient| {
                if let Some(factor) = factor {
                    gradient.iter_mut().for_each(|value| *value *= factor);
                }
                let run = at..at + gradient.len();
                let mut slots = Runs::of(&mut slots.values, run.clone());
                self.optimizer.update(update, &mut values[run], gradient, slots.each());
            });
        })?;
        Ok(done?)
    }
}

/// Most slots of an optimizer.
const MOST_SLOTS: usize = 4;

/// The same run of each slot: as many as an optimizer has, without an allocation.
struct Runs<'a> {
    runs: [&'a mut [f32]; MOST_SLOTS],
    count: usize,
}

impl<'a> Runs<'a> {
    fn of(slots: &'a mut [Vec<f32>], run: std::ops::Range<usize>) -> Self {
        let count = slots.len();
        let mut runs: [&mut [f32]; MOST_SLOTS] = std::array::from_fn(|_| &mut [][..]);
        for (place, slot) in runs.iter_mut().zip(slots) {
            *place = &mut slot[run.clone()];
        }
        Self { runs, count }
    }

    fn each(&mut self) -> &mut [&'a mut [f32]] {
        &mut self.runs[..self.count]
    }
}

fn squares(mean: &Mean<'_>, tensor: usize) -> Result<f64, GradientError> {
    let mut squares = Squares::default();
    mean.runs_f32(tensor, |_, run| squares.add(run))?;
    Ok(squares.sum())
}

/// Moves tensor `tensor` by `momentum` of the way to what `to` makes of each run of its mean.
fn follow<N: Network>(
    network: &mut N,
    tensor: usize,
    momentum: f64,
    mean: &Mean<'_>,
    to: impl Fn(usize, &mut [f32]) -> Vec<f32>,
) -> Result<(), ModelError> {
    let momentum = momentum as f32;
    let mut done = Ok(());
    network.change(tensor, &mut |values| {
        done = mean.runs_f32(tensor, |at, run| {
            let to = to(at, run);
            for (value, to) in values[at..].iter_mut().zip(to) {
                *value += momentum * (to - *value);
            }
        });
    })?;
    Ok(done?)
}

/// Whether an optimizer has no more slots than an update has room for.
pub(super) fn check_slots(optimizer: &dyn Optimizer) -> Result<(), FitError> {
    match optimizer.slots().len() {
        found if found > MOST_SLOTS => Err(FitError::Slots { most: MOST_SLOTS, found }),
        _ => Ok(()),
    }
}
