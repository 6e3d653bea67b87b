//! Memory that another user of the driver's bindings has on the device's stream of computing, such as a framework's tensor. Must not know whose it is.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use thiserror::Error;

use super::tensor::bytes;
use super::{Device, Element, Stream, View, ViewMut};

/// Memory is not at home on the stream that the device computes on: nothing says what is done with it before what. A mistake of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "expected memory of the stream that the device computes on, found memory of another one; make all tensors with the stream that was given to \
     `Device::beside`"
)]
pub struct OtherStream;

impl<'a, T: Element> View<'a, T> {
    /// Some elements of memory that was allocated on the stream beside which the device was [opened](Device::beside), to be read by what is enqueued. They
    /// may be changed and freed as soon as that is enqueued, in the order of that stream.
    ///
    /// # Errors
    /// When it was allocated on another stream.
    ///
    /// # Panics
    /// When `range` lies beyond it.
    pub fn beside(device: &'a Device, memory: &'a CudaSlice<T>, range: Range<usize>) -> Result<Self, OtherStream> {
        let (address, _read) = memory.device_ptr(at_home(device, memory.stream())?);
        Ok(Self::at(device, address, memory.len(), &range))
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// As [`View::beside`], to be written.
    ///
    /// # Errors
    /// As [`View::beside`].
    ///
    /// # Panics
    /// As [`View::beside`].
    pub fn beside(device: &'a Device, memory: &'a mut CudaSlice<T>, range: Range<usize>) -> Result<Self, OtherStream> {
        let (length, stream) = (memory.len(), Arc::clone(memory.stream()));
        let (address, _written) = memory.device_ptr_mut(at_home(device, &stream)?);
        Ok(Self(View::at(device, address, length, &range)))
    }
}

impl<'a, T: Element> View<'a, T> {
    fn at(device: &'a Device, address: u64, length: usize, range: &Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= length,
            "expected a part of {length} elements, found {range:?}"
        );
        let start = bytes::<T>(range).start as u64;
        Self::new(device, address + start, range.len())
    }
}

fn at_home<'a>(device: &Device, stream: &'a Arc<CudaStream>) -> Result<&'a CudaStream, OtherStream> {
    if Arc::ptr_eq(stream, device.stream(Stream::Compute)) {
        Ok(stream)
    } else {
        Err(OtherStream)
    }
}
