//! How long two workers wait for the sum once their backward passes are over: what summing costs a step that computes meanwhile.

use sardana_cuda::device::{Device, DeviceTensor, Stream};

use super::super::times::quantile;
use super::backward::{Backward, Network, SAMPLES, Taken};
use super::error::{Measured, NotMeasured};
use super::row::{Beside, Figure, Row};
use super::worker::{self, Steps, Worker};

/// So many workers, each with one shard, on one GPU, and with streams of their own there, as workers have.
const WORKERS: u32 = 2;

/// So many steps are measured, of which the median counts; one more goes before them.
const TIMES: u64 = 3;

/// A worker, what it computes, and the squares of each layer's sum, as those are summed that clip by a norm.
struct Training {
    worker: Worker,
    backward: Backward,
    squares: DeviceTensor<f64>,
}

impl AsMut<Worker> for Training {
    fn as_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

/// Steps with gradients of about so many elements. A copy up and one down of as many, from and to pinned memory, take `copies` seconds together.
pub(super) fn waited(elements: usize, copies: f64) -> Measured<[Row; 2]> {
    let (network, plan) = (Network::of(elements), worker::plan(WORKERS));
    let layout = network.layout();
    let mut all = Vec::new();
    for rank in 0..WORKERS {
        let device = Device::open(0)?;
        all.push(Training {
            worker: Worker::new(&device, &layout, rank, &plan)?,
            backward: Backward::new(&device, network)?,
            squares: DeviceTensor::zeros(&device, Stream::Compute, network.layers())?,
        });
        device.synchronize()?;
    }
    let taken = worker::steps(&mut all, &plan, TIMES + 1, step)?;
    // A step is over when its last worker is. The first one is not counted.
    let longest = |part: fn(&Taken) -> f64| -> Vec<f64> {
        let of_step = |step: usize| taken.iter().map(|worker| part(&worker[step])).fold(0.0, f64::max);
        (1..=TIMES as usize).map(of_step).collect()
    };
    let [mut backward, mut exposed] = [longest(|taken| taken.backward), longest(|taken| taken.exposed)];
    for training in &all {
        is_the_sum(training, network)?;
    }
    let bytes = layout.tensors_end() as u64;
    let copies_of_as_many = copies * bytes as f64 / (elements * size_of::<f32>()) as f64;
    let backward = quantile(&mut backward, 0.5);
    let beside = |what, seconds| Beside::Time { what, seconds };
    Ok([
        Row::new(
            "backward pass",
            Figure::moved(bytes, backward).beside(beside("copies up and down", copies_of_as_many)),
        ),
        Row::new(
            "exposed behind it",
            Figure::moved(bytes, quantile(&mut exposed, 0.5)).beside(beside("copies up and down", copies_of_as_many)),
        ),
    ])
}

fn step(training: &mut Training, steps: &mut Steps) -> Measured<Taken> {
    let Training {
        worker,
        backward,
        squares,
    } = training;
    let device = worker.device.clone();
    backward.step(worker, steps, |sum, _| {
        let layers = (0..squares.len()).map(|layer| sum.tensor(layer));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        Ok(device.on(Stream::Compute).squares(&mut squares.view_mut(), &layers, 1.0)?)
    })
}

/// Each element has a term for each sample of each worker.
fn is_the_sum(training: &Training, network: Network) -> Measured<()> {
    let element = (SAMPLES * WORKERS as usize) as f64;
    let expected = network.weights() as f64 * element * element;
    let found = training.squares.to_vec()?;
    if found.iter().all(|sum| sum.to_bits() == expected.to_bits()) {
        return Ok(());
    }
    Err(NotMeasured::Wrong {
        what: "squares of the sums of two backward passes",
        expected,
        found,
    })
}
