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
        let norms = self.norms(network, parameters, factor, mean)?;
        let rate = self.schedule.at(state.updates);
        state.updates += 1;
        for (tensor, parameter) in parameters.iter().enumerate() {
            match parameter.role {
                Role::Trained => {
                    let update = Update {
                        number: state.updates,
                        rate,
                        decay: if self.decays[tensor] { self.decay } else { 0.0 },
                        norms: norms.get(tensor).copied().unwrap_or_default(),
                    };
                    self.train(network, state, tensor, (&update, factor), mean)?;
                }
                Role::RunningMean { momentum } => {
                    let momentum = momentum as f32;
                    follow(network, tensor, mean, |_, values, distances| {
                        values
                            .iter_mut()
                            .zip(distances)
                            .for_each(|(value, distance)| *value += momentum * *distance);
                    })?;
                }
                Role::RunningVariance { momentum, mean: of } => {
                    let (momentum, distances) = (momentum as f32, mean.f32(of)?);
                    follow(network, tensor, mean, |at, values, squares| {
                        for ((value, square), distance) in values.iter_mut().zip(squares).zip(&distances[at..]) {
                            // Rounding may leave a little less than nothing.
                            let variance = (*square - distance * distance).max(0.0);
                            *value += momentum * (variance - *value);
                        }
                    })?;
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

    /// The norms of each tensor and of its gradient: none if the optimizer does not want them, 0 for a tensor that is left out.
    fn norms<N: Network>(
        &self,
        network: &N,
        parameters: &[Parameter],
        factor: Option<f32>,
        mean: &Mean<'_>,
    ) -> Result<Vec<Norms>, ModelError> {
        if !self.optimizer.wants_norms() {
            return Ok(Vec::new());
        }
        let (values, factor) = (network.values(), factor.map_or(1.0, f64::from));
        let of = |(tensor, parameter): (usize, &Parameter)| {
            if !self.decays[tensor] || parameter.role != Role::Trained {
                return Ok(Norms::default());
            }
            let mut own = Squares::default();
            values.see(tensor, &mut |values| own.add(values))?;
            Ok(Norms {
                values: own.sum().sqrt(),
                gradient: squares(mean, tensor)?.sqrt() * factor,
            })
        };
        parameters.iter().enumerate().map(of).collect()
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

/// Lets `step` move each run of tensor `tensor` by what was told for it.
fn follow<N: Network>(
    network: &mut N,
    tensor: usize,
    mean: &Mean<'_>,
    step: impl Fn(usize, &mut [f32], &mut [f32]),
) -> Result<(), ModelError> {
    let mut done = Ok(());
    network.change(tensor, &mut |values| {
        done = mean.runs_f32(tensor, |at, told| step(at, &mut values[at..at + told.len()], told));
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
