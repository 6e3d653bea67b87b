//! Why something was not measured on a GPU: what was expected, what was found, what to do. Must not know how anything is measured.

use std::fmt;

use sardana_collectives::gradient::{GradientError, ResidentError};
use sardana_collectives::ring::RingError;
use sardana_cuda::device::DeviceError;
use sardana_cuda::gradient::OnDeviceError;

use super::super::sizes::words;

/// Why nothing, or not all, was measured.
#[derive(Debug)]
pub(super) enum NotMeasured {
    Device(DeviceError),
    Gradient(OnDeviceError),
    Resident(ResidentError),
    Ring(RingError),
    /// The other workers of a step have failed, and say why.
    GivenUp,
    Room {
        of: &'static str,
        needed: u64,
        left: u64,
    },
    /// What was done is not what was to be measured.
    Wrong {
        what: &'static str,
        expected: f64,
        found: Vec<f64>,
    },
}

impl From<DeviceError> for NotMeasured {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<OnDeviceError> for NotMeasured {
    fn from(error: OnDeviceError) -> Self {
        Self::Gradient(error)
    }
}

impl From<GradientError> for NotMeasured {
    fn from(error: GradientError) -> Self {
        Self::Gradient(error.into())
    }
}

impl From<ResidentError> for NotMeasured {
    fn from(error: ResidentError) -> Self {
        Self::Resident(error)
    }
}

impl From<RingError> for NotMeasured {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(formatter),
            Self::Gradient(error) => error.fmt(formatter),
            Self::Resident(error) => error.fmt(formatter),
            Self::Ring(error) => error.fmt(formatter),
            Self::GivenUp => formatter.write_str("expected a step of all workers, found that another one has failed in it"),
            Self::Room { of, needed, left } => write!(
                formatter,
                "expected {} of {of}, found that {} are left: give a smaller --size",
                words(*needed),
                words(*left)
            ),
            Self::Wrong { what, expected, found } => {
                let some = &found[..found.len().min(4)];
                write!(
                    formatter,
                    "expected {what} of {expected} everywhere, found {some:?}: the GPU, or the program, is wrong; `gpu_check` compares each kernel"
                )
            }
        }
    }
}

pub(super) type Measured<T> = Result<T, NotMeasured>;
