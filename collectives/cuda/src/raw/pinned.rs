//! Bytes of the host that a GPU reaches by itself, and copies between them and its memory, each within its bounds. Must not know what the bytes mean.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use sardana_collectives::pages::Pages;

use super::context::whatever_was_noted;
use super::registered::is_registered;

/// Bytes of the host that a GPU reads and writes by itself, while the host goes on. Code that looks at them waits for that first, and so does code that frees
/// them.
#[derive(Debug)]
pub(crate) struct PinnedBytes {
    memory: Lying,
    /// Recorded behind each copy. Memory of the driver's has an event as well, which the bindings record only where they track all memory.
    used: CudaEvent,
}

/// Whose memory they are.
#[derive(Debug)]
enum Lying {
    /// The driver's.
    Allocated(PinnedHostSlice<u8>),
    /// Pages that other processes of the host can read, of which the driver was told.
    Registered(Arc<Pages>),
}

impl PinnedBytes {
    /// So many bytes, all 0. Cached by the processor like any other memory.
    pub(crate) fn allocate(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        // The host sleeps while it waits: others need its processors meanwhile.
        let used = context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?;
        // SAFETY: they are written before anybody reads them. None is not a size that the driver takes.
        let mut memory = unsafe { context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0)? };
        memory.as_mut_slice()?.fill(0);
        let memory = Lying::Allocated(memory);
        Ok(Self { memory, used })
    }

    /// The same, where other processes of the host can read them, if the system has pages for that and the driver takes them.
    pub(crate) fn in_pages(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        let Ok(pages) = Pages::create(bytes) else {
            return Self::allocate(context, bytes);
        };
        if !is_registered(context, pages.mapping()) {
            return Self::allocate(context, bytes);
        }
        let used = context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?;
        let memory = Lying::Registered(Arc::new(pages));
        Ok(Self { memory, used })
    }

    /// The pages in which they lie, if they do.
    pub(crate) const fn pages(&self) -> Option<&Arc<Pages>> {
        match &self.memory {
            Lying::Allocated(_) => None,
            Lying::Registered(pages) => Some(pages),
        }
    }

    /// Whether another process may still be reading them.
    pub(crate) fn are_read(&mut self) -> bool {
        match &mut self.memory {
            Lying::Allocated(_) => false,
            Lying::Registered(pages) => pages.are_read(),
        }
    }

    /// Waits until no copy uses them.
    pub(crate) fn read(&self) -> Result<&[u8], DriverError> {
        self.used.synchronize()?;
        match &self.memory {
            Lying::Allocated(memory) => memory.as_slice(),
            Lying::Registered(pages) => {
                // SAFETY: they are mapped as long as this value lives, and nothing writes there: no copy, which was waited for, and no other process, which cannot.
                Ok(unsafe { slice::from_raw_parts(pages.start(), pages.bytes()) })
            }
        }
    }

    /// Waits until no copy uses them. No other process is to be reading them.
    pub(crate) fn write(&mut self) -> Result<&mut [u8], DriverError> {
        self.used.synchronize()?;
        match &mut self.memory {
            Lying::Allocated(memory) => memory.as_mut_slice(),
            Lying::Registered(pages) => {
                assert!(
                    Arc::get_mut(pages).is_some(),
                    "pages are not written that something else holds"
                );
                // SAFETY: as in `read`; and this value, which alone has the pages, is borrowed alone.
                Ok(unsafe { slice::from_raw_parts_mut(pages.start(), pages.bytes()) })
            }
        }
    }

    /// Enqueues a copy of `range` to the bytes that a GPU has from `to` on, behind the copies before it. There are as many: the caller has checked that.
    pub(crate) fn copy_up(&self, stream: &CudaStream, range: Range<usize>, to: u64) -> Result<(), DriverError> {
        let from = self.address(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        stream.wait(&self.used)?;
        // SAFETY: the bounds are checked.
        let from = unsafe { slice::from_raw_parts(from, range.len()) };
        // SAFETY: until the event has come the host does not write the memory, and it is not freed.
        unsafe { result::memcpy_htod_async(to, from, stream.cu_stream())? };
        self.used.record(stream)
    }

    /// Enqueues a copy of the bytes that a GPU has from `from` on to `range`, behind the copies before it. There are as many: the caller has checked that.
    pub(crate) fn copy_down(&mut self, stream: &CudaStream, from: u64, range: Range<usize>) -> Result<(), DriverError> {
        let to = self.address(&range)?.cast_mut();
        if range.is_empty() {
            return Ok(());
        }
        stream.wait(&self.used)?;
        // SAFETY: as above, and the memory is this value's own.
        let to = unsafe { slice::from_raw_parts_mut(to, range.len()) };
        // SAFETY: as above; nor does the host read it.
        unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream())? };
        self.used.record(stream)
    }

    /// Where a part of them lies, also while the GPU uses it.
    ///
    /// # Panics
    /// When it lies beyond them.
    fn address(&self, range: &Range<usize>) -> Result<*const u8, DriverError> {
        let (start, length) = match &self.memory {
            Lying::Allocated(memory) => (memory.as_ptr()?, memory.len()),
            Lying::Registered(pages) => (pages.start().cast_const(), pages.bytes()),
        };
        assert!(
            range.start <= range.end && range.end <= length,
            "expected a part of {length} pinned bytes, found {range:?}"
        );
        // SAFETY: it lies within the memory, as was just checked.
        Ok(unsafe { start.add(range.start) })
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        whatever_was_noted(self.used.context(), || self.used.synchronize());
    }
}
