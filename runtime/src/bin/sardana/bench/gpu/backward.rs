//! A step as a model takes it whose tensors lie on the GPU: a backward pass that takes a while for each tensor, from the last one on, while a ring sums those that are
//! computed; and then the sum. Must not know what is done with that.

use std::sync::Arc;

use sardana_collectives::gradient::WriteMode;
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream};
use sardana_cuda::gradient::{DeviceSum, MeanOnDevice, WriteOnDevice};
use sardana_cuda::reference::dense::Sizes;
use sardana_protocol::state::{Dtype, TensorSpec};

use super::error::Measured;
use super::worker::{Steps, Worker};

/// What it computes on.
const ON: Stream = Stream::Compute;

/// Samples of a shard. So many terms each element of a gradient has.
pub(super) const SAMPLES: usize = 64;

/// A gradient has so many layers; fewer if each had less than the least bytes, and more if each had more than the most.
const LAYERS: usize = 64;
const LEAST_LAYER_BYTES: usize = 4 << 10;
const MOST_LAYER_BYTES: usize = 16 << 20;

/// Dense layers of one size, each with as many inputs as outputs, whose weights are the parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    /// Inputs of each layer, and outputs.
    side: usize,
    layers: usize,
}

/// One pass back through a network. All values that it begins with are 1, and so all elements of the gradient are [`SAMPLES`].
pub(super) struct Backward {
    device: Device,
    network: Network,
    /// What goes into each layer, and what comes back to its outputs and goes on from its inputs.
    passed: DeviceTensor<f32>,
    back: DeviceTensor<f32>,
    further: DeviceTensor<f32>,
    weights: DeviceTensor<f32>,
    /// Of one layer at a time: it is written to the worker's gradient as soon as it is computed.
    gradient: DeviceTensor<f32>,
}

/// How long a step's parts take, in seconds, by the GPU's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// From the first kernel of the backward pass to the end of the last one.
    pub(super) backward: f64,
    /// From there until the sum is where an update takes it.
    pub(super) exposed: f64,
}

impl Network {
    /// One whose gradient has about so many elements.
    pub(super) fn of(elements: usize) -> Self {
        let bytes = elements * size_of::<f32>();
        let layers = LAYERS.min(bytes / LEAST_LAYER_BYTES).max(bytes.div_ceil(MOST_LAYER_BYTES));
        let side = (elements / layers).isqrt().max(1);
        let layers = (elements / (side * side)).max(1);
        Self { side, layers }
    }

    pub(super) const fn layers(self) -> usize {
        self.layers
    }

    /// Elements of a layer's weights.
    pub(super) const fn weights(self) -> usize {
        self.side * self.side
    }

    pub(super) fn layout(self) -> Arc<Layout> {
        let tensors = (0..self.layers).map(|layer| TensorSpec::new(format!("{layer}"), Dtype::F32, &[self.side, self.side]));
        Arc::new(
            Layout::new(tensors.collect(), 0).expect("a gradient that a GPU holds, in a few thousand tensors, has a layout"),
        )
    }

    const fn sizes(self) -> Sizes {
        Sizes {
            batch: SAMPLES,
            outputs: self.side,
            inputs: self.side,
        }
    }
}

impl Backward {
    pub(super) fn new(device: &Device, network: Network) -> Measured<Self> {
        let ones = |count| DeviceTensor::from_slice(device, ON, &vec![1.0; count]);
        let rows = SAMPLES * network.side;
        Ok(Self {
            network,
            passed: ones(rows)?,
            back: ones(rows)?,
            further: DeviceTensor::unset(device, ON, rows)?,
            weights: ones(network.weights())?,
            gradient: DeviceTensor::unset(device, ON, network.weights())?,
            device: device.clone(),
        })
    }

    /// Enqueues one layer's part.
    fn enqueue(&mut self) -> Result<(), DeviceError> {
        let (on, sizes) = (self.device.on(ON), self.network.sizes());
        let (passed, back) = (self.passed.view(), self.back.view());
        on.dense_backward_inputs(&mut self.further.view_mut(), [&back, &self.weights.view()], sizes)?;
        on.dense_backward_weights(&mut self.gradient.view_mut(), [&back, &passed], sizes)
    }

    /// One step of a worker, up to `update`, which is given the sum of all shards and how many samples they have.
    pub(super) fn step(
        &mut self,
        worker: &mut Worker,
        steps: &mut Steps,
        update: impl FnOnce(&DeviceSum<'_>, u64) -> Measured<()>,
    ) -> Measured<Taken> {
        let gradient = worker.gradient.awaited(&worker.layout);
        steps.begin(worker, gradient);
        let device = self.device.clone();
        let began = device.time(ON)?;
        let mut ended = None;
        let mut writer = worker.gradient.writer(&worker.layout, WriteMode::Store);
        for layer in (0..self.network.layers).rev() {
            self.enqueue()?;
            if layer == 0 {
                // To store it is a part of summing it.
                ended = Some(device.time(ON)?);
            }
            writer.write_device(layer, &self.gradient.view())?;
        }
        writer.samples(SAMPLES as u64)?;
        writer.finish()?;
        worker.gradient.wait_computed()?;
        drop(worker.gradient.complete());
        let sum = steps.sum()?;
        let mean = sum.mean(&worker.layout);
        let there = mean.device_sum(&mut worker.room)?;
        let summed = device.time(ON)?;
        update(&there, mean.divisor()?)?;
        device.wait_here(&device.record(ON)?)?;
        worker.recycle(sum);
        let ended = ended.expect("a network has a layer");
        Ok(Taken {
            backward: device.between(&began, &ended)?.as_secs_f64(),
            exposed: device.between(&ended, &summed)?.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_any_size_are_cut_into_layers_of_about_as_many_bytes_in_all() {
        for (bytes, layers) in [(4, 1), (32_000, 7), (1 << 20, 64), (1 << 30, 64), (4 << 30, 256)] {
            let network = Network::of(bytes / size_of::<f32>());
            let found = network.layers() * network.weights() * size_of::<f32>();
            assert!(found <= bytes && found * 20 >= bytes * 19, "{bytes}: {network:?}");
            assert!(network.layers().abs_diff(layers) <= 1, "{bytes}: {network:?}");
        }
    }
}
