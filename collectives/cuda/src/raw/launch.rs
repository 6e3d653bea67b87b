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

/// Enqueues a kernel. The arguments' number and sizes are those of its parameters, and what they point to is as long as it takes: the caller
/// has checked both.
pub(crate) fn launch(
    stream: &CudaStream,
    function: &CudaFunction,
    geometry: Geometry,
    arguments: &[&ArgumentBytes],
) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    let mut addresses: Vec<*mut c_void> = arguments
        .iter()
        .map(|argument| argument.0.as_ptr().cast_mut().cast())
        .collect();
    // SAFETY: the driver reads as many bytes of each argument as the kernel's parameter has, before it returns. What a kernel reaches is a GPU's
    // memory, which holds no values of Rust's.
    unsafe {
        result::launch_kernel(
            function.cu_function(),
            geometry.grid.into(),
            geometry.block.into(),
            0,
            stream.cu_stream(),
            &mut addresses,
        )
    }
}
