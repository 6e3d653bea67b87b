//! A network's tensors in a GPU's memory, where candle computes on one stream: that on which Sardana's kernels compute, too. So whatever is enqueued with a
//! tensor is done in the order in which it was, and nothing waits. Must not know what tensors are for.

use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::cudarc::driver::CudaStream;
use candle_core::cuda_backend::{
    CudaDType, set_gemm_reduced_precision_bf16, set_gemm_reduced_precision_f16, set_gemm_reduced_precision_f32,
};
use candle_core::{
    CpuStorage, CudaStorage, DType, Error, InplaceOp1, Layout, Result, Storage, Tensor, Var, WithDType, bail,
};
use sardana::fit::{DeviceChange, DeviceLook, DeviceNetwork, Values};
use sardana::model::{DeviceMemory, GradientWriter, ModelError};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Element, Moment, Stream, Transfer, Uploads, View, ViewMut};
use sardana_cuda::driver::Driver;
use sardana_cuda::gradient::WriteOnDevice;
#[cfg(feature = "nccl")]
use {sardana::model::Summation, sardana_cuda::summation::SumsByNccl};

use crate::candles_kernels;
use crate::part::Part;

/// All is done in order.
const ON: Stream = Stream::Compute;

/// Inputs and targets, of the batch that goes up and of the one before, whose gradient is computed.
const UPLOADS: usize = 4;

/// A GPU, with a network's tensors in its memory.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    candle: Arc<Candle>,
    device: Device,
    description: String,
    values: Vec<Var>,
    /// What is shown or changed on the host passes through it.
    transfer: Arc<Mutex<Transfer>>,
    /// What is found of batches does: it does not wait for a tensor of the state that is shown.
    found: Arc<Mutex<Transfer>>,
    /// Batches go up through it.
    uploads: Arc<Mutex<Uploads>>,
}

/// The GPU as candle has it.
#[derive(Debug)]
struct Candle {
    device: candle_core::Device,
    /// That of the device's computing, and of all that candle does.
    stream: Arc<CudaStream>,
}

impl Drop for Candle {
    fn drop(&mut self) {
        // Candle's code goes with its last tensor, and must stay until it has run. That the device has failed was said by then, or concerns no other code.
        let _ = self.stream.synchronize();
    }
}

