//! A kernel is given its arguments by their addresses. Must not know which kernels there are.

use std::ffi::c_void;

use cudarc::driver::{CudaFunction, CudaStream, DriverError, result};

use crate::geometry::Geometry;

/// What arguments are aligned to: as much as any type of a kernel's asks for.
const WORD: usize = 8;

/// The bytes of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentBytes(Vec<u64>);

impl ArgumentBytes {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(WORD)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self(words)
    }
}

/// What was made in a way that cannot be checked, and that its maker vouches for.
#[derive(Debug)]
pub struct Trusted<T>(T);

impl<T> Trusted<T> {
    /// # Safety
    /// Of a launch of a program's own kernel: with these arguments, blocks and threads the kernel reads and writes elements of the tensors that it is given and of
    /// its own shared memory alone, as the types and within the lengths of the views; it writes only those that are given to be written; each of its addresses
    /// is aligned to what it takes it for; and it comes to an end.
    #[must_use]
    pub const unsafe fn new(made: T) -> Self {
        Self(made)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

/// Enqueues a kernel, with so many bytes of shared memory besides its own. The arguments' number and sizes are those of its parameters, and what they point to is as long as it takes: the caller
/// has checked both.
pub(crate) fn launch(
    stream: &CudaStream,
    function: &CudaFunction,
    geometry: Geometry,
    shared: u32,
    arguments: &[&ArgumentBytes],
) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    let mut addresses: Vec<*mut c_void> = arguments
        .iter()
        .map(|argument| argument.0.as_ptr().cast_mut().cast())
        .collect();
    // SAFETY: the driver reads as many bytes of each argument as the kernel's parameter has, before it returns. What a kernel of ours reaches is a GPU's
    // memory, which holds no values of Rust's; for another's its launch is `Trusted`.
    unsafe {
        result::launch_kernel(
            function.cu_function(),
            geometry.grid.into(),
            geometry.block.into(),
            shared,
            stream.cu_stream(),
            &mut addresses,
        )
    }
}
