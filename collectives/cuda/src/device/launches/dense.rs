//! Dense layers, forward and backward. Shapes are those of [`crate::reference::dense`].

use super::{Argument, Enqueue, require};
use crate::device::{DeviceError, View, ViewMut};
use crate::geometry::{self, Geometry};
use crate::kernels::{self, Kernel};
use crate::reference::dense::Sizes;

/// The sizes of a layer, as a kernel takes them.
#[derive(Clone, Copy)]
struct Extents {
    batch: u32,
    outputs: u32,
    inputs: u32,
}

impl Extents {
    fn of(kernel: &Kernel, sizes: Sizes) -> Result<Self, DeviceError> {
        let narrow = |size: usize| -> Result<u32, DeviceError> {
            let narrowed = u32::try_from(size).ok();
            require(kernel, narrowed.is_some(), || "sizes below 2^32", || size.to_string())?;
            Ok(narrowed.unwrap_or_default())
        };
        Ok(Self {
            batch: narrow(sizes.batch)?,
            outputs: narrow(sizes.outputs)?,
            inputs: narrow(sizes.inputs)?,
        })
    }

    fn x(self) -> u64 {
        u64::from(self.batch) * u64::from(self.inputs)
    }

    fn w(self) -> u64 {
        u64::from(self.outputs) * u64::from(self.inputs)
    }

    fn y(self) -> u64 {
        u64::from(self.batch) * u64::from(self.outputs)
    }
}

impl Enqueue<'_> {
    /// `y = x wᵀ + b`.
    ///
    /// # Errors
    /// When a length is not that of its shape, or the device has failed.
    pub fn dense_forward(
        &self,
        y: &mut ViewMut<'_, f32>,
        [x, w, b]: [&View<'_, f32>; 3],
        sizes: Sizes,
    ) -> Result<(), DeviceError> {
        let kernel = &kernels::DENSE_FORWARD;
        let sizes = Extents::of(kernel, sizes)?;
        let tensors = [
            self.write(kernel, y, sizes.y())?,
            self.read(kernel, x, sizes.x())?,
            self.read(kernel, w, sizes.w())?,
            self.read(kernel, b, sizes.outputs.into())?,
        ];
        self.product(kernel, &tensors, sizes, [sizes.batch, sizes.outputs])
    }

    /// The inputs' gradient: `dx = dy w`.
    ///
    /// # Errors
    /// As [`Self::dense_forward`].
    pub fn dense_backward_inputs(
        &self,
        dx: &mut ViewMut<'_, f32>,
        [dy, w]: [&View<'_, f32>; 2],
        sizes: Sizes,
    ) -> Result<(), DeviceError> {
        let kernel = &kernels::DENSE_BACKWARD_INPUTS;
        let sizes = Extents::of(kernel, sizes)?;
        let tensors = [
            self.write(kernel, dx, sizes.x())?,
            self.read(kernel, dy, sizes.y())?,
            self.read(kernel, w, sizes.w())?,
        ];
        self.product(kernel, &tensors, sizes, [sizes.batch, sizes.inputs])
    }

    /// The weights' gradient: `dw = dyᵀ x`.
    ///
    /// # Errors
    /// As [`Self::dense_forward`].
    pub fn dense_backward_weights(
        &self,
        dw: &mut ViewMut<'_, f32>,
        [dy, x]: [&View<'_, f32>; 2],
        sizes: Sizes,
    ) -> Result<(), DeviceError> {
        let kernel = &kernels::DENSE_BACKWARD_WEIGHTS;
        let sizes = Extents::of(kernel, sizes)?;
        let tensors = [
            self.write(kernel, dw, sizes.w())?,
            self.read(kernel, dy, sizes.y())?,
            self.read(kernel, x, sizes.x())?,
        ];
        self.product(kernel, &tensors, sizes, [sizes.outputs, sizes.inputs])
    }

    /// The biases' gradient: `db`, the sum of `dy` over the batch.
    ///
    /// # Errors
    /// As [`Self::dense_forward`].
    pub fn dense_backward_biases(
        &self,
        db: &mut ViewMut<'_, f32>,
        dy: &View<'_, f32>,
        sizes: Sizes,
    ) -> Result<(), DeviceError> {
        let kernel = &kernels::DENSE_BACKWARD_BIASES;
        let sizes = Extents::of(kernel, sizes)?;
        let outputs = sizes.outputs.into();
        let arguments = [
            self.write(kernel, db, outputs)?,
            self.read(kernel, dy, sizes.y())?,
            sizes.batch.into(),
            sizes.outputs.into(),
        ];
        self.launch(kernel, geometry::elements(outputs), &arguments)
    }

    /// A product of matrices, with a result of these rows and columns.
    fn product(
        &self,
        kernel: &Kernel,
        tensors: &[Argument],
        sizes: Extents,
        [rows, columns]: [u32; 2],
    ) -> Result<(), DeviceError> {
        let geometry: Option<Geometry> = geometry::product(rows, columns);
        let can = geometry.is_some() || rows == 0 || columns == 0;
        require(kernel, can, || "fewer rows: cut the batch", || rows.to_string())?;
        let sizes = [sizes.batch, sizes.outputs, sizes.inputs].map(Argument::from);
        self.launch(kernel, geometry, &[tensors, &sizes].concat())
    }
}
