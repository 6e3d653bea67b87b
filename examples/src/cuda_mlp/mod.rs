//! A multi-layer perceptron on MNIST that trains on GPUs by Sardana's kernels alone, and on processors by their references: to the same bits, so that a
//! job may have workers on both. Rectifiers and squared distances from one-hot labels, since no device agrees with another on an exponential.
//!
//! - [`shape`]: sizes, and where tensors lie; [`arithmetic`]: what is computed; [`host`], and `gpu` with the feature `cuda`: on what.

pub mod arithmetic;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod host;
pub mod shape;

use std::fmt;
use std::ops::Range;

use anyhow::{Context, Result};
use sardana::data::{CounterRng, DataError, Dataset, Domain, SampleRandom, Shard};
use sardana::device::DeviceChoice;
use sardana::job::JobBuilder;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable};
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec};
use sardana_cuda::parameters::Adam;

use crate::mnist::{Data, Samples};
use arithmetic::{Arithmetic, Batch, Kind};
use host::Host;
use shape::Shape;

/// Digits.
const CLASSES: usize = 10;

/// Held-out images that are looked at together.
const ROWS: u64 = 256;

const RATE: f64 = 2e-3;

/// `AdamW`'s constants; the rate and the number are each update's own.
const ADAM: Adam = Adam {
    number: 0,
    rate: 0.0,
    decay: 1e-2,
    betas: [0.9, 0.999],
    epsilon: 1e-8,
    decoupled: true,
};

/// The job: batches of 128 images, or of 64 where there are few, cut into 8 shards.
///
/// # Errors
/// When the files are not there or not whole.
pub fn job(data: &Data, epochs: u64) -> Result<JobBuilder, DataError> {
    let training = data.training()?;
    let batch = if training.len() < 10_000 { 64 } else { 128 };
    let job = Job::builder("cuda-mlp").seed(7).shards(8);
    Ok(job.train(&training, batch)?.epochs(epochs))
}

/// The network in training.
pub struct Mlp {
    shape: Shape,
    device: Box<dyn Arithmetic>,
    training: Samples,
    held_out: Samples,
    schedule: Schedule,
    updates: u64,
}

impl fmt::Debug for Mlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, updates, .. } = self;
        let device = self.device.device();
        write!(f, "Mlp {{ shape: {shape:?}, device: {device}, updates: {updates} }}")
    }
}

impl Mlp {
    /// State 0 of the job, with hidden layers of these sizes.
    ///
    /// # Errors
    /// When the files are not there or not whole, or the device cannot be used.
    pub fn new(spec: &JobSpec, data: &Data, hidden: &[usize], choice: DeviceChoice) -> Result<Self, ModelError> {
        let (training, held_out) = (data.training()?, data.held_out()?);
        let (first, _) = training.get(0, &SampleRandom::held_out(spec.seed, 0))?;
        let sizes = [&[first.values().len()], hidden, &[CLASSES]].concat();
        let shape = Shape::new(&sizes);
        let values = first_values(spec.seed, &shape);
        Ok(Self {
            device: on(choice, &shape, values)?,
            schedule: Schedule::cosine(RATE, 0.0, spec.steps.get()),
            shape,
            training,
            held_out,
            updates: 0,
        })
    }

    fn batch(
        samples: impl Iterator<Item = Result<(sardana::data::Array<f32>, u32), DataError>>,
    ) -> Result<Batch, DataError> {
        let mut batch = Batch::default();
        for sample in samples {
            let (image, label) = sample?;
            batch.images.extend(image.values());
            batch.labels.push(label);
        }
        Ok(batch)
    }

    /// All that is shown, in order: what each tensor is called, which kind it is of, and where it lies there.
    fn shown(&self) -> impl Iterator<Item = (TensorSpec, Kind, Range<usize>)> {
        let named = |(kind, name): (Kind, &'static str)| {
            let tensors = self.shape.specs().iter().zip(self.shape.places());
            tensors.map(move |(spec, place)| {
                let shown = TensorSpec {
                    name: format!("{}{name}", spec.name),
                    ..spec.clone()
                };
                (shown, kind, place.clone())
            })
        };
        Kind::ALL.into_iter().zip(["", ".mean", ".square"]).flat_map(named)
    }
}

