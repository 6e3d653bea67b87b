//! Memory of the host that belongs to others, such as a finished sum's, and that the device copies from and to where it is. Must not know what it is for.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sardana_collectives::gradient::{Lent, Lowering};
use sardana_collectives::mapping::Mapping;

use super::{Device, DeviceError, Stream, View, ViewMut};
pub(crate) use crate::raw::registered::CopiesOfLent;
use crate::raw::registered::{self, CopyInPlace};

/// A copy from the device to where a part of a gradient goes.
#[derive(Debug)]
pub(crate) struct DirectCopy {
    copy: CopyInPlace,
    device: Device,
}

impl Device {
    /// Whether the device copies from this memory by itself, and to it if it may be written: the driver is told of it the first time, which takes a while, and
    /// may refuse it. It is not counted as pinned: it is there already, and what it is counted as is its owner's affair.
    pub(crate) fn reaches(&self, mapping: &Mapping) -> bool {
        registered::is_registered(&self.0.context, mapping)
    }

    /// Copies bytes that the device [reaches](Self::reaches) to places in `to`, behind all that is enqueued on the stream of computing so far. They are there when it
    /// returns.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When a place lies beyond `to`, or `to` is another device's.
    pub(crate) fn copy_up_in_place(
        &self,
        to: &ViewMut<'_, u8>,
        copies: &[(Range<usize>, &[u8])],
    ) -> Result<(), DeviceError> {
        if copies.is_empty() {
            return Ok(());
        }
        let to = to.read();
        assert!(to.device() == self, "expected memory of the device that copies");
        let place = |(range, bytes): &(Range<usize>, &'_ [u8])| {
            assert_eq!(range.len(), bytes.len(), "a copy is as long as what is copied");
            to.part(range.clone()).address()
        };
        let placed: Vec<_> = copies.iter().map(|copy| (copy.1, place(copy))).collect();
        let count: usize = placed.iter().map(|(bytes, _)| bytes.len()).sum();
        self.wait_for(Stream::Copies, Stream::Compute)?;
        self.call("copy to it", || registered::copy_up(self.stream(Stream::Copies), &placed))?;
        self.0.up.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Copies `from` to `to`, which the device [reaches](Self::reaches), on the stream of copies, and waits until it is there.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When lengths differ, or `from` is another device's.
    pub(crate) fn copy_down_in_place(&self, from: &View<'_, u8>, to: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
        assert!(from.device() == self, "expected memory of the device that copies");
        let stream = self.stream(Stream::Copies);
        self.call("copy from it", || registered::copy_down(stream, from.address(), to))?;
        self.0.down.fetch_add(from.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Enqueues copies of a part of a running sum, which the device [reaches](Self::reaches) where another process has it, to the beginning of `to`, on the stream of
    /// uploads. It is returned to that process by the end of what this gives, which waits for the copies.
    ///
    /// # Errors
    /// When the device has failed.
    ///
    /// # Panics
    /// When it is longer than `to`, or `to` is another device's.
    pub(crate) fn copy_up_lent(&self, to: &ViewMut<'_, u8>, lent: Lent) -> Result<CopiesOfLent, DeviceError> {
        let to = to.read();
        assert!(to.device() == self, "expected memory of the device that copies");
        let ends = lent.runs().map(|(at, bytes)| at + bytes.len());
        assert!(ends.max().unwrap_or(0) <= to.len(), "a copy is as long as what is copied");
        let count: usize = lent.runs().map(|(_, bytes)| bytes.len()).sum();
        let stream = self.stream(Stream::Uploads);
        let copies = self.call("copy to it", || CopiesOfLent::enqueue(stream, lent, to.address()))?;
        self.0.up.fetch_add(count as u64, Ordering::Relaxed);
        Ok(copies)
    }

    /// Enqueues a copy of `from` to where the part goes, which the device [reaches](Self::reaches), on the stream of copies.
    ///
    /// # Errors
    /// When the device has failed: with the part.
    ///
    /// # Panics
    /// When lengths differ, or `from` is another device's.
    pub(crate) fn copy_to_part(&self, from: &View<'_, u8>, into: Lowering) -> Result<DirectCopy, (Lowering, DeviceError)> {
        assert_eq!(from.len(), into.range().len(), "a copy is as long as what is copied");
        assert!(from.device() == self, "expected memory of the device that copies");
        let mut into = Some(into);
        let enqueued = self.call("copy from it", || {
            let part = into.take().expect("it is called once");
            CopyInPlace::enqueue(self.stream(Stream::Copies), from.address(), part).map_err(|(part, error)| {
                into = Some(part);
                error
            })
        });
        match enqueued {
            Ok(copy) => {
                self.0.down.fetch_add(from.len() as u64, Ordering::Relaxed);
                let device = self.clone();
                Ok(DirectCopy { copy, device })
            }
            Err(error) => Err((into.expect("it comes back with what is refused"), error)),
        }
    }
}

impl DirectCopy {
    /// The part, once it is there.
    ///
    /// # Errors
    /// When the device has failed: with the part, which nothing writes then.
    pub(crate) fn landed(self) -> Result<Lowering, (Lowering, DeviceError)> {
        let Self { copy, device } = self;
        let landed = copy.land();
        landed.map_err(|(part, error)| (part, device.failed("finish copies", error)))
    }
}
