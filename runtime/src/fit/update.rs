//! One update: from the mean gradient to the next state. What it reads is the state, the mean and constants.

use super::network::{Network, Parameter, Role};
use super::norm::Squares;
use super::on_host::{OnHost, one_nan, squares};
use super::slots::Slots;
use super::state::State;
use super::updating::Updating;
use crate::model::{Mean, ModelError};
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
        let step = Step {
            rule: self,
            parameters,
            mean,
            rate: self.schedule.at(state.updates),
            number: state.updates + 1,
        };
        state.updates += 1;
        match &mut state.slots {
            Slots::OnHost(slots) => {
                let optimizer = &*self.optimizer;
                step.take(network, &mut OnHost { optimizer, slots, mean })
            }
            #[cfg(feature = "cuda")]
            Slots::OnDevice(slots) => step.take(network, &mut slots.updating(mean)?),
        }
    }
}

/// One update.
struct Step<'a> {
    rule: &'a Rule,
    parameters: &'a [Parameter],
    mean: &'a Mean<'a>,
    rate: f64,
    /// Which it is, from 1 on.
    number: u64,
}

impl Step<'_> {
    fn take<N: Network>(&self, network: &mut N, updating: &mut impl Updating<N>) -> Result<(), ModelError> {
        let factor = self.clip_factor(updating)?;
        let norms = self.norms(network, factor)?;
        for (tensor, parameter) in self.parameters.iter().enumerate() {
            match parameter.role {
                Role::Trained => {
                    let update = Update {
                        number: self.number,
                        rate: self.rate,
                        decay: if self.rule.decays[tensor] { self.rule.decay } else { 0.0 },
                        norms: norms.get(tensor).copied().unwrap_or_default(),
                    };
                    updating.update(network, tensor, &update, factor)?;
                }
                Role::RunningMean { momentum } => {
                    let momentum = momentum as f32;
                    follow(network, tensor, self.mean, |_, values, distances| {
                        values
                            .iter_mut()
                            .zip(distances)
                            .for_each(|(value, distance)| *value += momentum * *distance);
                    })?;
                }
                Role::RunningVariance { momentum, mean: of } => {
                    let (momentum, distances) = (momentum as f32, self.mean.f32(of)?);
                    follow(network, tensor, self.mean, |at, values, squares| {
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
    fn clip_factor<N>(&self, updating: &mut impl Updating<N>) -> Result<Option<f32>, ModelError> {
        let Some(most) = self.rule.clip_norm else {
            return Ok(None);
        };
        let all = self.parameters.iter().enumerate();
        let trained = all.filter(|(_, parameter)| parameter.role == Role::Trained);
        let norm = updating.squares(&mut trained.map(|(tensor, _)| tensor))?.sqrt();
        // A norm that is not a number must show, and makes everything one that is not.
        Ok((norm > most || norm.is_nan()).then(|| (most / norm) as f32))
    }

    /// The norms of each tensor and of its gradient: none if the optimizer does not want them, 0 for a tensor that is left out.
    fn norms<N: Network>(&self, network: &N, factor: Option<f32>) -> Result<Vec<Norms>, ModelError> {
        let Self { rule, mean, .. } = self;
        if !rule.optimizer.wants_norms() {
            return Ok(Vec::new());
        }
        let (values, factor) = (network.values(), factor.map_or(1.0, f64::from));
        let of = |(tensor, parameter): (usize, &Parameter)| {
            if !rule.decays[tensor] || parameter.role != Role::Trained {
                return Ok(Norms::default());
            }
            let mut own = Squares::default();
            values.see(tensor, &mut |values| own.add(values))?;
            Ok(Norms {
                values: own.sum().sqrt(),
                gradient: squares(mean, tensor)?.sqrt() * factor,
            })
        };
        self.parameters.iter().enumerate().map(of).collect()
    }
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
        done = mean.runs_f32(tensor, |at, told| {
            let values = &mut values[at..at + told.len()];
            step(at, values, told);
            one_nan(values);
        });
    })?;
    Ok(done?)
}
