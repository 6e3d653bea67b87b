//! CIFAR-10: photographs of 32 × 32 pixels of ten kinds of things, in its binary files (Krizhevsky: "Learning multiple layers of features
//! from tiny images", 2009), and residual networks trained as in He et al. (2016). Where there are no files, a set that can be learned is
//! made and written as such: stripes and checks in ten directions and colours.

use std::path::{Path, PathBuf};

use anyhow::Result;
use sardana::data::formats::Part;
use sardana::data::formats::cifar10::{self, Cifar10};
use sardana::data::{Array, CounterRng, DataError, Dataset, DatasetExt, Domain, Image, Loader};
use sardana::device::DeviceChoice;
use sardana::fit::Fit;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::optim::Sgd;
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec};
use sardana_candle::{CrossEntropy, Net, build_on};
use tempfile::TempDir;

use crate::networks::{ResNet, Shape};

const SIZE: usize = 32;
const CHANNELS: usize = 3;
const CLASSES: usize = 10;

/// Of CIFAR-10's training images.
const MEANS: [f32; 3] = [0.4914, 0.4822, 0.4465];
const DEVIATIONS: [f32; 3] = [0.2470, 0.2435, 0.2616];

/// The samples of one part.
pub type Samples = Box<dyn Dataset<Item = (Array<f32>, u32)>>;

/// A residual network with its images and optimizer.
pub type Model = Fit<Net<ResNet, CrossEntropy, Array<f32>, u32>>;

/// The two parts of CIFAR-10.
#[derive(Debug)]
pub struct Data {
    folder: PathBuf,
    /// If it was made, it is deleted with this; what is open by then stays readable.
    _made: Option<TempDir>,
}

impl Data {
    /// The binary files in `folder`.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            _made: None,
        }
    }

    /// A set of so many images for training, and a fifth as many for tests, made and written as such files.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn made(images: usize) -> Result<Self> {
        let made = tempfile::tempdir()?;
        for (part, count, stream) in [(Part::Train, images, 0), (Part::Test, images / 5, 1)] {
            let mut rng = CounterRng::new(1, Domain::User { stream });
            let (images, labels): (Vec<_>, Vec<_>) = (0..count).map(|_| picture(&mut rng)).unzip();
            for (number, file) in files(part).iter().enumerate() {
                let each = count.div_ceil(files(part).len());
                let of_file = (number * each).min(count)..((number + 1) * each).min(count);
                cifar10::write_batch(&made.path().join(file), &images[of_file.clone()], &labels[of_file])?;
            }
        }
        Ok(Self {
            folder: made.path().to_owned(),
            _made: Some(made),
        })
    }

    /// The images that are trained on: moved by up to 4 pixels and mirrored at random.
    ///
    /// # Errors
    /// When the files are not there or not whole.
    pub fn training(&self) -> Result<Samples, DataError> {
        let images = Cifar10::open(&self.folder, Part::Train)?;
        let images = images.map("pad 4, crop, flip", |(image, label): (Image, u32), rng| {
            Ok((image.pad_crop(4, rng).flip(rng), label))
        });
        Ok(Box::new(images.map("normalise", |sample, _| normalise(sample))))
    }

    /// The images that are held out.
    ///
    /// # Errors
    /// When the files are not there or not whole.
    pub fn held_out(&self) -> Result<Samples, DataError> {
        let images = Cifar10::open(&self.folder, Part::Test)?;
        Ok(Box::new(images.map("normalise", |sample, _| normalise(sample))))
    }

    /// The job: batches of 128 images, cut into 8 shards.
    ///
    /// # Errors
    /// When the files are not there or not whole.
    pub fn job(&self, epochs: u64) -> Result<JobBuilder, DataError> {
        let job = Job::builder("cifar").seed(11).shards(8).train(&self.training()?, 128)?;
        Ok(job.epochs(epochs).drop_last())
    }

    /// State 0 of the job, to be computed on what `choice` says, with a network of this depth and width: Nesterov's momentum, a tenth of the rate after half and three quarters of
    /// the epochs.
    ///
    /// # Errors
    /// When the files are not there or not whole, the job is for others, or the device cannot be used.
    pub fn model(self, spec: &JobSpec, depth: usize, width: usize, choice: DeviceChoice) -> Result<Model, ModelError> {
        let shape = Shape {
            depth,
            width,
            channels: CHANNELS,
            classes: CLASSES,
        };
        let network = build_on(choice, spec.seed, CrossEntropy::new(), |builder| ResNet::new(builder, shape))?;
        let steps = spec.steps.get();
        let pieces = [(0, 0.1), (steps / 2, 0.01), (steps / 4 * 3, 0.001)];
        let rate = Schedule::pieces(&pieces[..if steps < 8 { 1 } else { 3 }]).warm_up(spec.steps_per_epoch().min(400));
        let fit = Fit::builder(network)
            .data(Loader::new(self.training()?)?)
            .held_out(self.held_out()?)
            .optimizer(Sgd::nesterov(0.9), rate)
            .decay(1e-4);
        Ok(fit.build(spec)?)
    }
}

fn files(part: Part) -> &'static [&'static str] {
    match part {
        Part::Train => &cifar10::TRAIN_FILES,
        Part::Test => &[cifar10::TEST_FILE],
    }
}

fn normalise((image, label): (Image, u32)) -> Result<(Array<f32>, u32), DataError> {
    Ok((image.normalise(&MEANS, &DEVIATIONS)?, label))
}

/// A picture of one of ten classes: stripes in one of five directions, of one of two colours, anywhere, with noise.
fn picture(rng: &mut CounterRng) -> (Vec<u8>, u8) {
    let class = rng.below(CLASSES as u64) as u8;
    let angle = f32::from(class % 5) * std::f32::consts::PI / 5.0;
    let (across, along) = (angle.cos(), angle.sin());
    let (start, wide) = (rng.uniform_f32() * 8.0, 0.8 + 0.2 * rng.uniform_f32());
    let mut bytes = Vec::with_capacity(CHANNELS * SIZE * SIZE);
    for channel in 0..CHANNELS {
        let strength = if (channel == 0) == (class < 5) { 70.0 } else { 25.0 };
        for row in 0..SIZE {
            for column in 0..SIZE {
                let place = (row as f32 * along + column as f32 * across) * wide + start;
                let noise = 60.0 * (rng.uniform_f32() - 0.5);
                bytes.push((128.0 + strength * place.sin() + noise).clamp(0.0, 255.0) as u8);
            }
        }
    }
    (bytes, class)
}
