//! Values of any length between the host and a device, through pinned memory of one size. Must not know what they are for.

use std::ops::Range;

use sardana_collectives::limits::LOWERED_BYTES;

use super::{Device, DeviceError, Element, Pinned, Stream, View, ViewMut};

/// Copies that are under way at once: while the host fills or reads one, the device copies the other.
const SLOTS: usize = 2;

/// Pinned memory through which values pass part by part, on the stream of copies.
#[derive(Debug)]
pub struct Transfer {
    device: Device,
    slots: [Pinned<u8>; SLOTS],
}

impl Transfer {
    /// For this device. It takes 2 MiB of pinned memory.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let slot = || Pinned::zeros(device, LOWERED_BYTES);
        Ok(Self {
            device: device.clone(),
            slots: [slot()?, slot()?],
        })
    }

    /// Copies `from` to `to`: behind all that is enqueued so far, and before all that is enqueued on the stream of computing from now on. It has read
    /// `from` when it returns.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When lengths differ, or `to` is another device's.
    pub fn up<T: Element>(&mut self, from: &[T], to: &mut ViewMut<'_, T>) -> Result<(), DeviceError> {
        let (from, mut to) = (bytemuck::cast_slice::<T, u8>(from), to.bytes());
        assert_eq!(from.len(), to.read().len(), "a copy is as long as what is copied");
        self.device.wait_for(Stream::Copies, Stream::Compute)?;
        for (number, range) in parts(from.len()).enumerate() {
            let slot = &mut self.slots[number % SLOTS];
            slot.write()?[..range.len()].copy_from_slice(&from[range.clone()]);
            slot.copy_view_up(Stream::Copies, 0..range.len(), &to.part(range))?;
        }
        self.device.wait_for(Stream::Compute, Stream::Copies)
    }

    /// Copies `from` to `to`, behind what the stream of copies waits for, and waits until it is there.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When lengths differ, or `from` is another device's.
    pub fn down<T: Element>(&mut self, from: &View<'_, T>, to: &mut [T]) -> Result<(), DeviceError> {
        let (from, to) = (from.bytes(), bytemuck::cast_slice_mut::<T, u8>(to));
        assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
        let mut before: Option<(usize, Range<usize>)> = None;
        for (number, range) in parts(from.len()).enumerate() {
            self.slots[number % SLOTS].copy_view_down(Stream::Copies, &from.part(range.clone()), 0..range.len())?;
            if let Some(landing) = before.replace((number, range)) {
                self.land(landing, to)?;
            }
        }
        before.map_or(Ok(()), |landing| self.land(landing, to))
    }

    fn land(&self, (number, range): (usize, Range<usize>), to: &mut [u8]) -> Result<(), DeviceError> {
        let landed = self.slots[number % SLOTS].read()?;
        to[range.clone()].copy_from_slice(&landed[..range.len()]);
        Ok(())
    }

    /// Lets `change` change all of `values` on the host: they come down, and go up again, in the order of what is enqueued on the stream of computing.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When they are another device's.
    pub fn change<T: Element>(
        &mut self,
        values: &mut ViewMut<'_, T>,
        change: impl FnOnce(&mut [T]),
    ) -> Result<(), DeviceError> {
        let mut here = vec![T::zeroed(); values.read().len()];
        self.device.wait_for(Stream::Copies, Stream::Compute)?;
        self.down(values.read(), &mut here)?;
        change(&mut here);
        self.up(&here, values)
    }
}

/// How so many bytes are cut.
fn parts(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let part = move |start: usize| start..bytes.min(start + LOWERED_BYTES);
    (0..bytes).step_by(LOWERED_BYTES).map(part)
}
