//! All that the compiler cannot check: libraries opened when the program runs, memory given by its address, kernels given their arguments by
//! theirs. The rest of the crate is safe code over this. Must not know which kernels there are, nor why anything is copied.

#![expect(unsafe_code, reason = "a driver is called through its C interface")]

pub(crate) mod context;
pub(crate) mod dlpack;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod memory;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
pub(crate) mod nvml;
pub(crate) mod nvrtc;
pub(crate) mod pinned;
pub(crate) mod registered;
