//! Where a network's tensors lie, and what computes with them: processors, or with the feature `cuda` a GPU. Must not know what they are for.

use std::sync::Arc;

use candle_core::{Device, Error, Result, Tensor, Var, bail};
use sardana::device::DeviceChoice;
use sardana::fit::Values;
use sardana::model::{DeviceMemory, GradientWriter, ModelError, Summation};

use crate::on_host;
use crate::part::Part;

#[cfg(feature = "cuda")]
use crate::on_gpu::{Gpu, GpuReading};

/// The version of candle that this is built for, which decides bits: a test compares it with the one that is built with.
#[cfg(any(test, feature = "cuda"))]
pub(crate) const CANDLE: &str = "0.11.1";

/// What a network's tensors lie on, with the tensors once they are made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In this process's memory.
    Host(Vec<Var>),
    /// In a GPU's.
    #[cfg(feature = "cuda")]
    Gpu(Box<Gpu>),
}

impl Place {
    /// What `choice` says, without tensors.
    ///
    /// # Errors
    /// When that is a GPU which cannot be used.
    pub(crate) fn of(choice: DeviceChoice) -> Result<Self> {
        let found = choice.gpu().map_err(Error::wrap)?;
        match number(choice, found, cfg!(feature = "cuda"))? {
            None => Ok(Self::Host(Vec::new())),
            #[cfg(feature = "cuda")]
            Some(ordinal) => Ok(Self::Gpu(Box::new(Gpu::open(ordinal)?))),
            #[cfg(not(feature = "cuda"))]
            Some(_) => Ok(Self::Host(Vec::new())),
        }
    }

    /// As candle knows it.
    pub(crate) fn candle(&self) -> Device {
        match self {
            Self::Host(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.candle().clone(),
        }
    }

    /// The network's tensors, which were made on it.
    pub(crate) fn hold(&mut self, made: Vec<Var>) {
        match self {
            Self::Host(values) => *values = made,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.hold(made),
        }
    }

    /// As [`Network::device`](sardana::fit::Network::device) says.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Host(_) => "cpu".to_owned(),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => format!("{}, candle {CANDLE}", gpu.description()),
        }
    }

    /// As [`Network::device_memory`](sardana::fit::Network::device_memory) says; so many bytes are for what passes through the network.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(unused_variables, reason = "the host's memory is not counted here")
    )]
    pub(crate) fn memory(&self, passes: u64) -> Option<DeviceMemory> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => Some(gpu.memory(passes)),
        }
    }

    /// What can sum gradients where they lie there, if anything can.
    pub(crate) fn summation(&self) -> Option<Arc<dyn Summation>> {
        match self {
            Self::Host(_) => None,
            #[cfg(all(feature = "cuda", feature = "nccl"))]
            Self::Gpu(gpu) => Some(gpu.summation()),
            #[cfg(all(feature = "cuda", not(feature = "nccl")))]
            Self::Gpu(_) => None,
        }
    }

    /// Writes a gradient, of one part for each tensor.
    pub(crate) fn write(&self, parts: &[Part], out: &mut GradientWriter<'_>) -> std::result::Result<(), ModelError> {
        match self {
            Self::Host(_) => on_host::write(parts, out),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.write(parts, out),
        }
    }

    /// A batch's tensor, which is in this process's memory, on it. Nothing is waited for.
    pub(crate) fn up(&self, tensor: Tensor) -> Result<Tensor> {
        match self {
            Self::Host(_) => Ok(tensor),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.up(&tensor),
        }
    }

    /// For tensors of which all is enqueued.
    pub(crate) fn reading(&self) -> Result<Reading> {
        match self {
            Self::Host(_) => Ok(Reading::Here),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => Ok(Reading::There(gpu.reading()?)),
        }
    }

    /// As [`Network::values`](sardana::fit::Network::values).
    pub(crate) fn values(&self) -> Box<dyn Values> {
        match self {
            Self::Host(values) => Box::new(on_host::Shared(values.clone())),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.values(),
        }
    }

    /// As [`Network::change`](sardana::fit::Network::change).
    pub(crate) fn change(&self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        match self {
            Self::Host(values) => on_host::change(&values[tensor], change),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.change_here(tensor, change),
        }
    }
}

/// Reads what was enqueued so far, without waiting for what is enqueued later.
pub(crate) enum Reading {
    /// It is in this process's memory.
    Here,
    /// It is, or will be, in a GPU's.
    #[cfg(feature = "cuda")]
    There(GpuReading),
}

impl Reading {
    /// Whether nothing has to be waited for.
    pub(crate) const fn is_at_once(&self) -> bool {
        match self {
            Self::Here => true,
            #[cfg(feature = "cuda")]
            Self::There(_) => false,
        }
    }

    /// A contiguous tensor, in this process's memory.
    pub(crate) fn here(&self, tensor: &Tensor) -> Result<Tensor> {
        match self {
            Self::Here => Ok(tensor.clone()),
            #[cfg(feature = "cuda")]
            Self::There(reading) => reading.here(tensor),
        }
    }
}

/// Which GPU to use, if any: `found` by the choice, in a program whose candle `has_gpus` or has not.
fn number(choice: DeviceChoice, found: Option<usize>, has_gpus: bool) -> Result<Option<usize>> {
    match (found, choice) {
        (None, _) => Ok(None),
        (Some(number), _) if has_gpus => Ok(Some(number)),
        (Some(_), DeviceChoice::Auto | DeviceChoice::Cpu) => Ok(None),
        (Some(_), DeviceChoice::Cuda(_)) => bail!(
            "expected a program whose candle computes on GPUs, for the device `{choice}`; found one that is built without: build it with the \
             feature `cuda` of sardana-candle, for which nvcc is needed, or compute on processors with `--device cpu`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_used_where_candle_can_and_refused_only_if_it_was_asked_for() {
        let (auto, cpu, cuda) = (DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda(None));
        for choice in [auto, cuda, DeviceChoice::Cuda(Some(3))] {
            assert_eq!(number(choice, Some(3), true).unwrap(), Some(3));
        }
        for has_gpus in [false, true] {
            assert_eq!(number(auto, None, has_gpus).unwrap(), None);
            assert_eq!(number(cpu, None, has_gpus).unwrap(), None);
        }
        assert_eq!(number(auto, Some(0), false).unwrap(), None);
        let refusal = number(DeviceChoice::Cuda(Some(1)), Some(1), false).unwrap_err().to_string();
        assert!(
            refusal.starts_with("expected a program whose candle computes on GPUs, for the device `cuda:1`")
                && refusal.contains("built without: build it with the feature `cuda`"),
            "{refusal}"
        );
    }

    #[test]
    fn processors_need_nothing() {
        let place = Place::of(DeviceChoice::Cpu).unwrap();
        assert!(place.candle().is_cpu());
        assert_eq!((&*place.describe(), place.memory(1 << 20)), ("cpu", None));
    }

    #[test]
    fn the_version_of_candle_is_the_one_that_is_built_with() {
        let locked = include_str!("../../../Cargo.lock");
        for name in ["candle-core", "candle-nn", "candle-kernels"] {
            let entry = format!("name = \"{name}\"\nversion = \"{CANDLE}\"\n");
            assert!(locked.contains(&entry), "{name} is of another version: correct `CANDLE`");
        }
    }
}
