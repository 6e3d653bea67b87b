//! A multi-layer perceptron on MNIST that trains on GPUs by Sardana's kernels alone, and on processors by their references and a fit's own update: to the same bits, so
//! that a job may have workers on both. Rectifiers and squared distances from one-hot labels, since no device agrees with another on an exponential.
//!
//! - [`shape`]: sizes, and where tensors lie; [`arithmetic`]: what is computed; [`host`], and `gpu` with the feature `cuda`: on what.

pub mod arithmetic;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod host;
pub mod shape;

use std::fmt;
use std::sync::Arc;

use sardana::data::{Array, CounterRng, DataError, Dataset, Domain, Loader, SampleRandom, Shard};
use sardana::device::DeviceChoice;
#[cfg(feature = "cuda")]
use sardana::fit::DeviceNetwork;
use sardana::fit::{Fit, Network, Parameter, Values};
use sardana::job::JobBuilder;
use sardana::model::{DeviceMemory, GradientWriter, ModelError, Summation};
use sardana::optim::AdamW;
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec};

use crate::mnist::Data;
use arithmetic::{Arithmetic, Batch};
use host::Host;
use shape::Shape;

/// Digits.
const CLASSES: usize = 10;

const RATE: f64 = 2e-3;
const DECAY: f64 = 1e-2;

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

/// By what gradients are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// By the links of the ranks, as in any job.
    ByLinks,
    /// Over GPUs, in a job in fast order: by NCCL, with the feature `nccl`.
    WhereTheyLie,
}

/// State 0 of the job, with hidden layers of these sizes.
///
/// # Errors
/// When the files are not there or not whole, the device cannot be used, or it has no means for such sums.
pub fn fit(spec: &JobSpec, data: &Data, hidden: &[usize], choice: DeviceChoice, sums: Sums) -> Result<Fit<Mlp>, ModelError> {
    let training = data.training()?;
    let (first, _) = training.get(0, &SampleRandom::held_out(spec.seed, 0))?;
    let sizes = [&[first.values().len()], hidden, &[CLASSES]].concat();
    let network = Mlp::new(spec.seed, Shape::new(&sizes), choice)?;
    let network = match sums {
        Sums::ByLinks => network,
        Sums::WhereTheyLie => network.summed_where_they_lie()?,
    };
    let fit = Fit::builder(network)
        .data(Loader::new(training)?)
        .held_out(data.held_out()?)
        .optimizer(AdamW::new(), Schedule::cosine(RATE, 0.0, spec.steps.get()))
        .decay(DECAY);
    Ok(fit.build(spec)?)
}

/// The network.
pub struct Mlp {
    shape: Arc<Shape>,
    device: Box<dyn Arithmetic>,
    summation: Option<Arc<dyn Summation>>,
}

impl fmt::Debug for Mlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, device, .. } = self;
        write!(f, "Mlp {{ shape: {shape:?}, device: {} }}", device.device())
    }
}

impl Mlp {
    /// Of this shape, with first values that follow from the seed.
    ///
    /// # Errors
    /// When the device cannot be used.
    pub fn new(seed: u64, shape: Shape, choice: DeviceChoice) -> Result<Self, ModelError> {
        let (values, shape) = (first_values(seed, &shape), Arc::new(shape));
        Ok(Self {
            device: on(choice, &shape, values)?,
            shape,
            summation: None,
        })
    }

    /// The same, whose gradients are summed over GPUs where they lie, in a job in fast order: by NCCL, with the feature `nccl`.
    ///
    /// # Errors
    /// When its device has no such means.
    pub fn summed_where_they_lie(mut self) -> Result<Self, ModelError> {
        let none = || {
            format!(
                "expected a GPU, and a program with the feature `nccl`, for sums by NCCL; found {}",
                self.device.device()
            )
        };
        self.summation = Some(self.device.summation().ok_or_else(none)?);
        Ok(self)
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
fn on(choice: DeviceChoice, shape: &Arc<Shape>, values: Vec<f32>) -> Result<Box<dyn Arithmetic>, ModelError> {
    Ok(match choice.gpu()? {
        Some(number) => Box::new(gpu::Gpu::new(number, Arc::clone(shape), &values)?),
        None => Box::new(Host::new(Arc::clone(shape), values)),
    })
}

#[cfg(not(feature = "cuda"))]
fn on(choice: DeviceChoice, shape: &Arc<Shape>, values: Vec<f32>) -> Result<Box<dyn Arithmetic>, ModelError> {
    choice.gpu()?;
    Ok(Box::new(Host::new(Arc::clone(shape), values)))
}

fn batch(items: &[(Array<f32>, u32)]) -> Batch {
    let mut batch = Batch::default();
    for (image, label) in items {
        batch.images.extend(image.values());
        batch.labels.push(*label);
    }
    batch
}

impl Network for Mlp {
    type Item = (Array<f32>, u32);

    fn parameters(&self) -> Vec<Parameter> {
        self.shape.parameters().to_vec()
    }

    fn metrics(&self) -> Vec<String> {
        ["loss", "accuracy"].map(str::to_owned).to_vec()
    }

    fn describe(&self) -> String {
        "half squared distances".to_owned()
    }

    fn device(&self) -> String {
        self.device.device()
    }

    fn device_memory(&self, images: usize) -> Option<DeviceMemory> {
        self.device.memory(images)
    }

    fn summation(&self) -> Option<Arc<dyn Summation>> {
        self.summation.clone()
    }

    fn gradient(
        &self,
        _: &Shard,
        items: &[Self::Item],
        out: &mut GradientWriter<'_>,
        sums: &mut [f64],
    ) -> Result<(), ModelError> {
        self.device.gradient(&batch(items), out, sums)
    }

    fn measure(&self, items: &[Self::Item], sums: &mut [f64]) -> Result<(), ModelError> {
        self.device.measure(&batch(items))?.add_to(sums);
        Ok(())
    }

    fn values(&self) -> Box<dyn Values> {
        self.device.values()
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        self.device.change(tensor, change)
    }

    #[cfg(feature = "cuda")]
    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        self.device.on_device()
    }

    #[cfg(feature = "cuda")]
    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        self.device.on_device_mut()
    }
}
