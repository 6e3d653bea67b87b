//! Memory that another library has allocated.

use crate::device::{Device, DeviceTensor, Element, Stream};
use crate::raw::memory::DeviceBytes;

impl<T: Element> DeviceTensor<T> {
    /// Memory of another library, such as a framework's tensor. It is not counted, and not freed.
    ///
    /// # Safety
    /// On `device`, `length` elements of `T` lie from `address` on, one behind the other, aligned to their size. They are valid on the stream
    /// `home` from where it stands now. Their owner frees them, if at all, in the order of that stream, once that has waited for whatever was enqueued on
    /// the other stream with this tensor; and does not write them meanwhile but on that stream.
    #[must_use]
    pub unsafe fn from_raw(device: &Device, home: Stream, address: u64, length: usize) -> Self {
        let bytes = length.saturating_mul(size_of::<T>());
        // SAFETY: the caller's promise.
        let memory = unsafe { DeviceBytes::foreign(address, bytes) };
        Self::of_foreign(device.clone(), home, memory, length)
    }
}
