//! Updates on the host, by the optimizer itself, run by run.

use std::sync::Arc;

use super::error::FitError;
use super::network::Network;
use super::norm::Squares;
use super::updating::Updating;
use crate::model::{GradientError, Mean, ModelError};
use crate::optim::{Optimizer, Update};

/// Values of slots in the host's memory, by tensor: each tensor's behind an `Arc`, so that a snapshot may read them while gradients are computed.
pub(super) type HostSlots = Vec<Arc<Vec<Vec<f32>>>>;

/// One update by the optimizer itself.
pub(super) struct OnHost<'a> {
    pub(super) optimizer: &'a dyn Optimizer,
    pub(super) slots: &'a mut HostSlots,
    pub(super) mean: &'a Mean<'a>,
}

impl<N: Network> Updating<N> for OnHost<'_> {
    fn squares(&mut self, tensors: &mut dyn Iterator<Item = usize>) -> Result<f64, ModelError> {
        let mut sum = 0.0;
        for tensor in tensors {
            sum += squares(self.mean, tensor)?;
        }
        Ok(sum)
    }

    fn update(&mut self, network: &mut N, tensor: usize, update: &Update, factor: Option<f32>) -> Result<(), ModelError> {
        let slots = Arc::make_mut(&mut self.slots[tensor]);
        let mut done = Ok(());
        network.change(tensor, &mut |values| {
            done = self.mean.runs_f32(tensor, |at, gradient| {
                if let Some(factor) = factor {
                    gradient.iter_mut().for_each(|value| *value *= factor);
                }
                let run = at..at + gradient.len();
                let mut slots = Runs::of(slots, run.clone());
                self.optimizer
                    .update(update, &mut values[run.clone()], gradient, slots.each());
                one_nan(&mut values[run]);
                slots.each().iter_mut().for_each(|slot| one_nan(slot));
            });
        })?;
        Ok(done?)
    }
}

/// Makes all that is not a number the same one: which one it is depends on the processor, or the GPU.
pub(super) fn one_nan(values: &mut [f32]) {
    // As a rule there is none, and to look is cheap: they were written just now.
    if values.iter().fold(false, |found, value| found | value.is_nan()) {
        values
            .iter_mut()
            .filter(|value| value.is_nan())
            .for_each(|value| *value = f32::NAN);
    }
}

/// The sum of squares of a tensor's mean gradient.
pub(super) fn squares(mean: &Mean<'_>, tensor: usize) -> Result<f64, GradientError> {
    let mut squares = Squares::default();
    mean.runs_f32(tensor, |_, run| squares.add(run))?;
    Ok(squares.sum())
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

/// Whether an optimizer has no more slots than an update has room for, and as many as its update on devices.
pub(super) fn check_slots(optimizer: &dyn Optimizer) -> Result<(), FitError> {
    let found = optimizer.slots().len();
    if found > MOST_SLOTS {
        return Err(FitError::Slots { most: MOST_SLOTS, found });
    }
    let expected = optimizer.device_update().map_or(found, |update| update.slots());
    if found != expected {
        return Err(FitError::DeviceSlots { expected, found });
    }
    Ok(())
}
