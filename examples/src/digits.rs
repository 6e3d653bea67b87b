//! Handwritten digits: 1,797 images of 8 × 8 pixels, a dense network 64-128-60-10 with rectifiers, softmax and cross-entropy.
//!
//! The images are the test part of the "Optical Recognition of Handwritten Digits" data set (Alpaydin and Kaynak, UCI Machine
//! Learning Repository, 1998). Every fifth is held out for the evaluation. Must not know how or where it is trained.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use sardana::data::fingerprint::Fingerprinting;
use sardana::data::{Array, DataError, DataFingerprint, DataHash, Dataset, Loader, SampleRandom};
use sardana::device::DeviceChoice;
use sardana::fit::Fit;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::optim::Adam;
use sardana::{Job, JobSpec};
use sardana_candle::{CrossEntropy, Net, build_on};

use crate::networks::Dense;
use crate::table::{self, FirstLine, Row};

/// Pixels of an image: 8 rows of 8.
pub const PIXELS: usize = 64;

/// Units of each layer.
const LAYERS: [usize; 4] = [PIXELS, 128, 60, 10];

/// The darkest pixel.
const DARKEST: f64 = 16.0;

/// One row of this many is held out, the first among them.
const HELD_OUT: usize = 5;

/// How often each sample is seen.
const EPOCHS: u64 = 30;

const CSV: &str = include_str!("../data/digits.csv");

/// Images, each pixel from 0 to 1, and what they show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Images {
    pixels: Vec<f32>,
    labels: Vec<u32>,
}

/// All images: those that are trained on, and those that are held out.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// Four of five.
    pub training: Images,
    /// Every fifth.
    pub held_out: Images,
}

impl Digits {
    /// The images that come with this program.
    ///
    /// # Panics
    /// Never: they are well formed.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(CSV, "digits.csv").expect("the images of this program are well formed")
    }

    /// Images from a CSV file of the same form: 64 pixels from 0 to 16 and a digit in each line.
    ///
    /// # Errors
    /// When the file cannot be read or is malformed.
    pub fn read(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the images in {source}"))?;
        Self::parse(&text, &source)
    }

    fn parse(text: &str, source: &str) -> Result<Self> {
        let (mut training, mut held_out) = (Images::default(), Images::default());
        for (index, row) in table::parse(text, source, FirstLine::Row, PIXELS + 1)?.iter().enumerate() {
            let part = if index % HELD_OUT == 0 { &mut held_out } else { &mut training };
            part.push(row, source)?;
        }
        Ok(Self { training, held_out })
    }

    /// The job: 30 epochs in batches of 64, cut into 8 shards.
    ///
    /// # Errors
    /// Never: these images are in memory.
    pub fn job(&self) -> Result<JobBuilder, DataError> {
        // 1,437 images to train on: 23 steps an epoch.
        let job = Job::builder("digits").seed(42).shards(8).train(&self.training, 64)?;
        Ok(job.epochs(EPOCHS))
    }

    /// State 0 of the job, to be computed on what `choice` says.
    ///
    /// # Errors
    /// When the job is for another number of images, or the device cannot be used.
    pub fn model(self, spec: &JobSpec, choice: DeviceChoice) -> Result<Model, ModelError> {
        let network = build_on(choice, spec.seed, CrossEntropy::new(), |builder| Dense::new(builder, &LAYERS))?;
        let fit = Fit::builder(network)
            // The images are decoded already.
            .data(Loader::on_demand(self.training))
            .held_out(self.held_out)
            .optimizer(Adam::new(), 1e-3);
        Ok(fit.build(spec)?)
    }
}

/// The network with its images and optimizer.
pub type Model = Fit<Net<Dense, CrossEntropy, Array<f32>, u32>>;

/// The job on the images that come with this program.
///
/// # Panics
/// Never: they are in memory.
#[must_use]
pub fn job() -> JobBuilder {
    Digits::built_in().job().expect("images in memory have a fingerprint")
}

/// The constants of [`job`].
///
/// # Panics
/// Never: they are valid.
#[must_use]
pub fn spec() -> JobSpec {
    job().build().expect("the job's constants are valid").spec().clone()
}

/// State 0 of [`job`].
///
/// # Errors
/// When the job is for another number of images.
pub fn model(spec: &JobSpec) -> Result<Model, ModelError> {
    Digits::built_in().model(spec, DeviceChoice::Cpu)
}

impl Images {
    fn push(&mut self, row: &Row, source: &str) -> Result<()> {
        let (label, pixels) = row.numbers.split_last().context("a row has a label")?;
        let whole = |number: f64, most: f64| (0.0..=most).contains(&number) && number.fract() == 0.0;
        for (index, &pixel) in pixels.iter().enumerate() {
            ensure!(
                whole(pixel, DARKEST),
                "{source}, line {}: expected a pixel from 0 to {DARKEST} in field {}, found {pixel}",
                row.line,
                index + 1
            );
            self.pixels.push((pixel / DARKEST) as f32);
        }
        ensure!(
            whole(*label, 9.0),
            "{source}, line {}: expected a digit from 0 to 9 in field {}, found {label}",
            row.line,
            PIXELS + 1
        );
        self.labels.push(*label as u32);
        Ok(())
    }

    /// The pixels of image number `index`, each from 0 to 1, row by row; and what it shows.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn image(&self, index: u64) -> Result<(&[f32], u32), DataError> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let label = self.labels.get(at).ok_or(DataError::NoSample {
            samples: self.len(),
            index,
        })?;
        Ok((&self.pixels[at * PIXELS..][..PIXELS], *label))
    }
}

impl Dataset for Images {
    type Item = (Array<f32>, u32);

    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let (pixels, label) = self.image(index)?;
        Ok((Array::row(pixels.to_vec()), label))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let pixels: Vec<u8> = self.pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        let labels: Vec<u8> = self.labels.iter().flat_map(|label| label.to_le_bytes()).collect();
        let images = Fingerprinting::default().part("the images", DataHash::of(&pixels));
        Ok(images.part("the labels", DataHash::of(&labels)).finish())
    }
}

#[cfg(test)]
#[path = "digits_tests.rs"]
mod tests;
