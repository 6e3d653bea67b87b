//! A compiled source as it is loaded and launched: the only place where Rust and C++ meet.
//!
//! What a kernel does is not checked by the compiler, and need not be: each access is looked at before it happens, so that a faulty kernel ends
//! its launch and touches no memory that is not its own.

#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "loading a library and calling what is in it cannot be checked by the compiler; a function is looked up and called at once"
)]

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use crate::argument::{Argument, Launch};
use crate::memory::{Memory, State};

/// Parameters begin at multiples of this.
const PARAMETER_ALIGNMENT: usize = 16;

/// `TwinBuffer` of host/twin.h.
#[repr(C)]
struct HostBuffer {
    start: u64,
    bytes: u64,
    element: u32,
    state: u32,
}

type KernelOf = unsafe extern "C" fn(u64, *mut u32, *mut *const u32) -> *const c_char;
type LaunchOf =
    unsafe extern "C" fn(u64, *const u32, *const u32, *const u8, u64, *const HostBuffer, u64, u64) -> *const c_char;

/// Why a launch is not what a device could do, or what it would do is not certain.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Launch one of those that the source has.
    #[error("there is no kernel `{0}` in this source: launch one that is named there")]
    NoKernel(String),
    /// Pass what the kernel takes.
    #[error("`{kernel}` takes parameters of {expected:?} bytes, found {found:?}: pass what it takes")]
    Parameters {
        /// The kernel.
        kernel: String,
        /// Bytes of each of its parameters.
        expected: Vec<u32>,
        /// Bytes of each that was passed.
        found: Vec<u32>,
    },
    /// Correct the kernel, or what it is launched with.
    #[error("{0}")]
    Kernel(String),
    /// Correct the kernel.
    #[error("`{0}` has written beside a buffer")]
    Guard(String),
}

/// A kernel in a library.
#[derive(Debug)]
struct Kernel {
    name: String,
    sizes: Vec<u32>,
}

/// A compiled source. Its launches run one after the other, also those of several threads.
#[derive(Debug)]
pub struct Twin {
    kernels: Vec<Kernel>,
    launch: LaunchOf,
    /// What runs has its state in the library.
    running: Mutex<()>,
    /// Last, since it has what the others point to.
    _library: Library,
}

impl Twin {
    /// Loads what [`crate::Compiler`] has made.
    pub(crate) fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: it was just made of a source that has no initialisers but those of the twin's own empty tables.
        let library = unsafe { Library::new(path)? };
        // SAFETY: the functions have these types in host/scheduler.cc, and are kept no longer than the library.
        let (kernel, launch) = unsafe {
            (
                *library.get::<KernelOf>(b"twin_kernel\0")?,
                *library.get::<LaunchOf>(b"twin_launch\0")?,
            )
        };
        let mut kernels = Vec::new();
        for number in 0.. {
            let (mut count, mut sizes) = (0, std::ptr::null());
            // SAFETY: both are written to; the numbers are those up to the first at which there is no name.
            let name = unsafe { kernel(number, &raw mut count, &raw mut sizes) };
            if name.is_null() {
                break;
            }
            // SAFETY: names are constants of the library that end with a zero; a kernel has as many sizes as parameters.
            let (name, sizes) = unsafe { (CStr::from_ptr(name), std::slice::from_raw_parts(sizes, count as usize)) };
            kernels.push(Kernel {
                name: name.to_string_lossy().into_owned(),
                sizes: sizes.to_vec(),
            });
        }
        Ok(Self {
            kernels,
            launch,
            running: Mutex::new(()),
            _library: library,
        })
    }

    /// Bytes of each of a kernel's parameters, as the compiler has laid them out.
    #[must_use]
    pub fn parameters(&self, kernel: &str) -> Option<&[u32]> {
        let kernel = self.kernels.iter().find(|one| one.name == kernel)?;
        Some(&kernel.sizes)
    }

    /// Runs a kernel from its first block to its last. All of `memory` is within its reach.
    ///
    /// # Errors
    /// See [`Fault`]. What is in the memory then is not certain.
    pub fn launch(&self, launch: &Launch, memory: &mut Memory, arguments: &[Argument]) -> Result<(), Fault> {
        let number = self.kernels.iter().position(|one| one.name == launch.kernel);
        let number = number.ok_or_else(|| Fault::NoKernel(launch.kernel.clone()))?;
        let expected = &self.kernels[number].sizes;
        let found: Vec<u32> = arguments.iter().map(|argument| size(argument.bytes())).collect();
        if *expected != found {
            return Err(Fault::Parameters {
                kernel: launch.kernel.clone(),
                expected: expected.clone(),
                found,
            });
        }
        let values = laid_out(arguments);
        let buffers: Vec<HostBuffer> = memory.buffers().iter().map(HostBuffer::of).collect();
        let (number, count) = (number as u64, buffers.len() as u64);
        let one_at_a_time = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the kernel takes parameters of these sizes, `memory` is borrowed alone and of cells, and each access of the kernel is checked to be within
        // its buffers before it happens. What is said lasts until the next launch, which waits.
        let said = unsafe {
            let (grid, block) = (launch.grid.as_ptr(), launch.block.as_ptr());
            let (bytes, seed) = (values.len() as u64, launch.seed);
            let said = (self.launch)(number, grid, block, values.as_ptr(), bytes, buffers.as_ptr(), count, seed);
            (!said.is_null()).then(|| CStr::from_ptr(said).to_string_lossy().into_owned())
        };
        drop(one_at_a_time);
        match said {
            Some(said) => Err(Fault::Kernel(said)),
            None => memory.settle().map_err(|_| Fault::Guard(launch.kernel.clone())),
        }
    }
}

impl HostBuffer {
    fn of(buffer: &crate::memory::Buffer) -> Self {
        Self {
            start: buffer.address.get(),
            bytes: buffer.bytes as u64,
            element: u32::try_from(buffer.element.max(1)).expect("an element is small"),
            state: match buffer.state {
                State::Constant => 0,
                State::Set => 1,
                State::Unset => 2,
            },
        }
    }
}

fn size(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a parameter is small")
}

/// The parameters one behind the other, as host/scheduler.cc reads them.
fn laid_out(arguments: &[Argument]) -> Vec<u8> {
    let mut values = Vec::new();
    for argument in arguments {
        values.extend_from_slice(argument.bytes());
        values.resize(values.len().next_multiple_of(PARAMETER_ALIGNMENT), 0);
    }
    values
}