/// He's: evenly between bounds that keep the size of what passes a layer; the last layer's are a tenth, so that scores begin near 0, as far from any
/// target as from another. The same for a seed everywhere.
fn first_values(seed: u64, shape: &Shape) -> Vec<f32> {
    let mut values = vec![0.0; shape.values()];
    for (number, layer) in shape.layers().iter().enumerate() {
        let mut rng = CounterRng::new(seed, Domain::Weights { tensor: number as u32 });
        let is_last = number + 1 == shape.layers().len();
        let bound = (6.0 / layer.inputs.max(1) as f32).sqrt() * if is_last { 0.1 } else { 1.0 };
        let weights = &mut values[layer.weights.clone()];
        weights.fill_with(|| (2.0 * rng.uniform_f32() - 1.0) * bound);
    }
    values
}

#[cfg(feature = "cuda")]
fn on(choice: DeviceChoice, shape: &Shape, values: Vec<f32>) -> Result<Box<dyn Arithmetic>, ModelError> {
    Ok(match choice.gpu()? {
        Some(number) => Box::new(gpu::Gpu::new(number, shape.clone(), &values)?),
        None => Box::new(Host::new(shape.clone(), values)),
    })
}

#[cfg(not(feature = "cuda"))]
fn on(choice: DeviceChoice, shape: &Shape, values: Vec<f32>) -> Result<Box<dyn Arithmetic>, ModelError> {
    choice.gpu()?;
    Ok(Box::new(Host::new(shape.clone(), values)))
}

fn updates_spec() -> TensorSpec {
    TensorSpec::new("updates", Dtype::U64, &[])
}

impl Trainable for Mlp {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.shape.specs().to_vec()
    }

    fn auxiliary(&self) -> Vec<String> {
        ["loss", "accuracy"].map(str::to_owned).to_vec()
    }

    fn describe(&self) -> String {
        format!("half squared distances; {ADAM:?}; rate {}", self.schedule.describe())
    }

    fn device(&self) -> String {
        self.device.device()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let samples = shard.samples().iter().enumerate();
        let batch = Self::batch(samples.map(|(at, &sample)| self.training.get(sample, &shard.sample_random(at))))?;
        let found = self.device.gradient(&batch, out)?;
        out.auxiliary(0, 0.5 * found.squares)?;
        out.auxiliary(1, found.hits as f64)?;
        Ok(out.samples(batch.labels.len() as u64)?)
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let rate = self.schedule.at(self.updates);
        self.updates += 1;
        let number = self.updates;
        self.device.update(mean, Adam { number, rate, ..ADAM })
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        let mut there: Option<(Kind, Vec<f32>)> = None;
        for (spec, kind, place) in self.shown() {
            let values = match there.take().filter(|(of, _)| *of == kind) {
                Some((_, values)) => values,
                None => self.device.read(kind)?,
            };
            let bytes: Vec<u8> = values[place].iter().flat_map(|value| value.to_le_bytes()).collect();
            visitor(&spec, &bytes);
            there = Some((kind, values));
        }
        visitor(&updates_spec(), &self.updates.to_le_bytes());
        Ok(())
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        if *tensor == updates_spec() {
            self.updates = u64::from_le_bytes(bytes.try_into()?);
            return Ok(());
        }
        let known = self.shown().find(|(spec, ..)| spec == tensor);
        let (_, kind, place) = known.with_context(|| format!("expected a tensor of this network, found {}", tensor.name))?;
        let (elements, rest) = bytes.as_chunks::<4>();
        if elements.len() != place.len() || !rest.is_empty() {
            return Err(format!("expected {} bytes, found {}", place.len() * 4, bytes.len()).into());
        }
        let values: Vec<f32> = elements.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        self.device.write(kind, place.start, &values)
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let all = self.held_out.len();
        let mut hits = 0;
        for start in (0..all).step_by(ROWS as usize) {
            let samples = start..(start + ROWS).min(all);
            let batch = Self::batch(samples.map(|sample| self.held_out.get(sample, &SampleRandom::held_out(0, sample))))?;
            hits += self.device.hits(&batch)?;
        }
        Ok(vec![
            ("accuracy".to_owned(), hits as f64 / all.max(1) as f64),
            ("correct".to_owned(), hits as f64),
        ])
    }
}
