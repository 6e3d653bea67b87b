//! Memory of the host that a GPU's driver was told of, so that the GPU copies from there and to there by itself, as from memory that the driver has allocated. Must
//! not know what lies there.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::slice;
use std::sync::Arc;

use cudarc::driver::sys::{self, CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, CUevent_flags};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};
use sardana_collectives::gradient::{Lent, Lowering};
use sardana_collectives::mapping::Mapping;

use super::context::whatever_was_noted;

/// What the driver was told of a mapping: it leaves the pages where they are, until the end of this value. The mapping has it, and ends after it.
struct Registration {
    start: usize,
    context: Arc<CudaContext>,
}

/// Whether the GPU copies from this memory by itself, and to it if it may be written. The driver is told the first time; it may refuse, as where it cannot have memory
/// that this process may not write.
///
/// From then on a copy from there that another library enqueues is not over when its call returns. Its stream is behind it: so whatever follows from the copy is computed after
/// it, as is the next sum, by which the memory of this one is written again.
pub(crate) fn is_registered(context: &Arc<CudaContext>, mapping: &Mapping) -> bool {
    mapping.tell(|| Registration::new(context, mapping).ok())
}

impl Registration {
    fn new(context: &Arc<CudaContext>, mapping: &Mapping) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let access = if mapping.may_be_written() {
            0
        } else {
            CU_MEMHOSTREGISTER_READ_ONLY
        };
        let flags = CU_MEMHOSTREGISTER_PORTABLE | access;
        let start = mapping.start();
        // SAFETY: so many bytes are mapped there as long as the mapping has this value, whose end takes the word back.
        unsafe { sys::cuMemHostRegister_v2(start.cast(), mapping.bytes(), flags) }.result()?;
        Ok(Self {
            start: start.expose_provenance(),
            context: Arc::clone(context),
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        whatever_was_noted(&self.context, || {
            self.context.bind_to_thread()?;
            // SAFETY: the memory was registered by its start, and nothing copies from it or to it any more: what enqueues a copy waits for it while it has the memory.
            unsafe { sys::cuMemHostUnregister(with_exposed_provenance_mut::<c_void>(self.start)) }.result()
        });
    }
}

/// Copies each of these, of memory that is registered, to as many bytes that a GPU has from an address on, and waits until all are read. The caller has checked that
/// there are as many.
pub(crate) fn copy_up(stream: &CudaStream, copies: &[(&[u8], u64)]) -> Result<(), DriverError> {
    let enqueue = |&(from, to): &(&[u8], u64)| {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller has checked the bounds. What is read is borrowed until the copies are waited for, below.
        unsafe { result::memcpy_htod_async(to, from, stream.cu_stream()) }
    };
    stream.context().bind_to_thread()?;
    let enqueued = copies.iter().try_for_each(enqueue);
    enqueued.and(landed(stream))
}

/// Copies the bytes that a GPU has from an address on to `to`, and waits until they are there. There are as many: the caller has checked that.
pub(crate) fn copy_down(stream: &CudaStream, from: u64, to: &mut [u8]) -> Result<(), DriverError> {
    if to.is_empty() {
        return Ok(());
    }
    stream.context().bind_to_thread()?;
    // SAFETY: the caller has checked the bounds. `to` is borrowed alone until the copy is waited for, below.
    let enqueued = unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream()) };
    enqueued.and(landed(stream))
}

/// Waits until all is done that is enqueued on the stream; the host sleeps meanwhile.
fn landed(stream: &CudaStream) -> Result<(), DriverError> {
    // Where no event can be recorded the stream itself is waited for: nothing may be under way when this returns.
    match stream.record_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC)) {
        Ok(event) => event.synchronize(),
        Err(_) => stream.synchronize(),
    }
}

/// Copies of a part of a running sum that another process of the host has lent, in memory that is registered.
#[derive(Debug)]
pub(crate) struct CopiesOfLent {
    read: CudaEvent,
    #[expect(dead_code, reason = "it is returned at the end of this value")]
    lent: Lent,
}

impl CopiesOfLent {
    /// Enqueues them, to the bytes that a GPU has from `to` on. There are as many: the caller has checked that.
    pub(crate) fn enqueue(stream: &CudaStream, lent: Lent, to: u64) -> Result<Self, DriverError> {
        let read = stream.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?;
        stream.context().bind_to_thread()?;
        let enqueued = lent.runs().try_for_each(|(at, bytes)| {
            // SAFETY: the caller has checked what is written. What is read stays as it is as long as this value has it, which waits at its end.
            unsafe { result::memcpy_htod_async(to + at as u64, bytes, stream.cu_stream()) }
        });
        match enqueued.and_then(|()| read.record(stream)) {
            Ok(()) => Ok(Self { read, lent }),
            Err(error) => {
                // Some may have been enqueued. What a failed context has enqueued does not come any more.
                stream.context().record_err(stream.synchronize());
                Err(error)
            }
        }
    }
}

impl Drop for CopiesOfLent {
    fn drop(&mut self) {
        whatever_was_noted(self.read.context(), || self.read.synchronize());
    }
}

/// A copy to where a part of a gradient goes, in memory that is registered.
#[derive(Debug)]
pub(crate) struct CopyInPlace {
    /// Until the end of this value.
    into: Option<Lowering>,
    landed: CudaEvent,
}

impl CopyInPlace {
    /// Enqueues it, of the bytes that a GPU has from `from` on. There are as many: the caller has checked that.
    ///
    /// # Errors
    /// With the part, which nothing writes then.
    pub(crate) fn enqueue(stream: &CudaStream, from: u64, into: Lowering) -> Result<Self, (Lowering, DriverError)> {
        let context = stream.context();
        let event = context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        let event = event.and_then(|event| context.bind_to_thread().map(|()| event));
        let event = match event {
            Ok(event) => event,
            Err(error) => return Err((into, error)),
        };
        // SAFETY: so many bytes are mapped there, which nothing else reads or writes as long as this value has the lowering. It waits at its end.
        let to = unsafe { slice::from_raw_parts_mut(into.start(), into.range().len()) };
        // SAFETY: the same, and the caller has checked what is read.
        let enqueued = unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream()) };
        match enqueued.and_then(|()| event.record(stream)) {
            Ok(()) => Ok(Self {
                into: Some(into),
                landed: event,
            }),
            Err(error) => {
                // It may have been enqueued. What a failed context has enqueued does not come any more.
                context.record_err(stream.synchronize());
                Err((into, error))
            }
        }
    }

    /// Waits until it has landed.
    ///
    /// # Errors
    /// With the part, which nothing writes then.
    pub(crate) fn land(mut self) -> Result<Lowering, (Lowering, DriverError)> {
        let landed = self.landed.synchronize();
        let into = self.into.take().expect("it is there until its end");
        match landed {
            Ok(()) => Ok(into),
            Err(error) => Err((into, error)),
        }
    }
}

impl Drop for CopyInPlace {
    fn drop(&mut self) {
        if self.into.is_some() {
            whatever_was_noted(self.landed.context(), || self.landed.synchronize());
        }
    }
}
