//! Gradients that a model computes on a device, and sums that it applies there. What a [`GradientWriter`] is given stays in the device's memory, and comes
//! to the host chunk by chunk when it is asked for: see [`sardana_collectives::gradient`]. Must not know ranks, nor what a model is.
//!
//! Each buffer of a gradient has memory on the device as long as it lives, for the gradients that are written to it one after the other. What
//! all of them take is bounded ([`Device::keep_gradients_within`], or else a part of what is left; of a GPU that an agent has dealt to several workers, of this one's
//! equal part of it); a gradient for which there is no room is *spilled*: copied to the host as it is written,
//! and added to there.
//!
//! What crosses between the host and the device in a step, for gradients of G bytes and k shards a rank, where all tensors are of one type and the ring adds in
//! order: the running sum passes the device part by part, and no gradient comes down but those that are spilled, of s shards, which are added on the host.
//!
//! | | rank 0 | between | closer | alone |
//! |---|---|---|---|---|
//! | down | (1 + s) G | (1 + s) G | (1 + s) G | G |
//! | up | G | 2 G | G | 0 |
//!
//! Of these one G up is the finished sum, for an update on the device, if the model asks for it there. The closer and a worker that is alone have it
//! where they finish it, if there is room and nothing is spilled (else the closer's comes up, too), and G comes down for others.
//!
//! The driver is told of the memory of gradients and sums, from 128 KiB on, the first time that something is copied from there or to there: also of that which another process of the
//! host has, and this one has borrowed a sum or a part of it in. So all goes from where it lies to where it is to be: a finished sum up, a part of a running sum up from
//! where the rank before has it, a part that is finished, a gradient that is asked for and one that is spilled down. What is added to on the host, what came over a network and what the
//! driver does not take passes pinned memory. Parts of a running sum go on from there: it is in [pages](sardana_collectives::pages) of which the driver was told, so that the next
//! rank of the host, or its device, reads a part where this one's has written it, unless spilled gradients are added to it on its way.
//!
//! Where chunks have owners, and where tensors are of several types, each gradient comes down, k G (those from shard 0 on are one), and the finished sum goes up, G. A coordinator
//! takes none of them for large gradients where all workers compute on devices: processors would add what comes down from all. Small ones go to one owner. Auxiliary sums and the number of samples stay on the host.

mod adding;
mod carrier;
mod held;
mod on_device;
mod slots;
mod sum;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use sardana_collectives::gradient::{GradientError, GradientWriter, Resident, TensorPlace, WriteMode};
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_protocol::state::Dtype;
use thiserror::Error;

pub use sum::{DeviceSum, MeanOnDevice, SumRoom};

use crate::device::{Device, DeviceError, Float, Stream, View};
use carrier::Carrier;
#[cfg(feature = "nccl")]
pub(crate) use carrier::Part;
use on_device::OnDevice;

/// Bytes that are copied at once to where a spilled gradient lies: what a ring may begin with is shown so often, and between two of them the device waits.
const SPILLED_AT_ONCE: usize = 16 << 20;

/// What a gradient's tensor on a device is made of.
pub trait GradientElement: Float {
    /// What a layout calls it.
    const DTYPE: Dtype;
}

impl GradientElement for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

impl GradientElement for f64 {
    const DTYPE: Dtype = Dtype::F64;
}

/// Why a tensor was not written or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OnDeviceError {
    /// It is not the layout's: a mistake of the model.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// The device refused something, or has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What a [`GradientWriter`] can do with a device.