impl Gpu {
    /// The GPU of this number, without tensors. In this process candle multiplies matrices of f32 in f32 from now on, and not in a shorter type.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        let driver = Driver::of_this_machine().map_err(Error::wrap)?;
        driver.require(ordinal).map_err(Error::wrap)?;
        candles_kernels::require_driver(driver.version())?;
        set_gemm_reduced_precision_f32(false);
        set_gemm_reduced_precision_f16(false);
        set_gemm_reduced_precision_bf16(false);
        // With a stream of its own: candle's other device has another one in each thread.
        let candle = candle_core::Device::new_cuda_with_stream(ordinal)?;
        let stream = candle.as_cuda_device()?.cuda_stream();
        candles_kernels::require_gpu(stream.context().compute_capability().map_err(Error::wrap)?)?;
        let device = Device::beside(Arc::clone(&stream)).map_err(Error::wrap)?;
        Ok(Self {
            candle: Arc::new(Candle { device: candle, stream }),
            description: format!(
                "{}, {}",
                device.description().map_err(Error::wrap)?,
                candles_kernels::description()
            ),
            transfer: Arc::new(Mutex::new(Transfer::new(&device).map_err(Error::wrap)?)),
            found: Arc::new(Mutex::new(Transfer::new(&device).map_err(Error::wrap)?)),
            uploads: Arc::new(Mutex::new(Uploads::new(&device, UPLOADS))),
            device,
            values: Vec::new(),
        })
    }

    /// As candle knows it.
    pub(crate) fn candle(&self) -> &candle_core::Device {
        &self.candle.device
    }

    /// As Sardana knows it.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    /// The network's tensors, which lie there.
    pub(crate) fn hold(&mut self, values: Vec<Var>) {
        self.values = values;
    }

    /// What it is, and with which kernels candle computes on it.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// What it takes of its memory: values, their gradients, and so many bytes for what passes through the network.
    pub(crate) fn memory(&self, passes: u64) -> DeviceMemory {
        let elements: usize = self.values.iter().map(|value| value.elem_count()).sum();
        let values = (2 * elements * size_of::<f32>()) as u64;
        self.device.worker_memory(values.saturating_add(passes))
    }

    /// Sums over GPUs by NCCL.
    #[cfg(feature = "nccl")]
    pub(crate) fn summation(&self) -> Arc<dyn Summation> {
        SumsByNccl::new(&self.device)
    }

    /// Writes a gradient, of one part for each tensor, from where candle has computed it, by a launch for all. What was found on the host goes there first, so
    /// that all lies in one place. What candle has made may be let go at once: that is done in the stream's order.
    pub(crate) fn write(&self, parts: &[Part], out: &mut GradientWriter<'_>) -> std::result::Result<(), ModelError> {
        let there = parts
            .iter()
            .map(|part| self.there(part))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let views = there
            .iter()
            .map(|part| part.view(&self.device))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let tensors: Vec<_> = views.into_iter().enumerate().collect();
        Ok(out.write_all_on_device(&tensors)?)
    }

    fn there<'a>(
        &self,
        part: &'a Part,
    ) -> std::result::Result<There<'a, impl Deref<Target = Storage> + use<'a>>, ModelError> {
        Ok(match part {
            Part::Computed(gradient) => {
                let (storage, layout) = gradient.storage_and_layout();
                There::Candles(storage, layout)
            }
            Part::Told(values) => There::Ours(DeviceTensor::from_slice(&self.device, ON, values)?),
            Part::Zeros(count) => There::Ours(DeviceTensor::zeros(&self.device, ON, *count)?),
        })
    }

    /// The values at this boundary, for any thread. What keeps them from being read is said when they are.
    pub(crate) fn values(&self) -> Box<dyn Values> {
        Box::new(Lent {
            ready: self.device.record(ON),
            gpu: self.clone(),
        })
    }

    /// A batch's tensor there: all is enqueued. One of another type than f32, f64, u32 and u8 goes up by candle, which waits for what is enqueued before it.
    pub(crate) fn up(&self, tensor: &Tensor) -> Result<Tensor> {
        let (tensor, dtype) = (&tensor.contiguous()?, tensor.dtype());
        if !tensor.device().is_cpu() {
            tensor.to_device(self.candle())
        } else if dtype == DType::F32 {
            self.up_as::<f32>(tensor)
        } else if dtype == DType::F64 {
            self.up_as::<f64>(tensor)
        } else if dtype == DType::U32 {
            self.up_as::<u32>(tensor)
        } else if dtype == DType::U8 {
            self.up_as::<u8>(tensor)
        } else {
            tensor.to_device(self.candle())
        }
    }

    fn up_as<T: WithDType + CudaDType + Element>(&self, tensor: &Tensor) -> Result<Tensor> {
        let there = Tensor::zeros(tensor.shape(), T::DTYPE, self.candle())?;
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(values) = &*storage else {
            bail!(
                "expected a batch in the host's memory, found one on {:?}",
                storage.device().location()
            )
        };
        let values = &values.as_slice::<T>()?[lying(layout)?];
        there.inplace_op1(&Upload { gpu: self, values })?;
        Ok(there)
    }

    /// For what is enqueued so far.
    pub(crate) fn reading(&self) -> Result<GpuReading> {
        Ok(GpuReading {
            ready: self.device.record(ON).map_err(Error::wrap)?,
            gpu: self.clone(),
        })
    }

    /// Copies a contiguous tensor down through `transfer` as it is at this moment, and waits until it is there.
    fn bring<T: CudaDType + Element>(
        &self,
        transfer: &Mutex<Transfer>,
        (tensor, ready): (&Tensor, &Moment),
        values: &mut [T],
    ) -> std::result::Result<(), ModelError> {
        let (storage, layout) = tensor.storage_and_layout();
        let view = seen(&self.device, &storage, layout)?;
        let mut transfer = locked(transfer);
        self.device.wait(Stream::Copies, ready)?;
        Ok(transfer.down(&view, values)?)
    }

    /// Lets `change` change all values of a tensor on the host: they come down, and go up again.
    pub(crate) fn change_here(&self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        self.change_there(tensor, &mut |mut values| {
            locked(&self.transfer).change(&mut values, |values| change(values))
        })
    }

    fn change_there(&self, tensor: usize, change: &mut DeviceChange<'_>) -> Result<()> {
        let (device, change) = (&self.device, RefCell::new(change));
        self.values[tensor].inplace_op1(&Change { device, change })
    }
}

impl DeviceNetwork for Gpu {
    fn device(&self) -> &Device {
        &self.device
    }

    fn look(&self, look: &mut DeviceLook<'_>) -> std::result::Result<(), ModelError> {
        let lying: Vec<_> = self.values.iter().map(|value| value.storage_and_layout()).collect();
        let views = lying
            .iter()
            .map(|(storage, layout)| seen(&self.device, storage, layout))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(look(&views)?)
    }

    fn change(&mut self, tensor: usize, change: &mut DeviceChange<'_>) -> std::result::Result<(), ModelError> {
        Ok(self.change_there(tensor, change)?)
    }
}

