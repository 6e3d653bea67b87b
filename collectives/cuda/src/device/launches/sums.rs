//! Shards added to running sums, halves and floats made of one another, means.

use half::{bf16, f16};

use super::{Argument, Enqueue};
use crate::device::{DeviceError, Element, View, ViewMut};
use crate::geometry;
use crate::kernels::{self, Kernel, Parameter};
use crate::parameters::Shards;

/// Addresses that accesses of 16 bytes need are multiples of this.
const WIDE: u64 = 16;

/// What shards are made of, and how they are added: one after the other, each addition rounded once.
pub trait Summed: Element {
    /// What their running sum is made of.
    type Running: Element;
    /// What adds them.
    const KERNEL: Kernel;
    /// The same bits, faster, where all addresses allow it.
    const WIDE: Option<Kernel> = None;
}

impl Summed for f32 {
    type Running = Self;
    const KERNEL: Kernel = kernels::SUM_F32;
    const WIDE: Option<Kernel> = Some(kernels::SUM_F32X4);
}

impl Summed for f64 {
    type Running = Self;
    const KERNEL: Kernel = kernels::SUM_F64;
}

impl Summed for bf16 {
    type Running = f32;
    const KERNEL: Kernel = kernels::SUM_BF16;
}

impl Summed for f16 {
    type Running = f32;
    const KERNEL: Kernel = kernels::SUM_F16;
}

/// A number of 16 bits.
pub trait Half: Element {
    /// What makes them of f32.
    const NARROW: Kernel;
    /// What makes f32 of them.
    const WIDEN: Kernel;
}

impl Half for bf16 {
    const NARROW: Kernel = kernels::NARROW_BF16;
    const WIDEN: Kernel = kernels::WIDEN_BF16;
}

impl Half for f16 {
    const NARROW: Kernel = kernels::NARROW_F16;
    const WIDEN: Kernel = kernels::WIDEN_F16;
}

/// What gradients are made of.
pub trait Float: Summed<Running = Self> {
    /// What divides them.
    const MEAN: Kernel;
    /// What puts many tensors into a gradient.
    const PACK: Kernel;
    /// What takes them out.
    const UNPACK: Kernel;
    /// What a kernel takes one of them as.
    const PARAMETER: Parameter;
}

impl Float for f32 {
    const MEAN: Kernel = kernels::MEAN_F32;
    const PACK: Kernel = kernels::PACK_F32;
    const UNPACK: Kernel = kernels::UNPACK_F32;
    const PARAMETER: Parameter = Parameter::F32;
}

impl Float for f64 {
    const MEAN: Kernel = kernels::MEAN_F64;
    const PACK: Kernel = kernels::PACK_F64;
    const UNPACK: Kernel = kernels::UNPACK_F64;
    const PARAMETER: Parameter = Parameter::F64;
}

impl Enqueue<'_> {
    /// `running[i] += shards[0][i] + …`, one after the other, each of `running`'s length.
    ///
    /// # Errors
    /// When lengths differ, or the device has failed.
    pub fn add<S: Summed>(&self, running: &mut ViewMut<'_, S::Running>, shards: &[View<'_, S>]) -> Result<(), DeviceError> {
        let from = *running.read();
        self.sum(running, &from, shards)
    }

    /// `out[i] = running[i] + shards[0][i] + …`, one after the other, all of one length; without shards a copy, bit for bit.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn sum_into<S: Summed>(
        &self,
        out: &mut ViewMut<'_, S::Running>,
        running: &View<'_, S::Running>,
        shards: &[View<'_, S>],
    ) -> Result<(), DeviceError> {
        self.sum(out, running, shards)
    }

    fn sum<S: Summed>(
        &self,
        out: &ViewMut<'_, S::Running>,
        running: &View<'_, S::Running>,
        shards: &[View<'_, S>],
    ) -> Result<(), DeviceError> {
        let length = out.read().len() as u64;
        let to = self.write(&S::KERNEL, out, length)?;
        let mut from = self.read(&S::KERNEL, running, length)?;
        let mut addresses = Vec::with_capacity(shards.len());
        for shard in shards {
            self.read(&S::KERNEL, shard, length)?;
            addresses.push(shard.address());
        }
        let all = [out.read().address(), running.address()];
        let is_wide = all.iter().chain(&addresses).all(|address| address % WIDE == 0);
        let kernel = S::WIDE.filter(|_| is_wide).unwrap_or(S::KERNEL);
        let launches: Vec<(Shards, u32)> = Shards::launches(&addresses).collect();
        let copy = (
            Shards {
                at: [0; crate::parameters::MAX_SHARDS],
            },
            0,
        );
        let launches = if launches.is_empty() { vec![copy] } else { launches };
        for (shards, count) in launches {
            let arguments = [to.clone(), from, shards.into(), count.into(), length.into()];
            self.launch(&kernel, geometry::elements(length), &arguments)?;
            // The running sum goes on where the last launch left it.
            from = to.clone();
        }
        Ok(())
    }

    /// `out[i] = sum[i] / divisor`, rounded once.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn mean<T: Float>(&self, out: &mut ViewMut<'_, T>, sum: &View<'_, T>, divisor: T) -> Result<(), DeviceError> {
        let length = sum.len() as u64;
        let arguments = [
            self.write(&T::MEAN, out, length)?,
            self.read(&T::MEAN, sum, length)?,
            Argument::of(T::PARAMETER, &divisor),
            length.into(),
        ];
        self.launch(&T::MEAN, geometry::elements(length), &arguments)
    }

    /// f32 as halves, rounded to nearest, ties to even.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn narrow<H: Half>(&self, out: &mut ViewMut<'_, H>, values: &View<'_, f32>) -> Result<(), DeviceError> {
        let length = values.len() as u64;
        let arguments = [
            self.write(&H::NARROW, out, length)?,
            self.read(&H::NARROW, values, length)?,
            length.into(),
        ];
        self.launch(&H::NARROW, geometry::elements(length), &arguments)
    }

    /// Halves as f32, exactly.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn widen<H: Half>(&self, out: &mut ViewMut<'_, f32>, halves: &View<'_, H>) -> Result<(), DeviceError> {
        let length = halves.len() as u64;
        let arguments = [
            self.write(&H::WIDEN, out, length)?,
            self.read(&H::WIDEN, halves, length)?,
            length.into(),
        ];
        self.launch(&H::WIDEN, geometry::elements(length), &arguments)
    }
}
