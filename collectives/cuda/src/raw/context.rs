//! A GPU's context and what is known of it. Must not know what is computed there.

use std::ffi::{CStr, CString};
use std::ptr;
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
    // waits for the others' uses, or once the host has waited for them: `gradient` does so for each, and the twin driver finds where it is not so.
    unsafe { context.disable_event_tracking() };
}

/// Does this at the end of a value, also where the context has noted an error, which it would return in place of doing anything. What it notes, the next
/// call on it says: the first error.
pub(crate) fn whatever_was_noted(context: &CudaContext, end: impl FnOnce() -> Result<(), DriverError>) {
    let noted = context.check_err();
    context.record_err(end());
    context.record_err(noted);
}

/// Bytes of what the driver's translator of PTX is let say.
const LOG_BYTES: usize = 16 << 10;

/// What the driver's translator says of PTX that it does not take. None where it takes it, or says nothing.
pub(crate) fn why_refused(context: &CudaContext, ptx: &str) -> Result<Option<String>, DriverError> {
    context.bind_to_thread()?;
    let Ok(ptx) = CString::new(ptx) else { return Ok(None) };
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = ptr::null_mut();
    // SAFETY: the text ends with a zero, each option has its value, and the log is as long as is said.
    let answer = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            ptx.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if answer.result().is_ok() {
        // SAFETY: it was just loaded, and nothing runs of it.
        unsafe { result::module::unload(module)? };
        return Ok(None);
    }
    let text = CStr::from_bytes_until_nul(&log).map(|text| text.to_string_lossy().trim().to_owned());
    Ok(text.ok().filter(|text| !text.is_empty()))
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

/// Whether the event's stream has come to where it was recorded.
pub(crate) fn has_come(event: &cudarc::driver::CudaEvent) -> Result<bool, DriverError> {
    event.context().bind_to_thread()?;
    // SAFETY: the event is alive as long as it is lent.
    let answer = unsafe { sys::cuEventQuery(event.cu_event()) };
    match answer.result() {
        Ok(()) => Ok(true),
        Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The 16 bytes that no other GPU, or instance of one, has.
#[cfg(feature = "nccl")]
pub(crate) fn unique_id(context: &CudaContext) -> Result<[u8; 16], DriverError> {
    let mut id = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the device is that of a context which is alive, and the id is written to.
    unsafe { sys::cuDeviceGetUuid_v2(&raw mut id, context.cu_device()) }.result()?;
    Ok(id.bytes.map(|byte| byte as u8))
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
