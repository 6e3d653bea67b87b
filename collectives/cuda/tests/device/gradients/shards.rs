//! Gradients of made-up shards, written here and on a device, and read as a ring reads them.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use sardana_collectives::gradient::{GradientBuffer, GradientView, GradientWriter, ResidentError, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream};
use sardana_cuda::gradient::{GradientElement, OnDeviceError, WriteOnDevice};
use sardana_protocol::state::{Dtype, TensorSpec};

use crate::numbers::{Any, Numbers};

/// How one tensor of a shard is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The host's memory.
    Host,
    /// A device's.
    Device,
}

/// One shard's gradient: none if it is empty.
pub(crate) type Shard = Option<Vec<From>>;

/// Gradients that are written to one buffer one after the other, and added to one another.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Of each tensor its elements, and whether they are f64.
    pub(crate) tensors: Vec<(usize, bool)>,
    pub(crate) shards: Vec<Shard>,
    /// Whether a shard's tensors of one type are written from the device all at once.
    pub(crate) at_once: bool,
    pub(crate) seed: u64,
}

impl Case {
    /// Any tensors and shards. What the first shard leaves on the device is left there by the others.
    pub(crate) fn any(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut below = |bound: u64| numbers.below(bound) as usize;
        let tensors: Vec<_> = (0..1 + below(4)).map(|_| (below(60), below(3) == 0)).collect();
        let first: Vec<From> = tensors
            .iter()
            .map(|_| if below(3) == 0 { From::Host } else { From::Device })
            .collect();
        let shards = (0..1 + below(3)).map(|number| {
            let later = |from: &From| match from {
                From::Host if below(2) == 0 => From::Host,
                From::Host | From::Device => From::Device,
            };
            if number == 0 {
                Some(first.clone())
            } else {
                Some(first.iter().map(later).collect())
            }
        });
        let mut shards: Vec<Shard> = shards.collect();
        if shards.len() > 1 && below(3) == 0 {
            shards.push(None);
        }
        let at_once = below(2) == 0;
        Self {
            tensors,
            shards,
            at_once,
            seed,
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        let spec = |(number, &(length, wide)): (usize, &(usize, bool))| {
            let dtype = if wide { Dtype::F64 } else { Dtype::F32 };
            TensorSpec::new(number.to_string(), dtype, &[length])
        };
        Layout::new(self.tensors.iter().enumerate().map(spec).collect(), 1).unwrap()
    }

    /// Bytes of the tensors that the first shard leaves on the device.
    pub(crate) fn kept(&self) -> u64 {
        let first = self.shards[0].as_deref().unwrap_or_default();
        let kept = self.tensors.iter().zip(first).filter(|(_, from)| **from == From::Device);
        kept.map(|(tensor, _)| bytes(tensor)).sum()
    }

    /// Bytes of the tensors that are written from a device, for each time.
    pub(crate) fn written_from_a_device(&self) -> u64 {
        let all = self.shards.iter().flatten();
        let all = all.flat_map(|shard| self.tensors.iter().zip(shard));
        all.filter(|(_, from)| **from == From::Device)
            .map(|(tensor, _)| bytes(tensor))
            .sum()
    }

    /// Writes all shards, from where each comes; everything from the host if there is no device.
    pub(crate) fn write(
        &self,
        buffer: &mut GradientBuffer,
        layout: &Layout,
        device: Option<&Device>,
    ) -> Result<(), Box<dyn Error>> {
        let mut numbers = self.numbers();
        for (number, shard) in self.shards.iter().enumerate() {
            let mode = if number == 0 { WriteMode::Store } else { WriteMode::Add };
            let mut writer = buffer.writer(layout, mode);
            let Some(froms) = shard else {
                writer.zero()?;
                continue;
            };
            self.write_shard((number, froms), &mut numbers, &mut writer, device)?;
            writer.auxiliary(0, number as f64)?;
            writer.finish()?;
        }
        Ok(())
    }

    /// What the shards' values are drawn from, one after the other.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers::new(self.seed ^ 0x5eed)
    }

