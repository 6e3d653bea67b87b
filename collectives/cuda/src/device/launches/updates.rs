//! How parameters follow a finished sum. All tensors of one call have the same length.

use super::{Argument, Enqueue};
use crate::device::{DeviceError, View, ViewMut};
use crate::geometry;
use crate::kernels::{self, Kernel};
use crate::parameters::{Descent, Moments};

impl Enqueue<'_> {
    /// Gradient descent without momentum.
    ///
    /// # Errors
    /// When lengths differ, or the device has failed.
    pub fn sgd(&self, values: &mut ViewMut<'_, f32>, sum: &View<'_, f32>, by: Descent) -> Result<(), DeviceError> {
        self.update(&kernels::SGD, &[values.read()], sum, by.into())
    }

    /// Gradient descent along a velocity.
    ///
    /// # Errors
    /// As [`Self::sgd`].
    pub fn momentum(
        &self,
        values: &mut ViewMut<'_, f32>,
        velocities: &mut ViewMut<'_, f32>,
        sum: &View<'_, f32>,
        by: Descent,
    ) -> Result<(), DeviceError> {
        self.update(&kernels::MOMENTUM, &[values.read(), velocities.read()], sum, by.into())
    }

    /// Gradient descent along the gradient, and the velocity as it will be.
    ///
    /// # Errors
    /// As [`Self::sgd`].
    pub fn nesterov(
        &self,
        values: &mut ViewMut<'_, f32>,
        velocities: &mut ViewMut<'_, f32>,
        sum: &View<'_, f32>,
        by: Descent,
    ) -> Result<(), DeviceError> {
        self.update(&kernels::NESTEROV, &[values.read(), velocities.read()], sum, by.into())
    }

    /// Adam and `AdamW`.
    ///
    /// # Errors
    /// As [`Self::sgd`].
    pub fn adam(
        &self,
        values: &mut ViewMut<'_, f32>,
        means: &mut ViewMut<'_, f32>,
        squares: &mut ViewMut<'_, f32>,
        sum: &View<'_, f32>,
        by: Moments,
    ) -> Result<(), DeviceError> {
        self.update(&kernels::ADAM, &[values.read(), means.read(), squares.read()], sum, by.into())
    }

    fn update(
        &self,
        kernel: &Kernel,
        changed: &[&View<'_, f32>],
        sum: &View<'_, f32>,
        by: Argument,
    ) -> Result<(), DeviceError> {
        let length = sum.len() as u64;
        let mut arguments = Vec::with_capacity(kernel.parameters.len());
        for tensor in changed {
            arguments.push(self.read(kernel, tensor, length)?);
        }
        arguments.extend([self.read(kernel, sum, length)?, by, length.into()]);
        self.launch(kernel, geometry::elements(length), &arguments)
    }
}