pub trait WriteOnDevice {
    /// Writes all values of the tensor `tensor`, an index into the layout's tensors, row-major, from where they lie: enqueues it on the stream of computing, and
    /// does not wait. They may be changed and freed in the order of that stream. Where the device has no room for the gradient this waits, and copies them
    /// to the host.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or it is already written; or the device has failed.
    fn write_device<T: GradientElement>(&mut self, tensor: usize, values: &View<'_, T>) -> Result<(), OnDeviceError>;

    /// The same for several tensors of one type and one device, by one launch for each 2,048 of them: for a network of many small ones, of which each launch takes
    /// longer than its tensor. What a ring may begin with is then there all at once, so that a network whose backward pass takes long writes them in a few groups, as
    /// they come.
    ///
    /// # Errors
    /// As [`Self::write_device`], or when they lie on different devices: nothing is written then.
    fn write_all_on_device<T: GradientElement>(&mut self, tensors: &[(usize, View<'_, T>)]) -> Result<(), OnDeviceError>;
}

impl WriteOnDevice for GradientWriter<'_> {
    fn write_device<T: GradientElement>(&mut self, tensor: usize, values: &View<'_, T>) -> Result<(), OnDeviceError> {
        let place = self.place(tensor, T::DTYPE, values.len())?;
        let carrier = Carrier::of(values.device())?;
        match memory(&place, values.device(), &carrier)? {
            Some(memory) => {
                memory.write(place.bytes().clone(), values, place.mode())?;
                place.keep(memory);
            }
            None => spill(place, values, &carrier)?,
        }
        Ok(())
    }

    fn write_all_on_device<T: GradientElement>(&mut self, tensors: &[(usize, View<'_, T>)]) -> Result<(), OnDeviceError> {
        let Some((_, first)) = tensors.first() else {
            return Ok(());
        };
        const { assert!(on_device::PACKED_AT_ONCE == 2_048, "as is said") }
        let device = first.device();
        for (_, values) in tensors {
            device.on(Stream::Compute).can_pack(values)?;
        }
        let carrier = Carrier::of(device)?;
        let mut places = self.places(T::DTYPE, tensors.iter().map(|(tensor, values)| (*tensor, values.len())))?;
        let mut resident = None;
        let (mut kept, mut spilled) = (Vec::new(), Vec::new());
        for (which, (_, values)) in tensors.iter().enumerate() {
            let place = places.at(which);
            if resident.is_none() {
                resident = memory(&place, device, &carrier)?;
            }
            if resident.is_some() && place.may_be_kept() {
                kept.push((which, place.bytes().clone(), *values));
            } else {
                spilled.push((which, values));
            }
        }
        if let Some(resident) = resident {
            let mode = places.at(0).mode();
            // Before they are shown: from then on a ring may ask for them.
            resident.write_all(kept.iter().map(|(_, bytes, values)| (bytes.start, *values)), mode)?;
            for (which, ..) in kept {
                places.at(which).keep(resident.clone());
            }
        }
        for (which, values) in spilled {
            spill(places.at(which), values, &carrier)?;
        }
        Ok(())
    }
}

/// Where the tensor may stay on the device: in the memory that its buffer has there, or in new memory. None if it is spilled.
fn memory(
    place: &TensorPlace<'_, '_>,
    device: &Device,
    carrier: &Arc<Carrier>,
) -> Result<Option<Arc<OnDevice>>, DeviceError> {
    if !place.may_be_kept() {
        return Ok(None);
    }
    let own = place.resident().and_then(on_device);
    // What it is added to lies there.
    let is_fixed = place.mode() == WriteMode::Add;
    match own.filter(|own| is_fixed || own.device() == device) {
        Some(own) => Ok(Some(own)),
        None if !is_fixed && place.may_have_another() => OnDevice::new(carrier, place.gradient_bytes()),
        None => Ok(None),
    }
}

/// What a buffer has elsewhere, if that is memory of a device.
fn on_device(resident: Arc<dyn Resident>) -> Option<Arc<OnDevice>> {
    let any: Arc<dyn Any + Send + Sync> = resident;
    any.downcast().ok()
}

/// The memory of a gradient that lies on this device, from the moment on at which all that was written there is computed. None if it lies elsewhere.
#[cfg(feature = "nccl")]
pub(crate) fn computed(resident: &Arc<dyn Resident>, device: &Device) -> Option<Part> {
    let own = on_device(Arc::clone(resident)).filter(|own| own.device() == device)?;
    own.all_computed()
}

/// The memory for a sum that stays on this device, from the moment on at which it may be written. None if it lies elsewhere.
#[cfg(feature = "nccl")]
pub(crate) fn free(resident: &Arc<dyn Resident>, device: &Device) -> Result<Option<Part>, DeviceError> {
    let own = on_device(Arc::clone(resident)).filter(|own| own.device() == device);
    own.map(|own| own.free()).transpose()
}

/// Copies the values to the host as soon as they are computed.
fn spill<T: GradientElement>(
    mut place: TensorPlace<'_, '_>,
    values: &View<'_, T>,
    carrier: &Carrier,
) -> Result<(), DeviceError> {
    let (device, values) = (values.device(), values.bytes());
    device.wait(Stream::Copies, &device.record(Stream::Compute)?)?;
    let reached = place.mapping().is_some_and(|mapping| device.reaches(mapping));
    if reached && place.mode() == WriteMode::Store {
        for part in parts(values.len(), SPILLED_AT_ONCE) {
            let copy = |here: &mut [u8]| device.copy_down_in_place(&values.part(part.clone()), here);
            place.fill_next(part.len(), copy)?;
        }
        return Ok(());
    }
    spill_through_slots(&mut place, &values, carrier)
}

/// Part by part: while one is written there the next one comes.
fn spill_through_slots(
    place: &mut TensorPlace<'_, '_>,
    values: &View<'_, u8>,
    carrier: &Carrier,
) -> Result<(), DeviceError> {
    let mut slots = carrier.slots_of_writers()?;
    let slots = slots.both();
    let parts: Vec<Range<usize>> = parts(values.len(), LOWERED_BYTES).collect();
    for number in 0..=parts.len() {
        if let Some(range) = parts.get(number) {
            slots[number % 2].copy_view_down(Stream::Copies, &values.part(range.clone()), 0..range.len())?;
        }
        let before = number.checked_sub(1);
        if let Some((before, range)) = before.and_then(|before| Some((before, parts.get(before)?))) {
            place.write_next(&slots[before % 2].read()?[..range.len()]);
        }
    }
    Ok(())
}

/// So many bytes in parts of `most`.
fn parts(bytes: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(most).map(move |start| start..bytes.min(start + most))
}
