//! How long a step takes of two workers whose gradients lie on the GPU, where all of them are there: the sum alone.

use std::sync::Arc;
use std::time::Instant;

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::{MeanOnDevice, OnDeviceError, WriteOnDevice};
use sardana_protocol::state::{Dtype, TensorSpec};

use super::super::times::quantile;
use super::error::Measured;
use super::row::{Beside, Figure};
use super::worker::{self, Steps, Worker};

/// So many workers, each with one shard.
const WORKERS: u32 = 2;

/// So many steps are measured, of which the median counts; one more goes before them.
const TIMES: u64 = 3;

/// The part of copies of the same bytes, one after the other, that is aimed at.
const GOAL: f64 = 0.7;

/// Steps with gradients of so many elements, until each worker has the sum on the GPU. A copy up and one down of as many elements, from and to pinned memory, take
/// `copies` seconds together.
pub(super) fn summed(device: &Device, elements: usize, copies: f64) -> Measured<Figure> {
    let plan = worker::plan(WORKERS);
    let spec = TensorSpec::new("gradient", Dtype::F32, &[elements]);
    let layout = Layout::new(vec![spec], 0).expect("a gradient of one tensor that a GPU holds has a layout");
    let layout = Arc::new(layout);
    let mut workers = Vec::new();
    for rank in 0..WORKERS {
        let mut worker = Worker::new(device, &layout, rank, &plan)?;
        written(&mut worker.gradient, &layout, device, elements)?;
        workers.push(worker);
    }
    device.synchronize()?;
    let copied = || {
        let traffic = device.traffic();
        traffic.up + traffic.down
    };
    let before = copied();
    let taken = worker::steps(&mut workers, &plan, TIMES + 1, step)?;
    // A step is over when its last worker is. The first one is not counted.
    let longest = |step| taken.iter().map(|worker| worker[step]).fold(0.0, f64::max);
    let mut seconds: Vec<f64> = (1..=TIMES as usize).map(longest).collect();
    let once_both_ways = (2 * elements * size_of::<f32>()) as f64;
    let figure = Figure::moved((copied() - before) / (TIMES + 1), quantile(&mut seconds, 0.5));
    Ok(figure.beside(Beside::Rate {
        what: "copies up and down",
        rate: once_both_ways / copies,
        goal: Some(GOAL),
    }))
}

fn step(worker: &mut Worker, steps: &mut Steps) -> Measured<f64> {
    let began = Instant::now();
    let gradient = worker.gradient.complete();
    steps.begin(worker, gradient);
    let sum = steps.sum()?;
    sum.mean(&worker.layout).device_sum(&mut worker.room)?;
    worker.device.synchronize()?;
    worker.recycle(sum);
    Ok(began.elapsed().as_secs_f64())
}

/// A gradient of zeros that stays on the GPU.
fn written(gradient: &mut GradientBuffer, layout: &Layout, device: &Device, elements: usize) -> Result<(), OnDeviceError> {
    let values = DeviceTensor::<f32>::zeros(device, Stream::Compute, elements)?;
    let mut writer = gradient.writer(layout, WriteMode::Store);
    writer.write_device(0, &values.view())?;
    writer.samples(1)?;
    writer.finish()?;
    Ok(())
}
