//! Where a gradient that is exchanged lies, and where its sum is wanted: in this process's memory, or in a GPU's. Must not know what is measured.

use sardana::device::DeviceChoice;
use sardana::model::{DeviceMemory, GradientWriter, Mean, ModelError};

#[cfg(feature = "cuda")]
use sardana_cuda::device::{Device, DeviceTensor, Stream};
#[cfg(feature = "cuda")]
use sardana_cuda::gradient::{MeanOnDevice, SumRoom, WriteOnDevice};

/// A gradient whose elements are all 1.
pub(super) enum Lying {
    Host(Vec<f32>),
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

/// On the GPU that this worker was dealt.
#[cfg(feature = "cuda")]
pub(super) struct OnGpu {
    device: Device,
    description: String,
    values: DeviceTensor<f32>,
    /// Where the sum is for an update.
    room: SumRoom,
}

impl Lying {
    pub(super) fn new(elements: usize, choice: DeviceChoice) -> Result<Self, ModelError> {
        let ones = vec![1.0; elements];
        match choice.gpu()? {
            None => Ok(Self::Host(ones)),
            #[cfg(feature = "cuda")]
            Some(ordinal) => {
                let device = Device::open(ordinal)?;
                Ok(Self::Gpu(Box::new(OnGpu {
                    description: device.description()?,
                    values: DeviceTensor::from_slice(&device, Stream::Compute, &ones)?,
                    room: SumRoom::new(&device)?,
                    device,
                })))
            }
            #[cfg(not(feature = "cuda"))]
            Some(_) => Ok(Self::Host(ones)),
        }
    }

    pub(super) fn elements(&self) -> usize {
        match self {
            Self::Host(values) => values.len(),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.values.len(),
        }
    }

    /// As [`sardana::model::Trainable::device`] says.
    pub(super) fn device(&self) -> String {
        match self {
            Self::Host(_) => "cpu".to_owned(),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.description.clone(),
        }
    }

    /// As [`sardana::model::Trainable::device_memory`] says: the values, and the sum.
    pub(super) fn memory(&self) -> Option<DeviceMemory> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => Some(gpu.device.worker_memory(2 * (gpu.values.len() * size_of::<f32>()) as u64)),
        }
    }

    /// Writes it as the first tensor.
    pub(super) fn write(&self, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        match self {
            Self::Host(values) => out.write_f32(0, values)?,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => out.write_device(0, &gpu.values.view())?,
        }
        Ok(())
    }

    /// Has the sum where an update would take it.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "it is there already"))]
    pub(super) fn take(&mut self, mean: &Mean<'_>) -> Result<(), ModelError> {
        match self {
            Self::Host(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => {
                mean.device_sum(&mut gpu.room)?;
                Ok(gpu.device.synchronize()?)
            }
        }
    }
}
