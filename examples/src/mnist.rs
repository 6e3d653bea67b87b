//! MNIST: handwritten digits of 28 × 28 pixels, in idx files (LeCun, Cortes, Burges). Where there are none, the digits that come with this
//! program are enlarged and written as such files, so that the same reader and networks have something real to work on.

use std::path::{Path, PathBuf};

use anyhow::Result;
use sardana::data::formats::Part;
use sardana::data::formats::mnist::{self, Mnist};
use sardana::data::{Array, DataError, Dataset, DatasetExt, Image, Loader};
use sardana::device::DeviceChoice;
use sardana::fit::Fit;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::optim::Adam;
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec};
use sardana_candle::{CrossEntropy, Net, build_on};
use tempfile::TempDir;

use crate::digits::{Digits, Images, PIXELS};
use crate::networks::{Cnn, Dense};

/// Rows and columns of an image.
const SIZE: usize = 28;

/// Rows and columns of the digits that come with this program.
const SMALL: usize = 8;

const _: () = assert!(SMALL * SMALL == PIXELS);

/// Of MNIST's training images.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;
const NORMALISED: &str = "mean 0.1307, deviation 0.3081";

/// The samples of one part: an image with values about 0, and what it shows.
pub type Samples = Box<dyn Dataset<Item = (Array<f32>, u32)>>;

/// The two parts of MNIST.
#[derive(Debug)]
pub struct Data {
    folder: PathBuf,
    /// If it was made, it is deleted with this; what is open by then stays readable.
    _made: Option<TempDir>,
}

impl Data {
    /// The idx files in `folder`.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            _made: None,
        }
    }

    /// The digits that come with this program, enlarged and written as idx files; every fifth is in the test part.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn from_digits() -> Result<Self> {
        let made = tempfile::tempdir()?;
        let Digits { training, held_out } = Digits::built_in();
        for (part, images) in [(Part::Train, training), (Part::Test, held_out)] {
            let (pixels, labels) = enlarged(&images)?;
            mnist::write(made.path(), part, SIZE, SIZE, &pixels, &labels)?;
        }
        Ok(Self {
            folder: made.path().to_owned(),
            _made: Some(made),
        })
    }

    /// The images that are trained on: moved by up to two pixels at random.
    ///
    /// # Errors
    /// When their files are not there or not whole.
    pub fn training(&self) -> Result<Samples, DataError> {
        let images = Mnist::open(&self.folder, Part::Train)?;
        let moved = images.map("pad 2, crop", |(image, label): (Image, u32), rng| {
            Ok((image.pad_crop(2, rng), label))
        });
        Ok(Box::new(moved.map(NORMALISED, |sample, _| normalise(&sample))))
    }

    /// The images that are held out.
    ///
    /// # Errors
    /// When their files are not there or not whole.
    pub fn held_out(&self) -> Result<Samples, DataError> {
        let images = Mnist::open(&self.folder, Part::Test)?;
        Ok(Box::new(images.map(NORMALISED, |sample, _| normalise(&sample))))
    }

    /// The job: batches of 128 images, or of 64 where there are few, cut into 8 shards.
    ///
    /// # Errors
    /// When the files are not there or not whole.
    pub fn job(&self, epochs: u64) -> Result<JobBuilder, DataError> {
        let training = self.training()?;
        let batch = if training.len() < 10_000 { 64 } else { 128 };
        Ok(Job::builder("mnist")
            .seed(7)
            .shards(8)
            .train(&training, batch)?
            .epochs(epochs))
    }

    /// State 0 of the job with the dense network 784-128-60-10, to be computed on what `choice` says.
    ///
    /// # Errors
    /// When the files are not there or not whole, the job is for others, or the device cannot be used.
    pub fn dense(self, spec: &JobSpec, choice: DeviceChoice) -> Result<Model<Dense>, ModelError> {
        self.fit(
            spec,
            build_on(choice, spec.seed, CrossEntropy::new(), |builder| {
                Dense::new(builder, &[SIZE * SIZE, 128, 60, 10])
            })?,
        )
    }

    /// State 0 of the job with the convolutional network, to be computed on what `choice` says.
    ///
    /// # Errors
    /// When the files are not there or not whole, the job is for others, or the device cannot be used.
    pub fn cnn(self, spec: &JobSpec, choice: DeviceChoice) -> Result<Model<Cnn>, ModelError> {
        self.fit(spec, build_on(choice, spec.seed, CrossEntropy::new(), Cnn::new)?)
    }

    fn fit<M: candle_nn::ModuleT>(&self, spec: &JobSpec, network: Network<M>) -> Result<Model<M>, ModelError> {
        let fit = Fit::builder(network)
            .data(Loader::new(self.training()?)?)
            .held_out(self.held_out()?)
            .optimizer(Adam::new(), Schedule::cosine(1e-3, 0.0, spec.steps.get()));
        Ok(fit.build(spec)?)
    }
}

/// A network for these images.
pub type Network<M> = Net<M, CrossEntropy, Array<f32>, u32>;

/// A network with its images and optimizer.
pub type Model<M> = Fit<Network<M>>;

fn normalise((image, label): &(Image, u32)) -> Result<(Array<f32>, u32), DataError> {
    Ok((image.normalise(&[MEAN], &[DEVIATION])?, *label))
}

/// Each image as one of [`SIZE`] rows and columns of bytes: between pixels' centres the values change linearly.
fn enlarged(images: &Images) -> Result<(Vec<Vec<u8>>, Vec<u8>), DataError> {
    // Of each row or column: the two small ones that it lies between, and how far it is from the first.
    let place = |at: usize| {
        let centre = (at as f32 + 0.5) * SMALL as f32 / SIZE as f32 - 0.5;
        let centre = centre.clamp(0.0, (SMALL - 1) as f32);
        let first = (centre as usize).min(SMALL - 2);
        (first, centre - first as f32)
    };
    let large = |pixels: &[f32]| -> Vec<u8> {
        let places = (0..SIZE).flat_map(|row| (0..SIZE).map(move |column| (place(row), place(column))));
        let values = places.map(|((row, down), (column, right))| {
            let pixel = |row: usize, column: usize| pixels[row * SMALL + column];
            let along = |row: usize| pixel(row, column) * (1.0 - right) + pixel(row, column + 1) * right;
            along(row) * (1.0 - down) + along(row + 1) * down
        });
        values.map(|value| (value * 255.0).round() as u8).collect()
    };
    let all = (0..images.len()).map(|index| images.image(index));
    let all = all.map(|image| image.map(|(pixels, label)| (large(pixels), label as u8)));
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}