    /// Writes the tensors of one shard that is not empty, and its number of samples.
    pub(crate) fn write_shard(
        &self,
        (number, froms): (usize, &[From]),
        numbers: &mut Numbers,
        writer: &mut GradientWriter<'_>,
        device: Option<&Device>,
    ) -> Result<(), Box<dyn Error>> {
        let (mut f32s, mut f64s) = (AtOnce::<f32>::default(), AtOnce::<f64>::default());
        for (tensor, (&(length, wide), from)) in self.tensors.iter().zip(froms).enumerate() {
            let device = device.filter(|_| *from == From::Device);
            match (wide, device.filter(|_| self.at_once)) {
                (true, None) => put::<f64>(writer, tensor, &numbers.all(length), device)?,
                (false, None) => put::<f32>(writer, tensor, &numbers.all(length), device)?,
                (true, Some(device)) => f64s.compute(device, tensor, &numbers.all(length))?,
                (false, Some(device)) => f32s.compute(device, tensor, &numbers.all(length))?,
            }
        }
        f32s.put(writer)?;
        f64s.put(writer)?;
        writer.samples(1 + number as u64)?;
        Ok(())
    }

    /// What it is without a device.
    pub(crate) fn expected(&self) -> Vec<u8> {
        let layout = self.layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        self.write(&mut buffer, &layout, None).unwrap();
        buffer.bytes().to_vec()
    }
}

const fn bytes(&(length, wide): &(usize, bool)) -> u64 {
    length as u64 * if wide { 8 } else { 4 }
}

/// Writes a tensor that a kernel on the stream of computing leaves behind; it is freed at once, in the order of that stream.
fn put<T: GradientElement + Any>(
    writer: &mut GradientWriter<'_>,
    tensor: usize,
    values: &[T],
    device: Option<&Device>,
) -> Result<(), OnDeviceError> {
    let Some(device) = device else {
        let mut place = writer.place(tensor, T::DTYPE, values.len())?;
        place.write_next(bytemuck::cast_slice(values));
        return Ok(());
    };
    writer.write_device(tensor, &computed(device, values)?.view())
}

/// A tensor that a kernel on the stream of computing leaves behind.
pub(crate) fn computed<T: GradientElement>(device: &Device, values: &[T]) -> Result<DeviceTensor<T>, DeviceError> {
    let given = DeviceTensor::from_slice(device, Stream::Compute, values)?;
    let mut computed = DeviceTensor::unset(device, Stream::Compute, values.len())?;
    let on = device.on(Stream::Compute);
    on.sum_into::<T>(&mut computed.view_mut(), &given.view(), &[])?;
    Ok(computed)
}

/// Tensors of one type, by their numbers, that are written all at once.
struct AtOnce<T>(Vec<(usize, DeviceTensor<T>)>);

impl<T> Default for AtOnce<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: GradientElement> AtOnce<T> {
    fn compute(&mut self, device: &Device, tensor: usize, values: &[T]) -> Result<(), DeviceError> {
        self.0.push((tensor, computed(device, values)?));
        Ok(())
    }

    /// They are freed at once, in the order of the stream of computing.
    fn put(self, writer: &mut GradientWriter<'_>) -> Result<(), OnDeviceError> {
        let views: Vec<_> = self.0.iter().map(|(tensor, values)| (*tensor, values.view())).collect();
        writer.write_all_on_device(&views)
    }
}

/// All chunks in the order in which a ring asks for them.
pub(crate) fn read(view: &GradientView, layout: &Layout) -> Result<Vec<u8>, ResidentError> {
    let mut bytes = vec![0xdd; layout.bytes()];
    for chunk in layout.travel() {
        bytes[layout.chunk(chunk)].copy_from_slice(block_on(view.chunk(chunk))?);
    }
    Ok(bytes)
}

/// Writes a case and reads it. Nothing of it is on its way any more when this returns.
pub(crate) fn written_and_read(
    case: &Case,
    buffer: &mut GradientBuffer,
    layout: &Layout,
    device: &Device,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let found = case.write(buffer, layout, Some(device));
    let found = found.and_then(|()| Ok(read(&buffer.complete(), layout)?));
    buffer.clear();
    found
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Looks at it so often, unless it is ready before, and drops it then.
pub(crate) fn poll(future: impl Future, most: usize) {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    for _ in 0..most {
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        thread::yield_now();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
