//! A finished sum on a device, where the parameters lie that follow it. Must not know how it was added.

use std::ops::Range;

use sardana_collectives::gradient::{GradientError, Mean, Sum};
use sardana_collectives::layout::Layout;
use sardana_protocol::state::Dtype;

use super::on_device::OnDevice;
use super::{GradientElement, on_device};
use crate::device::{Device, DeviceError, DeviceTensor, Stream, Transfer, View};

/// Memory for one sum at a time on a device, and pinned memory through which comes there what the device does not reach where it is.
#[derive(Debug)]
pub struct SumRoom {
    device: Device,
    sum: DeviceTensor<u8>,
    transfer: Transfer,
}

impl SumRoom {
    /// On this device. It takes a gradient's bytes there once a sum has come, and 2 MiB of pinned memory.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        Ok(Self {
            device: device.clone(),
            sum: DeviceTensor::unset(device, Stream::Compute, 0)?,
            transfer: Transfer::new(device)?,
        })
    }

    /// Brings so many bytes of a sum that lies in the host's memory: those that the device reaches there by itself, others through pinned memory.
    fn bring(&mut self, sum: &Sum, bytes: usize) -> Result<(), DeviceError> {
        let (mut in_place, mut at) = (Vec::new(), 0);
        for (run, mapping) in sum.mapped_runs(0..bytes) {
            let range = at..at + run.len();
            at = range.end;
            if mapping.is_some_and(|mapping| self.device.reaches(mapping)) {
                in_place.push((range, run));
            } else {
                self.transfer.up(run, &mut self.sum.part_mut(range))?;
            }
        }
        self.device.copy_up_in_place(&self.sum.view_mut(), &in_place)
    }

    /// Takes it over from where it lies on the device: computed on the same stream, or finished by a ring, which has waited for it.
    fn take_over(&mut self, from: &OnDevice, layout: &Layout) -> Result<(), DeviceError> {
        let memory = from.memory();
        for (tensor, spec) in layout.tensors().iter().enumerate() {
            let range = layout.tensor_bytes(tensor).expect("it is one of the layout's");
            match spec.dtype {
                Dtype::F32 => self.copy::<f32>(&memory, range)?,
                Dtype::F64 => self.copy::<f64>(&memory, range)?,
                Dtype::U64 => {}
            }
        }
        Ok(())
    }

    fn copy<T: GradientElement>(&mut self, from: &DeviceTensor<u8>, range: Range<usize>) -> Result<(), DeviceError> {
        let mut to = self.sum.part_mut(range.clone()).elements::<T>();
        self.device
            .on(Stream::Compute)
            .sum_into::<T>(&mut to, &from.part(range).elements(), &[])
    }
}

/// What a [`Mean`] can do with a device.
pub trait MeanOnDevice {
    /// The sum, not divided, in the memory of `room`: valid for what is enqueued on the stream of computing from now on, until the next one comes there. It is
    /// divided where it is used, by [`Mean::divisor`]: the bits are those of a mean that is divided first. Call it once for each update.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    fn device_sum<'a>(&'a self, room: &'a mut SumRoom) -> Result<DeviceSum<'a>, DeviceError>;
}

impl MeanOnDevice for Mean<'_> {
    fn device_sum<'a>(&'a self, room: &'a mut SumRoom) -> Result<DeviceSum<'a>, DeviceError> {
        let layout = self.layout();
        let bytes = layout.tensors_end();
        if room.sum.len() != bytes {
            room.sum = DeviceTensor::unset(&room.device, Stream::Compute, bytes)?;
        }
        let there = self.sum().resident(layout).and_then(on_device);
        match there.filter(|there| *there.device() == room.device) {
            Some(there) => room.take_over(&there, layout)?,
            None => room.bring(self.sum(), bytes)?,
        }
        Ok(DeviceSum { sum: &room.sum, layout })
    }
}

/// A finished sum in a device's memory.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSum<'a> {
    sum: &'a DeviceTensor<u8>,
    layout: &'a Layout,
}

impl<'a> DeviceSum<'a> {
    /// The tensor `tensor`, an index into the layout's tensors, row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that type.
    pub fn tensor<T: GradientElement>(&self, tensor: usize) -> Result<View<'a, T>, GradientError> {
        let tensors = self.layout.tensors().len();
        let spec = self.layout.tensors().get(tensor);
        let (spec, range) = spec
            .zip(self.layout.tensor_bytes(tensor))
            .ok_or(GradientError::NoSuchTensor { tensors, index: tensor })?;
        if spec.dtype != T::DTYPE {
            return Err(GradientError::Dtype {
                spec: spec.clone(),
                found: T::DTYPE,
            });
        }
        Ok(self.sum.part(range).elements())
    }
}
