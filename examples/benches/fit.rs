//! What training through `Fit` costs, each beside its limit measured in the same run:
//! - a shard's gradient beside bare candle's: the same layers forward and backward, of candle alone, from tensors that lie ready;
//! - an update beside copying as many bytes as it must read and write;
//! - a step whose images are decoded and augmented ahead beside one whose samples lie in memory.
//!
//! `RAYON_NUM_THREADS=1 cargo bench -p sardana-examples --bench fit [-- NAME]`

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Error, Result};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{Conv2d, Linear, ModuleT, VarBuilder, VarMap, conv2d, linear, loss};
use sardana::data::{Array, Coming, DataError, DataFingerprint, Dataset, Loader, SampleRandom, Sampler, Shard};
use sardana::fit::{Fit, Network};
use sardana::model::{GradientBuffer, Layout, Step, Sum, Trainable, WriteMode};
use sardana::optim::Adam;
use sardana::{Job, JobSpec};
use sardana_candle::{Builder, CrossEntropy, Net, build};
use sardana_examples::networks::{Cnn, Dense};
use sardana_examples::{cifar, mnist};

const ROUNDS: usize = 9;

/// Seconds of each of two runs, taken in turn, so that a disturbance hits both alike: the medians, and the median of the ratios.
fn in_turn(
    times: usize,
    mut one: impl FnMut() -> Result<()>,
    mut other: impl FnMut() -> Result<()>,
) -> Result<(f64, f64, f64)> {
    let time = |run: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..times {
            run()?;
        }
        Ok(start.elapsed().as_secs_f64() / times as f64)
    };
    time(&mut one)?;
    time(&mut other)?;
    let (mut ones, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (first, second) = (time(&mut one)?, time(&mut other)?);
        ones.push(first);
        others.push(second);
        ratios.push(first / second);
    }
    Ok((median(ones), median(others), median(ratios)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn shows(name: &str) -> bool {
    let asked: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    asked.is_empty() || asked.iter().any(|word| name.contains(word.as_str()))
}

/// Samples that lie in memory.
struct Ready(Vec<(Array<f32>, u32)>);

impl Ready {
    /// Of MNIST's size.
    fn new(count: usize) -> Self {
        let image = |number: usize| (0..28 * 28).map(|at| ((at * 7 + number * 13) % 256) as f32 / 255.0).collect();
        let sample = |number| {
            (
                Array::new(&[1, 28, 28], image(number)).expect("28 x 28 values"),
                (number % 10) as u32,
            )
        };
        Self((0..count).map(sample).collect())
    }

    fn batch(&self, samples: &[u64]) -> Result<(Tensor, Tensor)> {
        let images: Vec<f32> = samples
            .iter()
            .flat_map(|&at| self.0[at as usize].0.values().to_vec())
            .collect();
        let labels: Vec<u32> = samples.iter().map(|&at| self.0[at as usize].1).collect();
        let count = samples.len();
        Ok((
            Tensor::from_vec(images, (count, 1, 28, 28), &Device::Cpu)?,
            Tensor::from_vec(labels, count, &Device::Cpu)?,
        ))
    }
}

impl Dataset for Ready {
    type Item = (Array<f32>, u32);

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        Ok(self.0[index as usize].clone())
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

fn spec() -> Result<JobSpec> {
    Ok(Job::builder("bench")
        .shards(8)
        .data(1_024, 128)
        .steps(1_000)
        .build()?
        .spec()
        .clone())
}

fn fit<M: ModuleT>(
    spec: &JobSpec,
    module: impl FnOnce(&Builder) -> candle_core::Result<M>,
) -> Result<Fit<mnist::Network<M>>> {
    let network: Net<M, CrossEntropy, Array<f32>, u32> = build(1, CrossEntropy::new(), module)?;
    let loader = Loader::on_demand(Ready::new(1_024));
    Ok(Fit::builder(network).data(loader).optimizer(Adam::new(), 1e-3).build(spec)?)
}

/// One gradient of one shard, as a worker computes it.
fn gradient<N: Network>(model: &Fit<N>, shard: &Shard, layout: &Layout, buffer: &mut GradientBuffer) -> Result<()> {
    let mut writer = buffer.writer(layout, WriteMode::Store);
    model.gradient(shard, &mut writer).map_err(Error::from_boxed)?;
    Ok(writer.finish()?)
}

/// The same networks of candle alone.
enum Bare {
    Dense(Vec<Linear>),
    Cnn(Box<(Conv2d, Conv2d, Linear, Linear)>),
}

impl Bare {
    fn dense(vb: &VarBuilder<'_>) -> Result<Self> {
        let sizes = [784, 128, 60, 10];
        let layer = |(at, sizes): (usize, &[usize])| linear(sizes[0], sizes[1], vb.pp(at));
        Ok(Self::Dense(
            sizes.windows(2).enumerate().map(layer).collect::<candle_core::Result<_>>()?,
        ))
    }

    fn cnn(vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self::Cnn(Box::new((
            conv2d(1, 32, 3, Default::default(), vb.pp(1))?,
            conv2d(32, 64, 3, Default::default(), vb.pp(2))?,
            linear(64 * 12 * 12, 128, vb.pp(3))?,
            linear(128, 10, vb.pp(4))?,
        ))))
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Dense(layers) => {
                let mut values = input.flatten_from(1)?;
                for (number, layer) in layers.iter().enumerate() {
                    values = if number > 0 { values.relu()? } else { values };
                    values = layer.forward(&values)?;
                }
                values
            }
            Self::Cnn(layers) => {
                let (first, second, dense, scores) = &**layers;
                let maps = second.forward(&first.forward(input)?.relu()?)?.relu()?;
                let maps = candle_nn::ops::dropout(&maps.max_pool2d(2)?, 0.25)?;
                let values = dense.forward(&maps.flatten_from(1)?)?.relu()?;
                scores.forward(&candle_nn::ops::dropout(&values, 0.5)?)?
            }
        })
    }
}

