//! A GPU's context and what is known of it. Must not know what is computed there.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, DriverError, result, sys};

/// The context of a GPU, in which memory carries no events of its own: what waits for what is said by who enqueues, for memory of other libraries
/// alike.
pub(crate) fn open(ordinal: usize) -> Result<Arc<CudaContext>, DriverError> {
    let context = CudaContext::new(ordinal)?;
    without_events(&context);
    Ok(context)
}

/// The same of a context that another library has made.
pub(crate) fn without_events(context: &CudaContext) {
    // SAFETY: what uses memory on another stream than its own waits for an event first, and memory is freed in the order of its own stream, which
    // waits for the others' uses: `staged` says so for each, and the twin driver finds where it is not so.
    unsafe { context.disable_event_tracking() };
}

/// Bytes of each of a kernel's parameters, as the driver has them from its code. The driver must have the function.
pub(crate) fn parameter_sizes(function: &CudaFunction) -> Result<Vec<usize>, DriverError> {
    let mut sizes = Vec::new();
    let (mut offset, mut size) = (0, 0);
    loop {
        // SAFETY: the function is loaded, both numbers are written to, and the driver refuses a number beyond the last parameter.
        let answer = unsafe { sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), &raw mut offset, &raw mut size) };
        match answer.result() {
            Ok(()) => sizes.push(size),
            Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)) => return Ok(sizes),
            Err(error) => return Err(error),
        }
    }
}

/// What a GPU is, without a context on it: its name, its bytes of memory, and these attributes.
pub(crate) fn describe<const N: usize>(
    ordinal: i32,
    attributes: [sys::CUdevice_attribute; N],
) -> Result<(String, usize, [i32; N]), DriverError> {
    let device = result::device::get(ordinal)?;
    let name = result::device::get_name(device)?;
    // SAFETY: the driver has just given the device.
    let bytes = unsafe { result::device::total_mem(device)? };
    let mut values = [0; N];
    for (value, attribute) in values.iter_mut().zip(attributes) {
        // SAFETY: as above.
        *value = unsafe { result::device::get_attribute(device, attribute)? };
    }
    Ok((name, bytes, values))
}
