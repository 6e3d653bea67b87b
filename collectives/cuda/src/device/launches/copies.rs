//! Copies within a device, by the driver.

use super::Enqueue;
use crate::device::{DeviceError, Element, View, ViewMut};
use crate::raw::memory::copy_within;

impl Enqueue<'_> {
    /// Copies all of `from` to `to`.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When lengths differ, or one of them is another device's.
    pub fn copy<T: Element>(&self, to: &mut ViewMut<'_, T>, from: &View<'_, T>) -> Result<(), DeviceError> {
        let (read, bytes) = (to.read(), from.len() * size_of::<T>());
        assert_eq!(read.len(), from.len(), "a copy is as long as what is copied");
        assert!(
            read.device() == self.device && from.device() == self.device,
            "expected memory of the device that copies it"
        );
        let stream = self.device.stream(self.stream);
        self.device.call("copy within itself", || {
            copy_within(stream, read.address(), from.address(), bytes)
        })
    }
}
