//! The next letter of a text: a small transformer on text of this repository, or any other. A token is a byte; a sample is a stretch of the
//! text, and its target the same stretch one byte further on. The last tenth of the text is held out.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use sardana::data::fingerprint::Fingerprinting;
use sardana::data::{Array, DataError, DataFingerprint, DataHash, Dataset, Loader, SampleRandom};
use sardana::device::DeviceChoice;
use sardana::fit::Fit;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::optim::AdamW;
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec};
use sardana_candle::{CrossEntropy, Net, build_on};

use crate::networks::{Sizes, Transformer};

const TEXTS: [&str; 2] = [include_str!("../../ARCHITECTURE.md"), include_str!("../../README.md")];

/// Bytes of a sample.
const STRETCH: usize = 64;

/// The network: 0.2 million parameters.
const SIZES: Sizes = Sizes {
    tokens: 256,
    places: STRETCH,
    width: 64,
    heads: 4,
    layers: 2,
    dropout: 0.1,
};

/// The transformer with its text and optimizer.
pub type Model = Fit<Net<Transformer, CrossEntropy, Array<u32>, Array<u32>>>;

/// Stretches of a text, one after the other.
#[derive(Clone, Debug)]
pub struct Stretches {
    bytes: Arc<[u8]>,
}

/// A text in two parts.
#[derive(Clone, Debug)]
pub struct Text {
    /// The first nine tenths.
    pub training: Stretches,
    /// The rest.
    pub held_out: Stretches,
}

impl Text {
    /// What this repository says of itself.
    ///
    /// # Errors
    /// Never: it is long enough.
    pub fn built_in() -> Result<Self> {
        Self::new(TEXTS.concat().as_bytes())
    }

    /// All of a file.
    ///
    /// # Errors
    /// When it cannot be read or is too short.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("cannot read the text in {}", file.display()))?;
        Self::new(&text).with_context(|| file.display().to_string())
    }

    fn new(text: &[u8]) -> Result<Self> {
        let least = 20 * (STRETCH + 1);
        ensure!(
            text.len() >= least,
            "expected a text of at least {least} bytes, found {}",
            text.len()
        );
        let (training, held_out) = text.split_at(text.len() / 10 * 9);
        let part = |bytes: &[u8]| Stretches { bytes: bytes.into() };
        Ok(Self {
            training: part(training),
            held_out: part(held_out),
        })
    }

    /// The job: batches of 32 stretches, or of all where there are fewer, cut into 8 shards.
    ///
    /// # Errors
    /// Never: the text is in memory.
    pub fn job(&self, epochs: u64) -> Result<JobBuilder, DataError> {
        let batch = self.training.len().min(32);
        Ok(Job::builder("chars")
            .seed(3)
            .shards(8)
            .train(&self.training, batch)?
            .epochs(epochs))
    }

    /// State 0 of the job, to be computed on what `choice` says.
    ///
    /// # Errors
    /// When the job is for another text, or the device cannot be used.
    pub fn model(self, spec: &JobSpec, choice: DeviceChoice) -> Result<Model, ModelError> {
        let network = build_on(choice, spec.seed, CrossEntropy::new(), |builder| {
            Transformer::new(builder, SIZES)
        })?;
        let steps = spec.steps.get();
        let fit = Fit::builder(network)
            .data(Loader::on_demand(self.training))
            .held_out(self.held_out)
            .measure_batch(32)
            .optimizer(AdamW::new(), Schedule::cosine(3e-3, 3e-4, steps).warm_up(steps.min(100)))
            .decay(0.1)
            .clip_norm(1.0);
        Ok(fit.build(spec)?)
    }
}

impl Dataset for Stretches {
    type Item = (Array<u32>, Array<u32>);

    fn len(&self) -> u64 {
        ((self.bytes.len() - 1) / STRETCH) as u64
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        if index >= self.len() {
            return Err(DataError::NoSample {
                samples: self.len(),
                index,
            });
        }
        let start = index as usize * STRETCH;
        let tokens = |at: usize| Array::row(self.bytes[at..at + STRETCH].iter().map(|&byte| u32::from(byte)).collect());
        Ok((tokens(start), tokens(start + 1)))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(Fingerprinting::default().part("the text", DataHash::of(&self.bytes)).finish())
    }
}
