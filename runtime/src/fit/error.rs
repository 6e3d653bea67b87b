//! What is wrong with a fit, before it begins.

use crate::data::{DataError, DataPart};
use crate::optim::OptimError;
use crate::schedule::ScheduleError;

/// Why a fit cannot begin. Fix the setting named.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// Nothing to train on.
    #[error("a fit needs samples: set .data(loader)")]
    NoData,
    /// Nothing to train with.
    #[error("a fit needs an optimizer and a learning rate: set .optimizer(Adam::new(), 0.001), for example")]
    NoOptimizer,
    /// An optimizer's constant is out of its range.
    #[error(transparent)]
    Optimizer(#[from] OptimError),
    /// A schedule's constant is out of its range.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The optimizer remembers more of each value than there is room for.
    #[error("expected an optimizer with at most {most} slots, found {found}: implement `Trainable` for it")]
    Slots {
        /// How many there may be.
        most: usize,
        /// How many there are.
        found: usize,
    },
    /// The optimizer names an update on devices that has other slots than it has itself.
    #[error(
        "expected an optimizer with as many slots as its update on devices has, {expected}, found {found}: correct `device_update`"
    )]
    DeviceSlots {
        /// As many as that update has.
        expected: usize,
        /// As many as the optimizer has.
        found: usize,
    },
    /// What the optimizer remembers has no place on the device, or that has failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] sardana_cuda::device::DeviceError),
    /// The bound of the gradient's norm.
    #[error("expected a norm above 0 to clip gradients to, found {0}: set .clip_norm(1.0), for example, or leave it out")]
    ClipNorm(f64),
    /// The weight decay.
    #[error("expected a weight decay from 0 to below 1, found {0}: set .decay(0.0001), for example, or leave it out")]
    Decay(f64),
    /// The job is for other data than the loader has.
    #[error(
        "expected {expected} samples to train on, as the job says, found {found}; describe the job with .train(&data, batch)"
    )]
    Samples {
        /// As the job says.
        expected: u64,
        /// As the data set has.
        found: u64,
    },
    /// The loader's data are others than the job was described with.
    #[error(
        "the loader's data differ from those that the job was described with: expected {expected}, found {found}; give both the same data \
         set, with all that is done to its samples"
    )]
    OtherData {
        /// The part that differs, as the job has it.
        expected: String,
        /// As the loader has it.
        found: String,
    },
    /// A network says that its tensors lie on a GPU for reading alone, or for changing alone: let it say both.
    #[error(
        "expected a network whose `on_device` and `on_device_mut` both give it, or neither does, found that one does; a network of which neither does is updated on the host"
    )]
    HalfOnDevice,
    /// There is nothing to measure by.
    #[error("expected at least one held-out sample, found none: leave out .held_out(…), or hold out some")]
    NothingHeldOut,
    /// The data cannot be read for their fingerprint.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl FitError {
    pub(super) fn other_data(expected: Option<&DataPart>, found: Option<&DataPart>) -> Self {
        let words = |part: Option<&DataPart>| match part {
            Some(part) => format!("{} with hash {}", part.name, part.hash),
            None => "nothing more".to_owned(),
        };
        Self::OtherData {
            expected: words(expected),
            found: words(found),
        }
    }
}
