//! What others than the kernels of the table need of a device: code loaded and functions looked up, a stream, the thread's context. Must not know what they
//! compute.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaFunction, CudaModule, DriverError};
use cudarc::nvrtc::Ptx;

use super::{Device, DeviceError, name_of};
use crate::raw::context;

/// What the driver refuses while the device is of use as before: CUDA's code, and its name for it.
pub(crate) type Refusal = (u32, String);

/// A function, and the bytes of each of its parameters if the driver tells them.
pub(crate) type Function = (CudaFunction, Option<Vec<usize>>);

impl Device {
    /// Its compute capability, as in 90 for 9.0.
    pub(crate) fn capability(&self) -> Result<u32, DeviceError> {
        let (major, minor) = self.call("say what it is", || self.0.context.compute_capability())?;
        Ok(10 * u32::try_from(major).unwrap_or(0) + u32::try_from(minor).unwrap_or(0))
    }

    /// Makes its context that of this thread.
    #[cfg(feature = "nccl")]
    pub(crate) fn bind(&self) -> Result<(), DeviceError> {
        self.call("be of use", || self.0.context.bind_to_thread())
    }

    /// The 16 bytes that no other GPU, or instance of one, has.
    #[cfg(feature = "nccl")]
    pub(crate) fn unique_id(&self) -> Result<[u8; 16], DeviceError> {
        self.call("say which one it is", || context::unique_id(&self.0.context))
    }

    /// Whether a stream has come to `moment`. The host does not wait.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn has_come(&self, moment: &super::Moment) -> Result<bool, DeviceError> {
        self.call("look for a moment", || context::has_come(&moment.0))
    }

    /// The driver's stream.
    #[cfg(feature = "nccl")]
    pub(crate) fn raw_stream(&self, stream: super::Stream) -> &cudarc::driver::CudaStream {
        self.stream(stream)
    }

    /// Makes code of PTX, which has no zero byte.
    pub(crate) fn load(&self, ptx: &str) -> Result<Result<Arc<CudaModule>, Refusal>, DeviceError> {
        self.unless_refused(|| self.0.context.load_module(Ptx::from_src(ptx)))
    }

    /// What the driver's translator says of PTX that it has refused, if it says anything.
    pub(crate) fn why_refused(&self, ptx: &str) -> Result<Option<String>, DeviceError> {
        self.call("be of use", || context::why_refused(&self.0.context, ptx))
    }

    /// A function of a module.
    pub(crate) fn function(&self, module: &Arc<CudaModule>, name: &str) -> Result<Result<Function, Refusal>, DeviceError> {
        let tells = self.0.driver.tells_parameter_sizes();
        self.unless_refused(|| {
            let function = module.load_function(name)?;
            let sizes = tells.then(|| context::parameter_sizes(&function)).transpose()?;
            Ok((function, sizes))
        })
    }

    fn unless_refused<T>(&self, call: impl FnOnce() -> Result<T, DriverError>) -> Result<Result<T, Refusal>, DeviceError> {
        self.call("load kernels", || match call() {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(error) if is_refusal(error.0) => Ok(Err(refusal(error))),
            Err(error) => Err(error),
        })
    }
}

/// Whether the code says something of what was to be loaded. Others say that something has failed before.
const fn is_refusal(code: CUresult) -> bool {
    use CUresult as Code;
    matches!(
        code,
        Code::CUDA_ERROR_INVALID_VALUE
            | Code::CUDA_ERROR_OUT_OF_MEMORY
            | Code::CUDA_ERROR_INVALID_IMAGE
            | Code::CUDA_ERROR_NO_BINARY_FOR_GPU
            | Code::CUDA_ERROR_INVALID_PTX
            | Code::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | Code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | Code::CUDA_ERROR_JIT_COMPILATION_DISABLED
            | Code::CUDA_ERROR_INVALID_SOURCE
            | Code::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
            | Code::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
            | Code::CUDA_ERROR_NOT_FOUND
    )
}

pub(super) fn refusal(error: DriverError) -> Refusal {
    (error.0 as u32, name_of(error))
}
