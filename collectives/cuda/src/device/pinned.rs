//! Elements in the host's memory that a device copies from and to by itself. Must not know what they are for.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::{CudaContext, DriverError};
use sardana_collectives::pages::Pages;

use super::tensor::bytes;
use super::{Charge, Device, DeviceError, DeviceTensor, Element, MemoryKind, Stream, View, ViewMut};
use crate::raw::pinned::PinnedBytes;

/// So many elements in pinned memory of the host. Looking at them waits until no copy uses them any more; the copies themselves follow one
/// another in the order in which they were enqueued, on whichever streams.
#[derive(Debug)]
pub struct Pinned<T> {
    device: Device,
    memory: PinnedBytes,
    length: usize,
    _charge: Charge,
    element: PhantomData<T>,
}

impl<T: Element> Pinned<T> {
    /// So many elements, all of whose bits are 0.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn zeros(device: &Device, length: usize) -> Result<Self, DeviceError> {
        Self::allocated(device, length, PinnedBytes::allocate)
    }

    /// The same, in pages that other processes of the host can read, where there are such.
    pub(crate) fn in_pages(device: &Device, length: usize) -> Result<Self, DeviceError> {
        Self::allocated(device, length, PinnedBytes::in_pages)
    }

    fn allocated(
        device: &Device,
        length: usize,
        allocate: impl FnOnce(&Arc<CudaContext>, usize) -> Result<PinnedBytes, DriverError>,
    ) -> Result<Self, DeviceError> {
        let bytes = length.saturating_mul(size_of::<T>());
        let context = &device.0.context;
        let (memory, charge) = device.allocate(MemoryKind::Pinned, bytes, || allocate(context, bytes))?;
        Ok(Self {
            device: device.clone(),
            memory,
            length,
            _charge: charge,
            element: PhantomData,
        })
    }

    /// The pages in which they lie, if other processes can read them there.
    pub(crate) const fn pages(&self) -> Option<&Arc<Pages>> {
        self.memory.pages()
    }

    /// Whether another process may still be reading them: they are not to be written then.
    pub(crate) fn are_read(&mut self) -> bool {
        self.memory.are_read()
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The elements, once no copy uses them.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    pub fn read(&self) -> Result<&[T], DeviceError> {
        let all = self.device.call("finish copies", || self.memory.read())?;
        Ok(bytemuck::cast_slice(&all[..self.length * size_of::<T>()]))
    }

    /// The elements, once no copy uses them.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&mut self) -> Result<&mut [T], DeviceError> {
        let all = self.device.call("finish copies", || self.memory.write())?;
        Ok(bytemuck::cast_slice_mut(&mut all[..self.length * size_of::<T>()]))
    }

    /// Enqueues a copy of the elements `range` to those of `to` from `start` on.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When either lies beyond its memory, or `to` is another device's.
    pub fn copy_up(
        &self,
        stream: Stream,
        range: Range<usize>,
        to: &mut DeviceTensor<T>,
        start: usize,
    ) -> Result<(), DeviceError> {
        let length = range.len();
        self.copy_view_up(stream, range, &to.part_mut(start..start + length))
    }

    /// Enqueues a copy of `range` to all of `to`, which is as long.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When `range` is not as long, or lies beyond the memory, or `to` is another device's.
    pub(crate) fn copy_view_up(&self, stream: Stream, range: Range<usize>, to: &ViewMut<'_, T>) -> Result<(), DeviceError> {
        let to = to.read();
        assert_eq!(range.len(), to.len(), "a copy is as long as what is copied");
        let range = bytes::<T>(&self.checked(range, to.device()));
        let count = range.len() as u64;
        let copies = self.device.stream(stream);
        self.device
            .call("copy to it", || self.memory.copy_up(copies, range, to.address()))?;
        self.device.0.up.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Enqueues a copy of the elements of `from` from `start` on to `range`.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// As [`Self::copy_up`].
    pub fn copy_down(
        &mut self,
        stream: Stream,
        from: &DeviceTensor<T>,
        start: usize,
        range: Range<usize>,
    ) -> Result<(), DeviceError> {
        let length = range.len();
        self.copy_view_down(stream, &from.part(start..start + length), range)
    }

    /// Enqueues a copy of `from` to `range`, which is as long.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When `range` is not as long, or lies beyond the memory, or `from` is another device's.
    pub(crate) fn copy_view_down(
        &mut self,
        stream: Stream,
        from: &View<'_, T>,
        range: Range<usize>,
    ) -> Result<(), DeviceError> {
        assert_eq!(from.len(), range.len(), "a copy is as long as what is copied");
        let range = bytes::<T>(&self.checked(range, from.device()));
        let count = range.len() as u64;
        let copies = self.device.stream(stream);
        self.device
            .call("copy from it", || self.memory.copy_down(copies, from.address(), range))?;
        self.device.0.down.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn checked(&self, range: Range<usize>, other: &Device) -> Range<usize> {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "expected a part of {} pinned elements, found {range:?}",
            self.length
        );
        assert!(
            *other == self.device,
            "expected a tensor of the device that the memory is pinned for"
        );
        range
    }
}
