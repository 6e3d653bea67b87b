//! A job as its author describes it: raw in [`JobBuilder`], checked once into [`Job`]. An invalid one cannot be held.

mod error;

use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, JobSpec, LastBatch, Order};
use sardana_protocol::limits::{MAX_SHARDS, MAX_STEPS, MAX_TEXT_BYTES, MAX_WORKERS};
use sardana_protocol::membership::Balance;
use sardana_protocol::words::Step;

use crate::checkpointing::Checkpointing;
use crate::data::{DataError, Dataset, Sampler};
use crate::device::DeviceChoice;

pub use error::JobError;

/// A checked job: its constants, and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    spec: JobSpec,
    staffing: Staffing,
    checkpoints: Option<Checkpointing>,
    device: Option<DeviceChoice>,
}

/// How many workers run a job. None of it reaches the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staffing {
    /// How many workers are started.
    pub workers: u32,
    /// Fewer than this do not train: the job waits.
    pub min: u32,
    /// Workers beyond this are spares.
    pub max: u32,
    /// How many times in all a worker that ended badly is replaced.
    pub restarts: u32,
    /// How many shards one worker is given at most; as many as its memory holds if none.
    pub shard_capacity: Option<u32>,
    /// Whether shards move towards faster workers, so that all finish together.
    pub balance: Balance,
}

impl Staffing {
    fn check(&self) -> Result<(), JobError> {
        let &Self { workers, min, max, .. } = self;
        if self.shard_capacity == Some(0) {
            return Err(JobError::NoRoom);
        }
        if !(1 <= min && min <= workers && workers <= max && max <= MAX_WORKERS) {
            return Err(JobError::Staffing { min, workers, max });
        }
        Ok(())
    }
}

/// A job as it was written down. [`Self::build`] checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobBuilder {
    /// Without its length.
    spec: JobSpec,
    steps: u64,
    epochs: u64,
    staffing: Staffing,
    checkpoints: Option<Checkpointing>,
    device: Option<DeviceChoice>,
}

impl JobBuilder {
    /// Where and when checkpoints are kept. None are if this is not set.
    #[must_use]
    pub fn checkpoints(mut self, checkpoints: Checkpointing) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// What [`crate::train()`] has the workers compute on, for which it deals out this host's GPUs. If this is not set, what
    /// [`crate::device::DEVICE_VARIABLE`] says counts. The model asks by itself which GPU is its own.
    #[must_use]
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device = Some(device);
        self
    }

    /// Keys the data order and every random number. 0 if not set.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = seed;
        self
    }

    /// K, into how many shards each global batch is cut: the most workers that can compute at once. 8 if not set.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.spec.shards = shards;
        self
    }

    /// The job's length in updates.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// The job's length in passes over the data.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// The data: how many samples there are, and how many make one global batch, whatever the number of workers. Only their number is then
    /// compared between workers; [`Self::train`] compares the data themselves.
    #[must_use]
    pub fn data(mut self, samples: u64, batch: u64) -> Self {
        self.spec.samples = samples;
        self.spec.batch = batch;
        self.spec.data = DataFingerprint::default();
        self
    }

    /// The data, and how many samples make one global batch, whatever the number of workers. Their fingerprint becomes part of the job's
    /// identity, so that a worker whose files differ is refused and told which; reading them for it may take a while.
    ///
    /// # Errors
    /// When the data cannot be read.
    pub fn train<D: Dataset>(mut self, data: &D, batch: u64) -> Result<Self, DataError> {
        self = self.data(data.len(), batch);
        self.spec.data = data.fingerprint()?;
        Ok(self)
    }

    /// Leaves out the last batch of each epoch where it would be shorter than the others. It is trained on if this is not set.
    #[must_use]
    pub fn drop_last(mut self) -> Self {
        self.spec.last_batch = LastBatch::Dropped;
        self
    }

    /// In which order gradients are added; [`Order::Exact`] if not set. [`Order::Fast`] gives up BITS-1.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.spec.order = order;
        self
    }

    /// As what the f32 of gradients travel between workers, in [`Order::Fast`] alone; [`Compression::None`] if not set. As halves they take half the
    /// bytes, and each of n workers rounds a sum once, by at most 2⁻⁸ of it ([`Compression::Bf16`]) or 2⁻¹¹ ([`Compression::F16`], in which
    /// the sum over a batch, not its mean, is infinite from 65,520 on, and what is below 6e-5 loses more: prefer bf16): so it ends at most about n times that part of the sum of its terms' magnitudes away from the sum
    /// ([`sardana_collectives::compression`] derives it). All workers have the same bits. It pays over a network, whose bytes cost more
    /// than the rounding, and not through memory that workers of one host share.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.spec.compression = compression;
        self
    }

    /// How many workers are started. 1 if not set.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.staffing.workers = workers;
        self
    }

    /// Fewer workers than this do not train. 1 if not set.
    #[must_use]
    pub fn min_workers(mut self, min: u32) -> Self {
        self.staffing.min = min;
        self
    }

    /// Workers beyond this are spares. No bound if not set.
    #[must_use]
    pub fn max_workers(mut self, max: u32) -> Self {
        self.staffing.max = max;
        self
    }

    /// How many times in all a worker that ended badly is replaced. 3 if not set.
    #[must_use]
    pub fn restarts(mut self, restarts: u32) -> Self {
        self.staffing.restarts = restarts;
        self
    }

    /// How many shards one worker is given at most, whatever memory it finds. If this is not set it finds out how many gradients it has
    /// room for, and is given no more than it can hold: in exact order one for each shard, but for the first rank, which adds as it computes.
    #[must_use]
    pub fn shard_capacity(mut self, shards: u32) -> Self {
        self.staffing.shard_capacity = Some(shards);
        self
    }

    /// Whether shards move towards faster workers, so that all finish together; they do if this is not set. In exact order that never
    /// reaches the result. Turn it off ([`Balance::Off`]) for a job in fast order that should repeat its bits with the same workers.
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.staffing.balance = balance;
        self
    }

    /// Checks the job.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn build(self) -> Result<Job, JobError> {
        if self.spec.name.is_empty() || self.spec.name.len() > MAX_TEXT_BYTES {
            return Err(JobError::Name(self.spec.name.len()));
        }
        if self.spec.shards == 0 || self.spec.shards > MAX_SHARDS {
            return Err(JobError::Shards(self.spec.shards));
        }
        if !self.spec.compression.is_possible(self.spec.order) {
            return Err(JobError::Compression(self.spec.compression));
        }
        self.staffing.check()?;
        let spec = JobSpec {
            steps: self.length()?,
            ..self.spec
        };
        Sampler::new(&spec)?;
        Ok(Job {
            spec,
            staffing: self.staffing,
            checkpoints: self.checkpoints,
            device: self.device,
        })
    }

    fn length(&self) -> Result<Step, JobError> {
        let steps = match (self.steps, self.epochs) {
            (0, 0) => return Err(JobError::NoSteps),
            (steps, 0) => steps,
            (0, epochs) => {
                let per_epoch = self.spec.steps_per_epoch();
                epochs.checked_mul(per_epoch).ok_or(JobError::TooLong(epochs))?
            }
            (steps, epochs) => return Err(JobError::TwoLengths { steps, epochs }),
        };
        if steps > MAX_STEPS {
            return Err(JobError::TooManySteps(steps));
        }
        Ok(Step::new(steps))
    }
}