/// Where the elements of a tensor lie in its memory.
fn lying(layout: &Layout) -> Result<Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("expected a contiguous tensor, found strides {:?}", layout.stride()),
    }
}

fn elsewhere(found: &Storage) -> String {
    format!(
        "expected all tensors of the network on its GPU, found one on {:?}: make those that are not asked of the builder on `Builder::device`",
        found.device().location()
    )
}

/// A part of a gradient that lies on the GPU.
enum There<'a, S> {
    Candles(S, &'a Layout),
    Ours(DeviceTensor<f32>),
}

impl<S: Deref<Target = Storage>> There<'_, S> {
    fn view<'a>(&'a self, device: &'a Device) -> std::result::Result<View<'a, f32>, ModelError> {
        match self {
            Self::Candles(storage, layout) => seen(device, storage, layout),
            Self::Ours(tensor) => Ok(tensor.view()),
        }
    }
}

/// A contiguous tensor of candle, where it lies.
fn seen<'a, T: CudaDType + Element>(
    device: &'a Device,
    storage: &'a Storage,
    layout: &Layout,
) -> std::result::Result<View<'a, T>, ModelError> {
    let Storage::Cuda(there) = storage else {
        return Err(elsewhere(storage).into());
    };
    Ok(View::beside(device, there.as_cuda_slice::<T>()?, lying(layout)?)?)
}

/// Reads what was computed by this moment.
pub(crate) struct GpuReading {
    ready: Moment,
    gpu: Gpu,
}

impl GpuReading {
    /// A contiguous tensor, in the host's memory. One of another type than f32, f64 and u32 comes by candle, behind all that is enqueued.
    pub(crate) fn here(&self, tensor: &Tensor) -> Result<Tensor> {
        let dtype = tensor.dtype();
        if dtype == DType::F32 {
            self.down::<f32>(tensor)
        } else if dtype == DType::F64 {
            self.down::<f64>(tensor)
        } else if dtype == DType::U32 {
            self.down::<u32>(tensor)
        } else {
            tensor.to_device(&candle_core::Device::Cpu)
        }
    }

    fn down<T: WithDType + CudaDType + Element>(&self, tensor: &Tensor) -> Result<Tensor> {
        let mut values = vec![T::zero(); tensor.elem_count()];
        let brought = self.gpu.bring(&self.gpu.found, (tensor, &self.ready), &mut values);
        brought.map_err(Error::wrap)?;
        Tensor::from_vec(values, tensor.shape(), &candle_core::Device::Cpu)
    }
}

/// The values at one boundary.
struct Lent {
    ready: std::result::Result<Moment, DeviceError>,
    gpu: Gpu,
}

impl Values for Lent {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> std::result::Result<(), ModelError> {
        let tensor = &self.gpu.values[tensor];
        let mut values = vec![0.0_f32; tensor.elem_count()];
        let ready = self.ready.as_ref().map_err(Clone::clone)?;
        self.gpu.bring(&self.gpu.transfer, (tensor, ready), &mut values)?;
        see(&values);
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // They may be the last to have the tensors, and memory is freed on whatever thread this is.
        let context = self.gpu.candle.stream.context();
        context.record_err(context.bind_to_thread());
    }
}

/// Changes a tensor where it lies.
struct Change<'a> {
    device: &'a Device,
    change: RefCell<&'a mut DeviceChange<'a>>,
}

impl InplaceOp1 for Change<'_> {
    fn name(&self) -> &'static str {
        "update"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        bail!("expected a tensor on a GPU, found one in the host's memory")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        if storage.dtype() != DType::F32 {
            bail!("expected an f32 tensor, found {:?}", storage.dtype());
        }
        let Ok(mut change) = self.change.try_borrow_mut() else {
            bail!("expected a tensor to be changed once at a time");
        };
        let values = ViewMut::beside(self.device, storage.as_cuda_slice_mut()?, lying(layout)?).map_err(Error::wrap)?;
        change(values).map_err(Error::wrap)
    }
}

/// Fills a tensor with values of the host's.
struct Upload<'a, T> {
    gpu: &'a Gpu,
    values: &'a [T],
}

impl<T: CudaDType + Element> InplaceOp1 for Upload<'_, T> {
    fn name(&self) -> &'static str {
        "upload"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        bail!("expected a tensor on a GPU, found one in the host's memory")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let memory = storage.as_cuda_slice_mut::<T>()?;
        let mut there = ViewMut::beside(&self.gpu.device, memory, lying(layout)?).map_err(Error::wrap)?;
        let mut uploads = locked(&self.gpu.uploads);
        uploads.up(ON, self.values, &mut there).map_err(Error::wrap)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Neither holds a value between two calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
