//! Why a job's gradients are not summed by NCCL: what was expected, what was found, what to do. Must not know what is summed.

use thiserror::Error;

use crate::device::DeviceError;
use crate::nccl::NcclError;

/// Why a rank cannot sum by NCCL. The links of its generation sum then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SumError {
    /// Its gradients are not of one type.
    #[error(
        "expected a gradient whose tensors are all f32 or all f64, and not empty, for sums by NCCL, found another; make them of one type"
    )]
    Types,
    /// A gradient lies on another device.
    #[error("expected gradients on the GPU that sums, found one elsewhere; compute them all on the device that sums")]
    Elsewhere,
    /// The generation was given up.
    #[error("expected the other ranks, found that their generation is given up; the next one sums")]
    GivenUp,
    /// NCCL cannot.
    #[error(transparent)]
    Nccl(#[from] NcclError),
    /// The device has failed, or has no memory left.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
