//! What a trial trains and on how many workers, and how a worker process is told: through its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sardana::{Balance, Compression, Job, Order};
use serde::{Deserialize, Serialize};

/// The variable with the job, as JSON.
const JOB_VARIABLE: &str = "SARDANA_CHAOS_JOB";

/// The variable with the folder of journal and gates.
const FOLDER_VARIABLE: &str = "SARDANA_CHAOS_FOLDER";

/// A trial's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// How many workers are started.
    pub workers: u32,
    /// Fewer workers do not train.
    pub min: u32,
    /// Workers beyond this many are spares.
    pub max: u32,
    /// Replacements in all.
    pub restarts: u32,
    /// K.
    pub shards: u32,
    /// The job's length.
    pub steps: u64,
    /// The data.
    pub samples: u64,
    /// The global batch.
    pub batch: u64,
    /// The order of addition.
    pub order: Order,
    /// As what f32 travel between workers.
    pub compression: Compression,
    /// Elements of the model's large tensor.
    pub elements: usize,
    /// Bytes of the state that are never trained: a state may be large though its gradient is small. Whole eights.
    pub ballast: usize,
    /// Whether updates are made while the state is being copied; if not, they wait for that.
    pub outlives_updates: bool,
    /// How long a gradient takes at least, in microseconds, in which a processor is busy.
    pub work_us: u64,
    /// How long a gradient sleeps besides, in microseconds: work that takes no processor from others.
    pub rest_us: u64,
    /// How many times as long a gradient takes in one of the processes: in the one that holds the folder's lock.
    pub slower: u32,
    /// Whether shards move towards faster workers. Off at first: a test that waits for a switch means one of its own.
    pub balance: Balance,
    /// From this step on gradients wait at gates, or take longer and longer.
    pub gate_step: u64,
}

impl Setup {
    /// A small job on `workers` workers; no shard is ever empty, and there is no waiting.
    #[must_use]
    pub const fn new(workers: u32) -> Self {
        Self {
            workers,
            min: 1,
            max: 1_024,
            restarts: 8,
            shards: 8,
            steps: 12,
            samples: 160,
            batch: 32,
            order: Order::Exact,
            compression: Compression::None,
            elements: 1_500,
            ballast: 0,
            outlives_updates: true,
            work_us: 0,
            rest_us: 0,
            slower: 1,
            balance: Balance::Off,
            gate_step: u64::MAX,
        }
    }

    /// The job.
    ///
    /// # Errors
    /// When the numbers make none.
    pub fn job(&self) -> Result<Job> {
        let job = Job::builder("chaos")
            .seed(7)
            .shards(self.shards)
            .steps(self.steps)
            .data(self.samples, self.batch)
            .order(self.order)
            .compression(self.compression)
            .workers(self.workers)
            .min_workers(self.min)
            .max_workers(self.max)
            .restarts(self.restarts)
            .balance(self.balance);
        Ok(job.build()?)
    }

    /// The environment that tells a worker process.
    #[must_use]
    pub fn environment(&self, folder: &Path) -> Vec<(OsString, OsString)> {
        let job = serde_json::json!(self).to_string();
        vec![(JOB_VARIABLE.into(), job.into()), (FOLDER_VARIABLE.into(), folder.into())]
    }

    /// The setup and folder that this process was told.
    ///
    /// # Errors
    /// When it was not told, or not like this.
    pub fn from_environment() -> Result<(Self, PathBuf)> {
        let text = std::env::var(JOB_VARIABLE).with_context(|| format!("{JOB_VARIABLE} tells a worker its job"))?;
        let folder = std::env::var_os(FOLDER_VARIABLE).with_context(|| format!("{FOLDER_VARIABLE} names a folder"))?;
        let setup = serde_json::from_str(&text).with_context(|| format!("{JOB_VARIABLE}: {text}"))?;
        Ok((setup, folder.into()))
    }
}