fn gradients<M: ModuleT>(
    name: &str,
    times: usize,
    module: impl FnOnce(&Builder) -> candle_core::Result<M>,
    bare: fn(&VarBuilder<'_>) -> Result<Bare>,
) -> Result<()> {
    let spec = spec()?;
    let model = fit(&spec, module)?;
    let shard = Sampler::new(&spec)?.shard(Step::ZERO, 0);
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let mut buffer = GradientBuffer::zeros(&layout);
    let bare = bare(&VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu))?;
    let (input, target) = Ready::new(1_024).batch(shard.samples())?;
    let (fit, candle, ratio) = in_turn(
        times,
        || gradient(&model, &shard, &layout, &mut buffer),
        || {
            black_box(loss::cross_entropy(&bare.forward(&input)?, &target)?.backward()?);
            Ok(())
        },
    )?;
    let (fit, candle) = (fit * 1e3, candle * 1e3);
    println!("gradient/{name}/16-samples: {ratio:.3} of bare candle ({fit:.3} ms, {candle:.3} ms)");
    Ok(())
}

fn apply<M: ModuleT>(module: impl FnOnce(&Builder) -> candle_core::Result<M>) -> Result<()> {
    let spec = spec()?;
    let mut model = fit(&spec, module)?;
    let shard = Sampler::new(&spec)?.shard(Step::ZERO, 0);
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let mut buffer = GradientBuffer::zeros(&layout);
    gradient(&model, &shard, &layout, &mut buffer)?;
    let sum = Sum::from_buffer(Step::ZERO, buffer);
    // The sum is read; values and two moments are read and written: 28 bytes a value. A copy reads and writes.
    let values = model.network().trained_values();
    let (from, mut to) = (vec![1_u8; values * 14], vec![0_u8; values * 14]);
    let (apply, copy, ratio) = in_turn(
        20,
        || model.apply(Step::ZERO, &sum.mean(&layout)).map_err(Error::from_boxed),
        || {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            Ok(())
        },
    )?;
    let gb = |seconds: f64| values as f64 * 28.0 / seconds / 1e9;
    println!(
        "apply/adam/{values}: {:.2} of a copy's bandwidth ({:.2} GB/s, {:.2} GB/s)",
        1.0 / ratio,
        gb(apply),
        gb(copy)
    );
    Ok(())
}

fn loading() -> Result<()> {
    const IMAGES: usize = 2_560;
    let data = cifar::Data::made(IMAGES)?;
    let spec = Job::builder("bench")
        .shards(8)
        .data(IMAGES as u64, 128)
        .steps(100_000)
        .build()?
        .spec()
        .clone();
    let sampler = Sampler::new(&spec)?;
    let images = data.training()?;
    let kept = (0..IMAGES as u64).map(|index| images.get(index, &SampleRandom::held_out(0, index)));
    let kept = Ready(kept.collect::<Result<_, _>>()?);
    let network = |name: &str| -> Result<Net<Dense, CrossEntropy, Array<f32>, u32>> {
        Ok(build(1, CrossEntropy::new(), |builder| {
            Dense::new(&builder.pp(name), &[3 * 32 * 32, 512, 256, 10])
        })?)
    };
    let build = |loader: Loader<cifar::Samples>| -> Result<_> {
        Ok(Fit::builder(network("a")?)
            .data(loader)
            .optimizer(Adam::new(), 1e-3)
            .build(&spec)?)
    };
    let decoded = build(Loader::on_demand(images).ahead(64 << 20).threads(1)?)?;
    let ready = Fit::builder(network("b")?)
        .data(Loader::on_demand(kept))
        .optimizer(Adam::new(), 1e-3)
        .build(&spec)?;
    let layout = Layout::new(decoded.gradients(), decoded.auxiliary().len())?;
    let (mut one, mut other) = (GradientBuffer::zeros(&layout), GradientBuffer::zeros(&layout));
    let (mut here, mut there) = (Step::ZERO, Step::ZERO);
    let (ahead, memory, ratio) = in_turn(
        20,
        || {
            decoded.coming(Coming::new(sampler.clone(), here, 0..8, spec.steps));
            for shard in 0..8 {
                gradient(&decoded, &sampler.shard(here, shard), &layout, &mut one)?;
            }
            here = here.next();
            Ok(())
        },
        || {
            for shard in 0..8 {
                gradient(&ready, &sampler.shard(there, shard), &layout, &mut other)?;
            }
            there = there.next();
            Ok(())
        },
    )?;
    let (ahead, memory) = (ahead * 1e3, memory * 1e3);
    println!("loader/cifar/128-samples: {ratio:.3} of samples in memory ({ahead:.2} ms, {memory:.2} ms a step)");
    Ok(())
}

fn main() -> Result<()> {
    if shows("gradient/dense") {
        gradients("dense", 200, |builder| Dense::new(builder, &[784, 128, 60, 10]), Bare::dense)?;
    }
    if shows("gradient/cnn") {
        gradients("cnn", 2, Cnn::new, Bare::cnn)?;
    }
    if shows("apply") {
        apply(Cnn::new)?;
        // More than any cache holds.
        apply(|builder| Dense::new(builder, &[784, 8_192, 2_048, 10]))?;
    }
    if shows("loader") {
        loading()?;
    }
    Ok(())
}
