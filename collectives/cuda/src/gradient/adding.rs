//! A part of a running sum that passes a device: up, added to by each gradient in their order, and down. It comes up from where the rank before has it and goes to
//! where the finished sum is to be, where the device reaches those; else from its slot, and to it.

use std::ops::Range;

use sardana_collectives::gradient::{Lent, Lowering, Passing, ResidentError};
use sardana_collectives::mapping::Mapping;

use super::carrier::{Part, placed_by};
use super::slots::PinnedSlot;
use crate::device::{CopiesOfLent, Device, DeviceError, DeviceTensor, DirectCopy, Float, Pinned, Stream, View};

/// A part that is added to, and what carries it.
pub(super) struct Added {
    /// Where that is.
    sum: DeviceTensor<u8>,
    /// What brings it up from another process.
    lent: Option<CopiesOfLent>,
    /// What brings it to where it goes; none if that is its slot.
    placed: Option<DirectCopy>,
}

/// Where the sum so far is.
enum SoFar<'a> {
    /// There is none.
    Begins,
    Slot(&'a Pinned<u8>),
    Lent(Lent),
}

impl Added {
    /// Enqueues it, in memory that was `used` for it before if there is some. It comes up while parts before it go down.
    pub(super) fn enqueue<T: Float>(
        device: &Device,
        used: Option<DeviceTensor<u8>>,
        terms: &[Part],
        passing: &mut Passing,
        stays: Option<&Part>,
    ) -> Result<Self, ResidentError> {
        let (range, begins) = (passing.range(), passing.begins());
        let reaches = |mapping: &Mapping| device.reaches(mapping);
        let lent = passing.lent_if(reaches);
        let goes = passing.goes_if(|part| part.mapping().is_some_and(reaches));
        let slot = PinnedSlot::of(passing.slot(), device);
        let slot =
            slot.ok_or_else(|| ResidentError::new("expected a slot of the GPU that the sum passes, found another one"))?;
        let so_far = match lent {
            _ if begins => SoFar::Begins,
            Some(lent) => SoFar::Lent(lent),
            None => SoFar::Slot(slot.pinned()),
        };
        let brought = bring_up(device, used, range.len(), so_far).and_then(|(mut sum, lent)| {
            add::<T>(device, &mut sum, (range.clone(), begins), terms, stays)?;
            Ok((sum, lent))
        });
        let (sum, lent) = brought.map_err(ResidentError::new)?;
        // At the end: once this has landed nothing uses the gradients, what stays, or the slot.
        let placed = match goes {
            Some(goes) => Some(place(device, &sum, goes)?),
            None => {
                let copied = slot.pinned().copy_down(Stream::Copies, &sum, 0, 0..range.len());
                copied.map_err(ResidentError::new)?;
                None
            }
        };
        Ok(Self { sum, lent, placed })
    }

    /// Waits until it is where it goes. Gives back the memory that it was added in.
    pub(super) fn land(self, passing: &mut Passing) -> (DeviceTensor<u8>, Result<(), ResidentError>) {
        let Self { sum, lent, placed } = self;
        let landed = match placed {
            Some(copy) => placed_by(copy),
            None => passing.slot().bytes().map(drop),
        };
        // It came up before that.
        drop(lent);
        (sum, landed)
    }
}

/// What has come up is there for what is enqueued on the stream of copies.
fn bring_up(
    device: &Device,
    used: Option<DeviceTensor<u8>>,
    bytes: usize,
    so_far: SoFar<'_>,
) -> Result<(DeviceTensor<u8>, Option<CopiesOfLent>), DeviceError> {
    let is_new = used.is_none();
    let mut sum = match used {
        Some(sum) => sum,
        None => DeviceTensor::unset(device, Stream::Copies, bytes)?,
    };
    if let SoFar::Begins = so_far {
        return Ok((sum, None));
    }
    if is_new {
        // It is there in the order of the stream of copies.
        device.wait_for(Stream::Uploads, Stream::Copies)?;
    }
    let lent = match so_far {
        SoFar::Begins => None,
        SoFar::Slot(slot) => {
            slot.copy_up(Stream::Uploads, 0..bytes, &mut sum, 0)?;
            None
        }
        SoFar::Lent(lent) => Some(device.copy_up_lent(&sum.view_mut(), lent)?),
    };
    device.wait_for(Stream::Copies, Stream::Uploads)?;
    Ok((sum, lent))
}

fn add<T: Float>(
    device: &Device,
    sum: &mut DeviceTensor<u8>,
    (range, begins): (Range<usize>, bool),
    terms: &[Part],
    stays: Option<&Part>,
) -> Result<(), DeviceError> {
    for term in terms {
        device.wait(Stream::Copies, &term.ready)?;
    }
    let held: Vec<_> = terms.iter().map(Part::memory).collect();
    let gradients: Vec<View<'_, T>> = held.iter().map(|memory| memory.part(range.clone()).elements()).collect();
    let on = device.on(Stream::Copies);
    let mut to = sum.part_mut(0..range.len()).elements::<T>();
    match gradients.split_first() {
        Some((first, others)) if begins => on.sum_into(&mut to, first, others)?,
        Some(_) | None => on.add(&mut to, &gradients)?,
    }
    let Some(stays) = stays else { return Ok(()) };
    device.wait(Stream::Copies, &stays.ready)?;
    let mut there = stays.memory();
    let mut there = there.part_mut(range.clone()).elements::<T>();
    on.sum_into::<T>(&mut there, &sum.part(0..range.len()).elements(), &[])
}

fn place(device: &Device, sum: &DeviceTensor<u8>, goes: Lowering) -> Result<DirectCopy, ResidentError> {
    let part = sum.part(0..goes.range().len());
    device.copy_to_part(&part, goes).map_err(|(goes, error)| {
        let error = ResidentError::new(error);
        goes.fail(error.clone());
        error
    })
}
