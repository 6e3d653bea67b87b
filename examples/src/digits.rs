//! Handwritten digits: 1,797 images of 8 × 8 pixels, a dense network 64-128-60-10 with rectifiers, softmax and cross-entropy.
//!
//! The images are the test part of the "Optical Recognition of Handwritten Digits" data set (Alpaydin and Kaynak, UCI Machine
//! Learning Repository, 1998). Every fifth is held out for the evaluation. Must not know how or where it is trained.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use candle_core::{D, Device, Tensor, Var};
use sardana::data::Shard;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::{Job, JobSpec};

use crate::candle_adapter::{Adam, CandleModel, Objective, Start};
use crate::table::{self, FirstLine, Row};

const PIXELS: usize = 64;
const HIDDEN: [usize; 2] = [128, 60];
const CLASSES: usize = 10;

/// The darkest pixel.
const DARKEST: f64 = 16.0;

/// One row of this many is held out, the first among them.
const HELD_OUT: usize = 5;

/// How often each sample is seen.
const EPOCHS: u64 = 30;

const CSV: &str = include_str!("../data/digits.csv");

/// The job: 30 epochs in batches of 64, cut into 8 shards.
#[must_use]
pub fn job() -> JobBuilder {
    // 1,437 images to train on: 23 steps an epoch.
    Job::builder("digits").seed(42).shards(8).data(1_437, 64).epochs(EPOCHS)
}

/// The constants of [`job`].
///
/// # Panics
/// Never: they are valid.
#[must_use]
pub fn spec() -> JobSpec {
    job().build().expect("the job's constants are valid").spec().clone()
}

/// Images, each pixel from 0 to 1, and what they show.
#[derive(Clone, Debug, Default, PartialEq)]
struct Images {
    pixels: Vec<f32>,
    labels: Vec<u32>,
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

    fn len(&self) -> usize {
        self.labels.len()
    }
}

/// The network's loss over its images.
#[derive(Clone, Debug)]
pub struct Network {
    training: Images,
    held_out: Images,
}

impl Network {
    fn parse(text: &str, source: &str) -> Result<Self> {
        let (mut training, mut held_out) = (Images::default(), Images::default());
        for (index, row) in table::parse(text, source, FirstLine::Row, PIXELS + 1)?.iter().enumerate() {
            let part = if index % HELD_OUT == 0 { &mut held_out } else { &mut training };
            part.push(row, source)?;
        }
        Ok(Self { training, held_out })
    }

    /// From pixels, a row for each image, to a score for each digit.
    fn scores(parameters: &[Var], pixels: &Tensor) -> candle_core::Result<Tensor> {
        let layer = |input: &Tensor, number: usize| {
            let (weights, bias) = (&parameters[2 * number], &parameters[2 * number + 1]);
            input.matmul(weights)?.broadcast_add(bias)
        };
        let hidden = layer(pixels, 0)?.relu()?;
        let hidden = layer(&hidden, 1)?.relu()?;
        layer(&hidden, 2)
    }
}

/// How many rows of scores are highest at their label.
fn correct(scores: &Tensor, labels: &[u32]) -> candle_core::Result<usize> {
    let guesses = scores.argmax(D::Minus1)?.to_vec1::<u32>()?;
    Ok(guesses.iter().zip(labels).filter(|(guess, label)| guess == label).count())
}

impl Objective for Network {
    fn auxiliary(&self) -> Vec<String> {
        vec!["loss".to_owned(), "correct".to_owned()]
    }

    fn loss(&self, parameters: &[Var], shard: &Shard, sums: &mut [f64]) -> Result<Tensor> {
        let count = shard.samples().len();
        let mut pixels = Vec::with_capacity(count * PIXELS);
        let mut labels = Vec::with_capacity(count);
        for &sample in shard.samples() {
            let sample = sample as usize;
            ensure!(
                sample < self.training.len(),
                "expected samples below {}, found {sample}; set the job's `samples` to that",
                self.training.len()
            );
            pixels.extend_from_slice(&self.training.pixels[sample * PIXELS..][..PIXELS]);
            labels.push(self.training.labels[sample]);
        }
        let pixels = Tensor::from_vec(pixels, (count, PIXELS), &Device::Cpu)?;
        let scores = Self::scores(parameters, &pixels)?;
        sums[1] += correct(&scores, &labels)? as f64;

        // Cross-entropy, log Σ exp(scores) - score of the label. Subtracting the highest score changes nothing but keeps exp
        // finite, so no gradient goes through it.
        let labels = Tensor::from_vec(labels, (count, 1), &Device::Cpu)?;
        let scores = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
        let total = scores.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let loss = (total - scores.gather(&labels, D::Minus1)?)?.sum_all()?;
        sums[0] += f64::from(loss.to_scalar::<f32>()?);
        Ok(loss)
    }

    fn evaluate(&self, parameters: &[Var]) -> Result<Vec<(String, f64)>> {
        let count = self.held_out.len();
        let pixels = Tensor::from_slice(&self.held_out.pixels, (count, PIXELS), &Device::Cpu)?;
        let correct = correct(&Self::scores(parameters, &pixels)?, &self.held_out.labels)?;
        Ok(vec![("accuracy".to_owned(), correct as f64 / count as f64)])
    }
}

/// The network with its images and optimizer.
pub type Digits = CandleModel<Network>;

impl Digits {
    /// State 0 of the job, with the images that come with this program.
    ///
    /// # Errors
    /// When the job is for another number of images.
    pub fn new(spec: &JobSpec) -> Result<Self, ModelError> {
        Ok(Self::with_images(spec, CSV, "digits.csv")?)
    }

    /// State 0 of the job, with images from a CSV file of the same form: 64 pixels from 0 to 16 and a digit in each line.
    ///
    /// # Errors
    /// When the file cannot be read, is malformed, or the job is for another number of images.
    pub fn from_file(spec: &JobSpec, path: &Path) -> Result<Self, ModelError> {
        let source = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the images in {source}"))?;
        Ok(Self::with_images(spec, &text, &source)?)
    }

    fn with_images(spec: &JobSpec, text: &str, source: &str) -> Result<Self> {
        let network = Network::parse(text, source)?;
        let found = network.training.len();
        ensure!(
            spec.samples == found as u64,
            "{source}: expected {} images to train on, as the job says, found {found}; set the job's `samples` to {found}",
            spec.samples
        );
        let [first, second] = HIDDEN;
        let starts = vec![
            Start::he("layer1.weights", PIXELS, first, spec.seed, 0),
            Start::zeros("layer1.bias", &[first]),
            Start::he("layer2.weights", first, second, spec.seed, 1),
            Start::zeros("layer2.bias", &[second]),
            Start::he("layer3.weights", second, CLASSES, spec.seed, 2),
            Start::zeros("layer3.bias", &[CLASSES]),
        ];
        Self::build(network, Adam::default(), starts)
    }
}

#[cfg(test)]
#[path = "digits_tests.rs"]
mod tests;
