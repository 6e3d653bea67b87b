//! A job that does nothing but communicate: each rank writes a gradient of some bytes, the ranks sum them, and no rank uses the sum. Real worker
//! processes under a real coordinator, so that what is measured is what a job has.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sardana::data::Shard;
use sardana::device::DeviceChoice;
use sardana::job::JobBuilder;
use sardana::model::{DeviceMemory, Dtype, GradientWriter, Mean, ModelError, TensorSpec, Trainable};
use sardana::{Compression, Job, Order, Step, serve_if_started_by_agent};
use serde::{Deserialize, Serialize};

use super::lying::Lying;
use super::times::processor;
use crate::ending::Failure;

/// What is exchanged, and how often.
#[derive(Debug, Clone, Args)]
pub(super) struct Exchange {
    /// Bytes of a gradient.
    #[arg(long)]
    pub(super) bytes: u64,
    /// Updates before the measured ones.
    #[arg(long)]
    pub(super) warm_up: u64,
    /// Updates that are measured.
    #[arg(long)]
    pub(super) steps: u64,
    /// Workers.
    #[arg(long)]
    pub(super) ranks: u32,
    /// K: gradients in a step.
    #[arg(long)]
    pub(super) shards: u32,
    /// Whether the order of addition is free.
    #[arg(long)]
    pub(super) fast: bool,
    /// As what f32 travel.
    #[arg(long, value_enum, default_value_t = Travel::None)]
    pub(super) compression: Travel,
    /// Where each rank writes down what it took.
    #[arg(long)]
    pub(super) folder: PathBuf,
}

/// As what f32 travel from worker to worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Travel {
    /// As they are.
    None,
    /// As bfloat16.
    Bf16,
    /// As IEEE binary16.
    F16,
}

impl From<Travel> for Compression {
    fn from(travel: Travel) -> Self {
        match travel {
            Travel::None => Self::None,
            Travel::Bf16 => Self::Bf16,
            Travel::F16 => Self::F16,
        }
    }
}

/// One rank of the exchange: a worker process.
#[derive(Debug, Args)]
pub(super) struct Rank {
    #[command(flatten)]
    exchange: Exchange,
}

/// What one rank took for the measured steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Took {
    /// Each step, in seconds.
    pub(super) steps: Vec<f64>,
    /// Seconds of a processor, for all of them.
    pub(super) processor: f64,
}

impl Rank {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let job = self.exchange.job().build().map_err(Failure::failed)?;
        serve_if_started_by_agent(&job, |_| Exchanging::new(self.exchange));
        Err(Failure::Usage("this is what `sardana bench all-reduce` starts".to_owned()))
    }
}

impl Exchange {
    /// The arguments by which a worker is told of it.
    pub(super) fn arguments(&self) -> Vec<std::ffi::OsString> {
        let number = |name: &str, value: u64| [name.into(), value.to_string().into()];
        let mut arguments = vec!["bench".into(), "rank".into()];
        arguments.extend(number("--bytes", self.bytes));
        arguments.extend(number("--warm-up", self.warm_up));
        arguments.extend(number("--steps", self.steps));
        arguments.extend(number("--ranks", self.ranks.into()));
        arguments.extend(number("--shards", self.shards.into()));
        arguments.extend(self.fast.then(|| "--fast".into()));
        let compression = Compression::from(self.compression).to_string();
        arguments.extend(["--compression".into(), compression.into()]);
        arguments.extend(["--folder".into(), self.folder.clone().into()]);
        arguments
    }

    pub(super) fn job(&self) -> JobBuilder {
        let samples = u64::from(self.shards);
        let order = if self.fast { Order::Fast } else { Order::Exact };
        Job::builder("all-reduce")
            .seed(0)
            .order(order)
            .compression(self.compression.into())
            .shards(self.shards)
            .data(samples, samples)
            .steps(self.warm_up + self.steps)
            .workers(self.ranks)
    }

    fn elements(&self) -> usize {
        usize::try_from(self.bytes / 4).unwrap_or(usize::MAX)
    }

    /// What the ranks have written down.
    pub(super) fn took(&self) -> Result<Vec<Took>, Failure> {
        let read = |folder: &Path| -> io::Result<Vec<Took>> {
            std::fs::read_dir(folder)?
                .map(|entry| serde_json::from_slice(&std::fs::read(entry?.path())?).map_err(io::Error::other))
                .collect()
        };
        let took = read(&self.folder).map_err(Failure::failed)?;
        if took.len() == self.ranks as usize && took.iter().all(|took| took.steps.len() as u64 == self.steps) {
            return Ok(took);
        }
        Err(Failure::Failed(format!(
            "expected the times of {} ranks, found {}: did one die?",
            self.ranks,
            took.len()
        )))
    }
}

/// The model: its gradient is large, its state is one number.
struct Exchanging {
    exchange: Exchange,
    gradient: Lying,
    sums: f32,
    last: Option<Instant>,
    began: Option<Duration>,
    took: RefCell<Took>,
}

impl Exchanging {
    fn new(exchange: Exchange) -> Result<Self, ModelError> {
        // What its agent says of devices.
        let choice = DeviceChoice::said(None)?;
        Ok(Self {
            gradient: Lying::new(exchange.elements(), choice)?,
            exchange,
            sums: 0.0,
            last: None,
            began: None,
            took: RefCell::default(),
        })
    }
}

impl Trainable for Exchanging {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new("gradient", Dtype::F32, &[self.gradient.elements()])]
    }

    fn device(&self) -> String {
        self.gradient.device()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.gradient.memory()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        self.gradient.write(out)?;
        out.samples(shard.samples().len() as u64)?;
        Ok(())
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.sums += mean.samples() as f32;
        self.gradient.take(mean)?;
        let now = Instant::now();
        let processor = processor();
        let last = self.last.replace(now);
        if step.get() + 1 == self.exchange.warm_up {
            self.began = Some(processor);
            self.took.take();
        } else if let Some((last, began)) = last.zip(self.began) {
            let mut took = self.took.borrow_mut();
            took.steps.push((now - last).as_secs_f64());
            took.processor = processor.saturating_sub(began).as_secs_f64();
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        visitor(&TensorSpec::new("sums", Dtype::F32, &[1]), &self.sums.to_le_bytes());
        Ok(())
    }

    fn load(&mut self, _: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.sums = f32::from_le_bytes(bytes.try_into()?);
        Ok(())
    }

    /// Nothing that all ranks would agree on. What this one took is written down.
    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let place = self.exchange.folder.join(std::process::id().to_string());
        std::fs::write(place, serde_json::to_vec(&*self.took.borrow())?)?;
        Ok(Vec::new())
    }
}
