//! Elements in a device's memory, and parts of them. Must not know what they are for.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use half::{bf16, f16};

use super::{Charge, Device, DeviceError, MemoryKind, Stream};
use crate::raw::memory::{DeviceBytes, RawMemory};

/// A type of which any bits are a value, the same on the host and on a device.
pub trait Element: Pod + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {}
    )*};
}

elements!(u8, u32, u64, f32, f64, bf16, f16);

/// So many elements, one behind the other, in a device's memory. Valid on the stream that it is at home on; on the other one, and for use by
/// it at the end, the caller that enqueues says what waits for what ([`Device::wait`]).
#[derive(Debug)]
pub struct DeviceTensor<T> {
    device: Device,
    home: Stream,
    memory: DeviceBytes,
    length: usize,
    /// None of another library's memory.
    _charge: Option<Charge>,
    element: PhantomData<T>,
}

impl<T: Element> DeviceTensor<T> {
    /// Room for so many elements, at home on `home`, with anything in it.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn unset(device: &Device, home: Stream, length: usize) -> Result<Self, DeviceError> {
        let bytes = length.saturating_mul(size_of::<T>());
        let stream = device.stream(home);
        let (memory, charge) = device.allocate(MemoryKind::Device, bytes, || DeviceBytes::allocate(stream, bytes))?;
        Ok(Self {
            device: device.clone(),
            home,
            memory,
            length,
            _charge: Some(charge),
            element: PhantomData,
        })
    }

    /// Room for so many elements, all of whose bits are 0.
    ///
    /// # Errors
    /// As [`Self::unset`].
    pub fn zeros(device: &Device, home: Stream, length: usize) -> Result<Self, DeviceError> {
        let mut tensor = Self::unset(device, home, length)?;
        device.call("clear memory", || tensor.memory.clear(device.stream(home)))?;
        Ok(tensor)
    }

    /// These values, at home on `home`. They may be changed as soon as this returns.
    ///
    /// # Errors
    /// As [`Self::unset`].
    pub fn from_slice(device: &Device, home: Stream, values: &[T]) -> Result<Self, DeviceError> {
        let mut tensor = Self::unset(device, home, values.len())?;
        let bytes = bytemuck::cast_slice(values);
        device.call("copy values to it", || tensor.memory.copy_from(device.stream(home), 0, bytes))?;
        Ok(tensor)
    }

    /// Memory of another library, at home on `home`. It is not counted, and not freed.
    #[must_use]
    pub fn from_raw(device: &Device, home: Stream, memory: RawMemory<T>) -> Self {
        let (memory, length) = memory.into_parts();
        Self {
            device: device.clone(),
            home,
            memory,
            length,
            _charge: None,
            element: PhantomData,
        }
    }

    /// The values, once all is done that was enqueued on its home before.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::zeroed(); self.length];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        let stream = self.device.stream(self.home);
        self.device
            .call("copy values from it", || self.memory.copy_to(stream, 0, bytes))?;
        Ok(values)
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

    /// The device that has them.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// All of them, to be read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        self.part(0..self.length)
    }

    /// Some of them, to be read.
    ///
    /// # Panics
    /// When `range` lies beyond them.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> View<'_, T> {
        View {
            device: &self.device,
            address: self.memory.at(&bytes::<T>(&range)),
            length: range.len(),
            element: PhantomData,
        }
    }

    /// All of them, to be written.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.part_mut(0..self.length)
    }

    /// Some of them, to be written.
    ///
    /// # Panics
    /// When `range` lies beyond them.
    #[must_use]
    pub fn part_mut(&mut self, range: Range<usize>) -> ViewMut<'_, T> {
        ViewMut(View {
            device: &self.device,
            address: self.memory.at(&bytes::<T>(&range)),
            length: range.len(),
            element: PhantomData,
        })
    }
}

/// Elements in a device's memory, to be read by what is enqueued.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T> {
    device: &'a Device,
    address: u64,
    length: usize,
    element: PhantomData<&'a T>,
}

/// Elements in a device's memory, to be written by what is enqueued.
#[derive(Debug)]
pub struct ViewMut<'a, T>(pub(super) View<'a, T>);

impl<'a, T> View<'a, T> {
    /// So many elements from there on, which the device has as long as both are lent.
    pub(super) const fn new(device: &'a Device, address: u64, length: usize) -> Self {
        Self {
            device,
            address,
            length,
            element: PhantomData,
        }
    }

    /// Where the first of them lies, as the device counts.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The device that has them.
    #[must_use]
    pub const fn device(&self) -> &'a Device {
        self.device
    }
}

impl<'a, T: Element> View<'a, T> {
    /// Their bytes.
    pub(crate) const fn bytes(&self) -> View<'a, u8> {
        View {
            device: self.device,
            address: self.address,
            length: self.length.saturating_mul(size_of::<T>()),
            element: PhantomData,
        }
    }
}

impl<'a> View<'a, u8> {
    /// Some of them.
    ///
    /// # Panics
    /// When `range` lies beyond them.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "expected a part of {} bytes, found {range:?}",
            self.length
        );
        Self {
            address: self.address + range.start as u64,
            length: range.len(),
            ..*self
        }
    }

    /// The elements that these are the bytes of.
    ///
    /// # Panics
    /// When they are not aligned to such elements, or not as many as some of them have.
    pub(crate) const fn elements<T: Element>(&self) -> View<'a, T> {
        let size = size_of::<T>();
        assert!(
            self.address.is_multiple_of(size as u64) && self.length.is_multiple_of(size),
            "elements lie where they are aligned"
        );
        View {
            device: self.device,
            address: self.address,
            length: self.length / size,
            element: PhantomData,
        }
    }
}

impl<'a> ViewMut<'a, u8> {
    /// As [`View::elements`], to be written.
    pub(crate) const fn elements<T: Element>(self) -> ViewMut<'a, T> {
        ViewMut(self.0.elements())
    }

    /// As [`View::part`], to be written.
    ///
    /// # Panics
    /// When `range` lies beyond them.
    pub(crate) fn part(&mut self, range: Range<usize>) -> ViewMut<'_, u8> {
        ViewMut(self.0.part(range))
    }
}

impl<T: Element> ViewMut<'_, T> {
    /// Their bytes, to be written.
    pub(crate) const fn bytes(&mut self) -> ViewMut<'_, u8> {
        ViewMut(self.0.bytes())
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// The same, to be read: what is enqueued may read what it writes.
    #[must_use]
    pub const fn read(&self) -> &View<'a, T> {
        &self.0
    }
}

pub(super) const fn bytes<T>(range: &Range<usize>) -> Range<usize> {
    range.start.saturating_mul(size_of::<T>())..range.end.saturating_mul(size_of::<T>())
}