impl Job {
    /// Starts to describe the job `name`.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> JobBuilder {
        JobBuilder {
            spec: JobSpec {
                name: name.into(),
                seed: 0,
                shards: 8,
                steps: Step::ZERO,
                samples: 0,
                batch: 0,
                last_batch: LastBatch::Short,
                order: Order::Exact,
                compression: Compression::None,
                data: DataFingerprint::default(),
            },
            steps: 0,
            epochs: 0,
            staffing: Staffing {
                workers: 1,
                min: 1,
                max: MAX_WORKERS,
                restarts: 3,
                shard_capacity: None,
                balance: Balance::default(),
            },
            checkpoints: None,
            device: None,
        }
    }

    /// Its constants: the same for every worker.
    #[must_use]
    pub const fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// How many steps a pass over the data has.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.spec.steps_per_epoch()
    }

    /// What its workers compute on, if that was said.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceChoice> {
        self.device
    }

    /// How many workers run it, and how.
    #[must_use]
    pub const fn staffing(&self) -> &Staffing {
        &self.staffing
    }

    /// Where and when its checkpoints are kept, if any are.
    #[must_use]
    pub const fn checkpoints(&self) -> Option<&Checkpointing> {
        self.checkpoints.as_ref()
    }

    /// The same job run by other numbers of workers.
    ///
    /// # Errors
    /// When the numbers contradict each other.
    pub fn staffed(mut self, staffing: Staffing) -> Result<Self, JobError> {
        staffing.check()?;
        self.staffing = staffing;
        Ok(self)
    }

    /// How many shards one worker is given at most, if its memory holds them.
    #[must_use]
    pub fn shard_capacity(&self) -> u32 {
        self.staffing.shard_capacity.unwrap_or(self.spec.shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> JobBuilder {
        Job::builder("test").data(100, 10).steps(5)
    }

    #[test]
    fn a_job_is_checked_once() {
        let job = builder().seed(7).workers(4).min_workers(2).build().unwrap();
        assert_eq!((job.spec().seed, job.spec().shards, job.spec().steps), (7, 8, Step::new(5)));
        assert_eq!(builder().steps(0).epochs(3).build().unwrap().spec().steps, Step::new(30));
        let uneven = || builder().data(100, 30).steps(0).epochs(2);
        assert_eq!(uneven().build().unwrap().spec().steps, Step::new(8));
        assert_eq!(uneven().drop_last().build().unwrap().spec().steps, Step::new(6));
    }

    #[test]
    fn each_wrong_setting_is_named() {
        let wrong = |builder: JobBuilder| builder.build().unwrap_err();
        assert!(matches!(wrong(builder().shards(0)), JobError::Shards(0)));
        assert!(matches!(wrong(builder().shards(MAX_SHARDS + 1)), JobError::Shards(_)));
        assert_eq!(wrong(builder().steps(0)), JobError::NoSteps);
        assert!(matches!(wrong(builder().epochs(2)), JobError::TwoLengths { .. }));
        assert!(matches!(wrong(builder().steps(0).epochs(u64::MAX)), JobError::TooLong(_)));
        let steps = MAX_STEPS + 1;
        assert_eq!(wrong(builder().steps(steps)), JobError::TooManySteps(steps));
        assert!(matches!(wrong(builder().data(0, 0)), JobError::Data(_)));
        assert!(matches!(wrong(builder().workers(0)), JobError::Staffing { .. }));
        assert!(matches!(wrong(builder().min_workers(2)), JobError::Staffing { .. }));
        assert!(matches!(
            wrong(builder().workers(3).max_workers(2)),
            JobError::Staffing { .. }
        ));
        assert_eq!(wrong(builder().shard_capacity(0)), JobError::NoRoom);
        let compressed = builder().compression(Compression::F16);
        assert_eq!(wrong(compressed.clone()), JobError::Compression(Compression::F16));
        let job = compressed.order(Order::Fast).build().unwrap();
        assert_eq!(job.spec().compression, Compression::F16);
        assert!(matches!(wrong(Job::builder("").data(1, 1).steps(1)), JobError::Name(0)));
    }
}
