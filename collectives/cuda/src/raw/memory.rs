//! Bytes in a GPU's memory, and copies of them, each within its bounds. Must not know what
//! the bytes mean, nor when they are valid: that is for who enqueues.

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};

use super::dlpack::Lent;

/// Bytes in a GPU's memory: allocated here and freed in the order of the stream that they were allocated on, or another library's.
#[derive(Debug)]
pub(crate) struct DeviceBytes {
    address: u64,
    bytes: usize,
    /// None for what its owner frees by itself, and where there are none.
    owner: Option<Owner>,
}

/// What frees bytes at its end.
#[derive(Debug)]
enum Owner {
    /// Allocated here.
    Own(CudaSlice<u8>),
    /// Given back to another library, behind what was enqueued on these streams: all on which it can have been used here.
    Lent(
        [Arc<CudaStream>; 3],
        #[expect(dead_code, reason = "what it does it does at its end")] Lent,
    ),
}

impl DeviceBytes {
    /// So many bytes, whatever is in them, valid on `stream` from where it stands.
    pub(crate) fn allocate(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, DriverError> {
        if bytes == 0 {
            return Ok(Self {
                address: 0,
                bytes,
                owner: None,
            });
        }
        // SAFETY: a GPU's memory holds no values of Rust's; it is read only as types that all bits are values of.
        let owned = unsafe { stream.alloc::<u8>(bytes)? };
        let address = owned.device_ptr(stream).0;
        Ok(Self {
            address,
            bytes,
            owner: Some(Owner::Own(owned)),
        })
    }

    /// Where a part of them lies.
    ///
    /// # Panics
    /// When it lies beyond them.
    pub(crate) fn at(&self, range: &Range<usize>) -> u64 {
        assert!(
            range.start <= range.end && range.end <= self.bytes,
            "expected a part of {} bytes on the device, found {range:?}",
            self.bytes
        );
        self.address + range.start as u64
    }

    /// Copies `from` to the bytes from `start` on. It has read `from` when it returns.
    pub(crate) fn copy_from(&mut self, stream: &CudaStream, start: usize, from: &[u8]) -> Result<(), DriverError> {
        let to = self.at(&(start..start + from.len()));
        if from.is_empty() {
            return Ok(());
        }
        stream.context().bind_to_thread()?;
        // SAFETY: the bounds are checked above. The driver copies pageable memory aside before it returns; of what is pinned or registered it is waited for below.
        unsafe { result::memcpy_htod_async(to, from, stream.cu_stream())? };
        if is_reached(from) { stream.synchronize() } else { Ok(()) }
    }

    /// Copies the bytes from `start` on to `to`. It has written them when it returns.
    pub(crate) fn copy_to(&self, stream: &CudaStream, start: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let from = self.at(&(start..start + to.len()));
        if to.is_empty() {
            return Ok(());
        }
        stream.context().bind_to_thread()?;
        // SAFETY: the bounds are checked above, and `to` is borrowed alone until the stream has come past the copy.
        unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream())? };
        stream.synchronize()
    }

    /// All bytes become 0.
    pub(crate) fn clear(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        if self.bytes == 0 {
            return Ok(());
        }
        stream.context().bind_to_thread()?;
        // SAFETY: they are the bytes of this memory.
        unsafe { result::memset_d8_async(self.address, 0, self.bytes, stream.cu_stream()) }
    }
}

/// Whether the driver copies from this memory by itself, so that a copy is not over when it is enqueued.
fn is_reached(memory: &[u8]) -> bool {
    let mut kind: c_uint = 0;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let address = memory.as_ptr().expose_provenance() as u64;
    // SAFETY: this attribute is a `c_uint`, and an address that the driver does not know is an error, by which nothing is written.
    let answer = unsafe { sys::cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), attribute, address) };
    answer == sys::CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint
}

/// Enqueues a copy from one place to another in a GPU's memory. The caller has them from views, which are as long.
pub(crate) fn copy_within(stream: &CudaStream, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
    if bytes == 0 {
        return Ok(());
    }
    stream.context().bind_to_thread()?;
    // SAFETY: what is copied is a GPU's memory, which holds no values of Rust's.
    unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        match &self.owner {
            None => {}
            Some(Owner::Own(memory)) => {
                // The bindings free it on whatever thread this is, and do not ask whether that has the context.
                let context = memory.context();
                context.record_err(context.bind_to_thread());
            }
            // The library may give the memory to others at once. Where a stream does not come that far, nothing comes.
            Some(Owner::Lent(streams, _)) => {
                for stream in streams {
                    stream.context().record_err(stream.synchronize());
                }
            }
        }
    }
}

/// Elements in a GPU's memory that another library has allocated, such as a framework's tensor.
#[derive(Debug)]
pub struct RawMemory<T> {
    bytes: DeviceBytes,
    length: usize,
    element: PhantomData<T>,
}

impl<T> RawMemory<T> {
    /// `length` elements from `address` on, one behind the other.
    ///
    /// # Safety
    /// They lie there, aligned to their size, on the device that they are used on, and are valid on the stream that they are said to be at home on, from
    /// where that stands. Their owner frees them, if at all, in the order of that stream, once it has waited for whatever was enqueued on the other
    /// stream with them; and writes them meanwhile on that stream alone.
    #[must_use]
    pub const unsafe fn new(address: u64, length: usize) -> Self {
        let bytes = DeviceBytes {
            address,
            bytes: length.saturating_mul(size_of::<T>()),
            owner: None,
        };
        let element = PhantomData;
        Self { bytes, length, element }
    }

    /// The same of what is given back to its library once `streams`, on which alone it is used, have come past all that is enqueued on them then. What is lent is
    /// what its maker has promised.
    pub(crate) const fn lent(address: u64, length: usize, lent: Lent, streams: [Arc<CudaStream>; 3]) -> Self {
        let bytes = DeviceBytes {
            address,
            bytes: length.saturating_mul(size_of::<T>()),
            owner: Some(Owner::Lent(streams, lent)),
        };
        let element = PhantomData;
        Self { bytes, length, element }
    }

    pub(crate) fn into_parts(self) -> (DeviceBytes, usize) {
        (self.bytes, self.length)
    }
}
