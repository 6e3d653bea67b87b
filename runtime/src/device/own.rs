//! Which GPU this process computes on, if it does. Must not know what is computed.

use super::choice::DeviceChoice;
use super::gpus::NoGpu;

impl DeviceChoice {
    /// Whether this process computes on a GPU, and on which of those that it sees: a number from 0 on, which
    /// `sardana_cuda::device::Device::open` takes. None on processors. A worker of an agent sees the one alone that was dealt to it.
    ///
    /// # Errors
    /// When it is to, and cannot.
    pub fn gpu(self) -> Result<Option<usize>, NoGpu> {
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => Ok(seen(self).ok().map(|_| 0)),
            Self::Cuda(asked) => {
                let (asked, found) = (asked.unwrap_or(0), seen(self)?);
                let number = usize::try_from(asked).ok().filter(|number| *number < found);
                number.map(Some).ok_or(NoGpu::Number { asked, found })
            }
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

/// Whether GPUs can be used, as far as this program can know: one that is built without cannot, and leaves it to its workers.
#[cfg(feature = "cuda")]
pub(super) fn usable(asked: DeviceChoice) -> Result<(), NoGpu> {
    seen(asked).map(|_| ())
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "the same with the feature")]
pub(super) const fn usable(_asked: DeviceChoice) -> Result<(), NoGpu> {
    Ok(())
}

/// How many GPUs this process sees: one or more.
#[cfg(feature = "cuda")]
fn seen(asked: DeviceChoice) -> Result<usize, NoGpu> {
    let driver = sardana_cuda::driver::Driver::of_this_machine();
    driver.map(|driver| driver.devices()).map_err(|absent| NoGpu::None {
        asked,
        reason: absent.to_string(),
    })
}

#[cfg(not(feature = "cuda"))]
const fn seen(asked: DeviceChoice) -> Result<usize, NoGpu> {
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
    }
}
