//! A small model for these tests, with a switch for what may go wrong in it after it has joined.

use std::thread::sleep;
use std::time::Duration;

use sardana::data::Shard;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable};
use sardana::{Job, JobSpec};

/// Fits one number to the mean of 0 … n-1.
#[derive(Debug, Default)]
pub(crate) struct Slope {
    pub(crate) w: f64,
    pub(crate) fault: Fault,
    pub(crate) tensor: &'static str,
    /// How long each gradient takes.
    pub(crate) pause: Duration,
}

/// What goes wrong, at step 2: after the probe and after joining.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    GradientFails,
    GradientPanics,
    GradientUnwritten,
    SamplesMiscounted,
    ApplyFails,
    EvaluateFails,
    ResultsEndless,
    ResultNameEndless,
}

pub(crate) fn job(workers: u32) -> Job {
    let builder = Job::builder("slope").seed(7).shards(4).steps(5).data(64, 16);
    builder.workers(workers).min_workers(workers).build().unwrap()
}

impl Slope {
    pub(crate) fn new(_: &JobSpec) -> Result<Self, ModelError> {
        Ok(Self {
            tensor: "w",
            ..Self::default()
        })
    }

    pub(crate) fn faulty(fault: Fault) -> impl Fn(&JobSpec) -> Result<Self, ModelError> {
        move |spec| {
            Ok(Self {
                fault,
                ..Self::new(spec)?
            })
        }
    }
}

impl Trainable for Slope {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new(self.tensor, Dtype::F64, &[1])]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        sleep(self.pause);
        let fault = if shard.step() == Step::new(2) {
            self.fault
        } else {
            Fault::None
        };
        let slope: f64 = shard.samples().iter().map(|&sample| self.w - sample as f64).sum();
        let mut samples = shard.samples().len() as u64;
        match fault {
            Fault::GradientFails => return Err("the disk is gone".into()),
            Fault::GradientPanics => panic!("this panic is part of a test"),
            Fault::GradientUnwritten => return Ok(()),
            Fault::SamplesMiscounted => samples += 1,
            Fault::None | Fault::ApplyFails | Fault::EvaluateFails | Fault::ResultsEndless | Fault::ResultNameEndless => {}
        }
        out.write_f64(0, &[slope])?;
        Ok(out.samples(samples)?)
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        if self.fault == Fault::ApplyFails && step == Step::new(2) {
            return Err("no memory".into());
        }
        self.w -= 0.5 * mean.f64(0)?[0];
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        visitor(&TensorSpec::new(self.tensor, Dtype::F64, &[1]), &self.w.to_le_bytes());
        Ok(())
    }

    fn load(&mut self, _: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.w = f64::from_le_bytes(bytes.try_into()?);
        Ok(())
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        match self.fault {
            Fault::EvaluateFails => Err("no test data".into()),
            Fault::ResultsEndless => Ok((0..100_000).map(|index| (index.to_string(), 0.0)).collect()),
            Fault::ResultNameEndless => Ok(vec![("x".repeat(1 << 20), 0.0)]),
            Fault::None
            | Fault::GradientFails
            | Fault::GradientPanics
            | Fault::GradientUnwritten
            | Fault::SamplesMiscounted
            | Fault::ApplyFails => Ok(vec![("w".to_owned(), self.w)]),
        }
    }
}
