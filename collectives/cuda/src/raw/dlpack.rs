//! Tensors of other libraries as DLPack has them: structures of C that are read once, and given back by a function that they bring. Must not know what
//! is done with the tensor.

use std::ffi::c_void;
use std::ptr::NonNull;

/// The version of which the layout is known; of another one only its own number and how it is given back.
pub(crate) const MAJOR: u32 = 1;

/// Most dimensions that are read.
pub(crate) const MOST_DIMENSIONS: i32 = 64;

#[repr(C)]
struct Device {
    kind: i32,
    ordinal: i32,
}

#[repr(C)]
struct Dtype {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: Dtype,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, of versions before 1.0.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    _context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

/// `DLManagedTensorVersioned`, since 1.0.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    _context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a producer says of its tensor, as it says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) address: u64,
    pub(crate) byte_offset: u64,
    /// The kind of the device, and its number.
    pub(crate) device: (i32, i32),
    /// The kind of number, its bits, and how many make an element.
    pub(crate) dtype: (u8, u8, u16),
    pub(crate) dimensions: i32,
    /// As long as there are dimensions; empty if those are more than are read.
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Option<Vec<i64>>,
    /// Bit 0: it is only to be read.
    pub(crate) flags: u64,
}

/// A tensor of another library's, by DLPack. It is given back once: when this ends, or what was made of it.
#[derive(Debug)]
pub struct DlPack {
    /// The version, and what is said. None for a null pointer; nothing is said in a version that is not known.
    found: Option<([u32; 2], Option<Said>)>,
    lent: Lent,
}

/// What is given back at its end.
#[derive(Debug)]
pub(crate) struct Lent(Option<Managed>);

#[derive(Debug)]
enum Managed {
    Unversioned(NonNull<Unversioned>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: a caller that makes a `DlPack` promises that the tensor may be given back by any thread, and nothing else is done with what it points to.
unsafe impl Send for Lent {}
// SAFETY: a shared one shows nothing.
unsafe impl Sync for Lent {}

impl DlPack {
    /// What a `DLManagedTensorVersioned*` points to, as in a capsule named `dltensor_versioned`: DLPack of version 1. It is the consumer's from now on.
    ///
    /// # Safety
    /// It is null, or a producer has made it and no other consumes it: name the capsule `used_dltensor_versioned`. What it says is so, and its elements are valid
    /// on the stream that it will be at home on, from where that stands (`__dlpack__(stream=…)` with [`crate::device::Device::handle`]). Until it is given back
    /// others write them on that stream alone. Its deleter may be called on any thread, may call CUDA, and does not unwind.
    #[must_use]
    pub unsafe fn versioned(at: *mut c_void) -> Self {
        let Some(managed) = NonNull::new(at.cast::<Versioned>()) else {
            return Self::null();
        };
        let lent = Lent(Some(Managed::Versioned(managed)));
        // SAFETY: the caller's promise. The version comes first in all versions.
        let version = unsafe { managed.cast::<[u32; 2]>().read() };
        let said = (version[0] == MAJOR).then(|| {
            // SAFETY: this version has this layout.
            let all = unsafe { managed.as_ref() };
            // SAFETY: the caller's promise.
            unsafe { all.tensor.said(all.flags) }
        });
        Self {
            found: Some((version, said)),
            lent,
        }
    }

    /// What a `DLManagedTensor*` points to, as in a capsule named `dltensor`: DLPack of a version before 1.0.
    ///
    /// # Safety
    /// As [`Self::versioned`]; the capsule's name becomes `used_dltensor`.
    #[must_use]
    pub unsafe fn unversioned(at: *mut c_void) -> Self {
        let Some(managed) = NonNull::new(at.cast::<Unversioned>()) else {
            return Self::null();
        };
        let lent = Lent(Some(Managed::Unversioned(managed)));
        // SAFETY: the caller's promise.
        let tensor = unsafe { &managed.as_ref().tensor };
        // SAFETY: the same.
        let said = unsafe { tensor.said(0) };
        Self {
            found: Some(([0, 0], Some(said))),
            lent,
        }
    }

    const fn null() -> Self {
        let lent = Lent(None);
        Self { found: None, lent }
    }

    pub(crate) fn found(&self) -> Option<([u32; 2], Option<&Said>)> {
        self.found.as_ref().map(|(version, said)| (*version, said.as_ref()))
    }

    pub(crate) fn into_lent(self) -> Lent {
        self.lent
    }
}

impl Tensor {
    /// # Safety
    /// Its shape, and its strides if there are any, have as many numbers as it has dimensions.
    unsafe fn said(&self, flags: u64) -> Said {
        let count = usize::try_from(self.dimensions)
            .ok()
            .filter(|_| self.dimensions <= MOST_DIMENSIONS);
        let numbers = |at: *const i64| match count {
            // SAFETY: the caller's promise. The bound is checked, and of none nothing is read.
            Some(count) if count > 0 && !at.is_null() => unsafe { std::slice::from_raw_parts(at, count) }.to_vec(),
            Some(_) | None => Vec::new(),
        };
        Said {
            address: self.data.expose_provenance() as u64,
            byte_offset: self.byte_offset,
            device: (self.device.kind, self.device.ordinal),
            dtype: (self.dtype.code, self.dtype.bits, self.dtype.lanes),
            dimensions: self.dimensions,
            shape: numbers(self.shape),
            strides: (!self.strides.is_null()).then(|| numbers(self.strides)),
            flags,
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // It is taken, so that it happens once.
        match self.0.take() {
            None => {}
            Some(Managed::Versioned(managed)) => {
                // SAFETY: its maker has promised that it is there until it is given back.
                if let Some(deleter) = unsafe { (*managed.as_ptr()).deleter } {
                    // SAFETY: its maker has promised that it may be given back.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
            Some(Managed::Unversioned(managed)) => {
                // SAFETY: as above.
                if let Some(deleter) = unsafe { (*managed.as_ptr()).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
        }
    }
}
