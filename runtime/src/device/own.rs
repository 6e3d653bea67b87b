//! Which GPU this process computes on, if it does. Must not know what is computed.

use std::sync::Once;

use sardana_actors::agent::BUNDLE_VARIABLE;
#[cfg(feature = "cuda")]
use sardana_cuda::driver::{Absent, Driver};

use super::choice::DeviceChoice;
use super::gpus::{GPUS_VARIABLE, NoGpu, named};

impl DeviceChoice {
    /// Whether this process computes on a GPU, and on which of those that it sees: a number from 0 on, which
    /// `sardana_cuda::device::Device::open` takes. None on processors. A worker of an agent sees the one alone that was dealt to it.
    ///
    /// # Errors
    /// When it is to, and cannot.
    pub fn gpu(self) -> Result<Option<usize>, NoGpu> {
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => Ok(first(self).map_err(|none| warn_if_given(&none)).ok()),
            Self::Cuda(None) => first(self).map(Some),
            Self::Cuda(Some(number)) => numbered(self, number).map(Some),
        }
    }

    /// Whether this process, or workers that it starts, can compute on that: asked before anything is read for it. Which number a GPU has is for what deals them out.
    ///
    /// # Errors
    /// When it is to be a GPU, and none can be used.
    pub fn require(self) -> Result<(), NoGpu> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(_) => first(self).map(|_| ()),
        }
    }

    /// For a program whose model is plain Rust: processors, where that may be.
    ///
    /// # Errors
    /// When it is to compute on a GPU, which it cannot, on any machine.
    pub const fn on_processors(self) -> Result<Self, NoGpu> {
        match self {
            Self::Auto | Self::Cpu => Ok(Self::Cpu),
            Self::Cuda(_) => Err(NoGpu::Processors(self)),
        }
    }
}

/// A worker that was given a GPU and was not told to use it computes on processors. A person who reads that it has one is to know why.
fn warn_if_given(none: &NoGpu) {
    static ONCE: Once = Once::new();
    let given = || std::env::var_os(GPUS_VARIABLE).and_then(|gpus| named(gpus).ok());
    if std::env::var_os(BUNDLE_VARIABLE).is_some() && given().is_some_and(|gpus| !gpus.is_empty()) {
        ONCE.call_once(|| tracing::warn!(target: "sardana::event::device", reason = %none, "this worker was given a GPU, and computes on processors"));
    }
}

/// Whether GPUs can be used, as far as this program can know: one that is built without cannot, and leaves it to its workers.
#[cfg(feature = "cuda")]
pub(super) fn usable(asked: DeviceChoice) -> Result<(), NoGpu> {
    first(asked).map(|_| ())
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "the same with the feature")]
pub(super) const fn usable(_asked: DeviceChoice) -> Result<(), NoGpu> {
    Ok(())
}

/// The first GPU that this process sees and can use.
#[cfg(feature = "cuda")]
fn first(asked: DeviceChoice) -> Result<usize, NoGpu> {
    let found = Driver::of_this_machine().and_then(|driver| driver.first());
    found.map_err(|absent| none(asked, &absent))
}

/// The GPU of this number.
#[cfg(feature = "cuda")]
fn numbered(asked: DeviceChoice, number: u32) -> Result<usize, NoGpu> {
    let driver = Driver::of_this_machine().map_err(|absent| none(asked, &absent))?;
    let (found, ordinal) = (driver.devices(), usize::try_from(number).unwrap_or(usize::MAX));
    match driver.require(ordinal) {
        Ok(()) => Ok(ordinal),
        Err(Absent::Ordinal { .. }) => Err(NoGpu::Number { asked: number, found }),
        Err(absent) => Err(none(asked, &absent)),
    }
}

#[cfg(feature = "cuda")]
fn none(asked: DeviceChoice, absent: &Absent) -> NoGpu {
    NoGpu::None {
        asked,
        reason: absent.to_string(),
    }
}

#[cfg(not(feature = "cuda"))]
const fn first(asked: DeviceChoice) -> Result<usize, NoGpu> {
    Err(NoGpu::NotBuilt(asked))
}

#[cfg(not(feature = "cuda"))]
const fn numbered(asked: DeviceChoice, _: u32) -> Result<usize, NoGpu> {
    Err(NoGpu::NotBuilt(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_computes_on_processors_alone_refuses_a_gpu() {
        for accepted in [DeviceChoice::Auto, DeviceChoice::Cpu] {
            assert_eq!(accepted.on_processors(), Ok(DeviceChoice::Cpu));
        }
        for refused in [DeviceChoice::Cuda(None), DeviceChoice::Cuda(Some(1))] {
            assert_eq!(refused.on_processors(), Err(NoGpu::Processors(refused)));
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_program_that_was_built_without_computes_on_processors_or_says_so() {
        assert_eq!(DeviceChoice::Auto.gpu(), Ok(None));
        assert_eq!(DeviceChoice::Cpu.gpu(), Ok(None));
        let cuda = DeviceChoice::Cuda(Some(1));
        assert_eq!(cuda.gpu(), Err(NoGpu::NotBuilt(cuda)));
        assert_eq!(cuda.require(), Err(NoGpu::NotBuilt(cuda)));
        assert_eq!(DeviceChoice::Auto.require(), Ok(()));
    }
}
