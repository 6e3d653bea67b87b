//! From (seed, step, shard) to samples: the pure function that fixes the data order of a job.
//!
//! An epoch visits the data set in the order of its [`Permutation`]. Step i of the epoch takes the next `batch` places; the
//! last batch of an epoch may be short, or be left out. A batch is cut into K runs of ⌈batch / K⌉ places, shard by shard; the last shards may
//! be shorter or empty. It must not know which worker asks (DATA-1 needs no bookkeeping because of that).

use sardana_protocol::job::JobSpec;
use sardana_protocol::limits::MAX_SHARDS;
use sardana_protocol::words::Step;

use super::permutation::Permutation;
use super::random::{CounterRng, Domain, STEP_BITS};
use super::sample_random::SampleRandom;

/// Why a job's constants make no data order. Fix the named field of the [`JobSpec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamplerError {
    /// The data set is empty: give the job the number of samples it trains on.
    #[error("job spec: expected at least 1 in `samples`, found 0; set it to the number of training samples")]
    NoSamples,
    /// A step would take no sample, or more than an epoch has: choose a batch within the data set.
    #[error("job spec: expected `batch` from 1 to {samples} (the number of samples), found {batch}")]
    Batch {
        /// The batch that was given.
        batch: u64,
        /// How many samples there are.
        samples: u64,
    },
    /// A batch with more places than random numbers are keyed for: choose a smaller one.
    #[error("job spec: expected `batch` below 2^32, found {0}")]
    Places(u64),
    /// No shards, or more than messages may list: choose fewer.
    #[error("job spec: expected `shards` from 1 to {MAX_SHARDS}, found {0}")]
    Shards(u32),
    /// More steps than random numbers are keyed for: choose fewer.
    #[error("job spec: expected `steps` up to 2^{STEP_BITS}, found {0}")]
    Steps(Step),
}

/// A fixed slice of one step's global batch: which samples it holds, and its random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    seed: u64,
    step: Step,
    index: u32,
    /// The place of its first sample in the global batch.
    first_place: u64,
    samples: Vec<u64>,
}

impl Shard {
    /// The step whose batch it is cut from.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// Its number, below the job's K.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its samples, as indices into the user's data set, in the order in which they are to be added.
    #[must_use]
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// The memory of its samples, for those of another shard: see [`Sampler::shard_in`].
    #[must_use]
    pub fn into_room(self) -> Vec<u64> {
        self.samples
    }

    /// The same shard, with its samples in the memory of `room`.
    pub(crate) fn clone_in(&self, mut room: Vec<u64>) -> Self {
        room.clone_from(&self.samples);
        Self { samples: room, ..*self }
    }

    /// Whether it holds no sample; such a shard adds nothing, and no gradient is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The random numbers of its sample number `at`: those of the sample's place in the global batch, which does not depend on K.
    #[must_use]
    pub fn sample_random(&self, at: usize) -> SampleRandom {
        SampleRandom::new(self.seed, self.step.get(), (self.first_place + at as u64) as u32)
    }

    /// Random numbers of this shard in this step, the same wherever it is computed. Use one stream for each purpose.
    #[must_use]
    pub fn random(&self, stream: u32) -> CounterRng {
        CounterRng::new(
            self.seed,
            Domain::Shard {
                step: self.step.get(),
                shard: self.index,
                stream,
            },
        )
    }
}

/// Deals out the samples of a job.
#[derive(Clone, Debug)]
pub struct Sampler {
    seed: u64,
    shards: u32,
    samples: u64,
    batch: u64,
    steps_per_epoch: u64,
}

impl Sampler {
    /// The data order of a job.
    ///
    /// # Errors
    /// When the constants make none; the error names the field.
    pub fn new(spec: &JobSpec) -> Result<Self, SamplerError> {
        let &JobSpec {
            seed,
            shards,
            steps,
            samples,
            batch,
            ..
        } = spec;
        if samples == 0 {
            return Err(SamplerError::NoSamples);
        }
        if batch == 0 || batch > samples {
            return Err(SamplerError::Batch { batch, samples });
        }
        if batch > u64::from(u32::MAX) {
            return Err(SamplerError::Places(batch));
        }
        if shards == 0 || shards > MAX_SHARDS {
            return Err(SamplerError::Shards(shards));
        }
        if steps.get() > 1 << STEP_BITS {
            return Err(SamplerError::Steps(steps));
        }
        Ok(Self {
            seed,
            shards,
            samples,
            batch,
            steps_per_epoch: spec.steps_per_epoch(),
        })
    }

    /// K: how many shards every step has.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// How many steps an epoch has.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// Which epoch a step belongs to.
    #[must_use]
    pub fn epoch(&self, step: Step) -> u64 {
        step.get() / self.steps_per_epoch
    }

    /// How many samples the global batch of a step holds.
    #[must_use]
    pub fn samples(&self, step: Step) -> u64 {
        self.batch.min(self.samples - self.batch_start(step))
    }

    /// Shard number `index` of `step`.
    ///
    /// # Panics
    /// When `index` is not below K, or the step is 2⁴⁸ or more.
    #[must_use]
    pub fn shard(&self, step: Step, index: u32) -> Shard {
        self.shard_in(step, index, Vec::new())
    }

    /// The same, with its samples in the memory of `room`: nothing is allocated where as many have been there before.
    ///
    /// # Panics
    /// As [`Self::shard`].
    #[must_use]
    pub fn shard_in(&self, step: Step, index: u32, mut room: Vec<u64>) -> Shard {
        assert!(index < self.shards, "shards run from 0 to {}, found {index}", self.shards);
        let batch = self.samples(step);
        let run = batch.div_ceil(u64::from(self.shards));
        // K runs may reach beyond the largest number when the batch is near it.
        let start = u64::from(index).saturating_mul(run).min(batch);
        let end = start.saturating_add(run).min(batch);
        let origin = self.batch_start(step);
        let order = Permutation::new(self.seed, self.epoch(step), self.samples);
        room.clear();
        room.extend((start..end).map(|place| order.at(origin + place)));
        Shard {
            seed: self.seed,
            step,
            index,
            first_place: start,
            samples: room,
        }
    }

    /// The place in the epoch at which the batch of `step` starts: below `samples`.
    fn batch_start(&self, step: Step) -> u64 {
        step.get() % self.steps_per_epoch * self.batch
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sardana_protocol::job::{Compression, LastBatch, Order};

    use super::*;

    fn spec(seed: u64, shards: u32, samples: u64, batch: u64) -> JobSpec {
        JobSpec {
            name: "test".to_owned(),
            seed,
            shards,
            steps: Step::new(100),
            samples,
            batch,
            last_batch: LastBatch::Short,
            order: Order::Exact,
            compression: Compression::None,
            data: crate::DataFingerprint::default(),
        }
    }

    proptest! {
        /// DATA-1, and q = ⌈n / K⌉ of the step's own batch: all shards but the last non-empty one are full.
        #[test]
        fn an_epoch_visits_each_sample_exactly_once(
            seed: u64,
            shards in 1_u32..20,
            samples in 1_u64..600,
            part in 0_u64..600,
            epoch in 0_u64..5,
        ) {
            let sampler = Sampler::new(&spec(seed, shards, samples, 1 + part % samples)).unwrap();
            let per_epoch = sampler.steps_per_epoch();
            let mut seen = Vec::new();
            for step in epoch * per_epoch..(epoch + 1) * per_epoch {
                let step = Step::new(step);
                prop_assert_eq!(sampler.epoch(step), epoch);
                let before = seen.len();
                let run = sampler.samples(step).div_ceil(u64::from(shards)) as usize;
                for index in 0..shards {
                    let shard = sampler.shard(step, index);
                    let room = sampler.shard(Step::ZERO, 0).into_room();
                    prop_assert_eq!(&shard, &sampler.clone().shard_in(step, index, room));
                    let left = sampler.samples(step) as usize - (seen.len() - before);
                    prop_assert_eq!(shard.samples().len(), run.min(left));
                    seen.extend_from_slice(shard.samples());
                }
                prop_assert_eq!((seen.len() - before) as u64, sampler.samples(step));
            }
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..samples));
        }
    }

    #[test]
    fn samples_do_not_depend_on_how_many_shards_there_are() {
        let batch = |shards| -> Vec<u64> {
            let sampler = Sampler::new(&spec(42, shards, 1_437, 64)).unwrap();
            (0..shards)
                .flat_map(|index| sampler.shard(Step::new(30), index).samples().to_vec())
                .collect()
        };
        assert_eq!(batch(1), batch(8));
    }

    #[test]
    fn the_last_batch_of_an_epoch_is_short_and_its_last_shards_empty() {
        let sampler = Sampler::new(&spec(1, 4, 10, 9)).unwrap();
        assert_eq!(sampler.steps_per_epoch(), 2);
        let sizes = |step| [0, 1, 2, 3].map(|index| sampler.shard(Step::new(step), index).samples().len());
        assert_eq!(sizes(0), [3, 3, 3, 0]);
        assert_eq!(sizes(1), [1, 0, 0, 0]);
        assert!(sampler.shard(Step::new(1), 1).is_empty());
    }

    #[test]
    fn a_last_batch_may_be_left_out() {
        let spec = JobSpec {
            last_batch: LastBatch::Dropped,
            ..spec(1, 4, 10, 4)
        };
        let sampler = Sampler::new(&spec).unwrap();
        assert_eq!(sampler.steps_per_epoch(), 2);
        let seen = |epoch: u64| -> std::collections::BTreeSet<u64> {
            let steps = (2 * epoch..2 * epoch + 2).map(Step::new);
            let shards = steps.flat_map(|step| (0..4).map(move |index| (step, index)));
            shards
                .flat_map(|(step, index)| sampler.shard(step, index).samples().to_vec())
                .collect()
        };
        assert!(
            (0..20).all(|epoch| seen(epoch).len() == 8),
            "each sample at most once an epoch"
        );
        let ever: std::collections::BTreeSet<u64> = (0..20).flat_map(seen).collect();
        assert_eq!(ever.len(), 10, "others are left out each time");
    }

    #[test]
    fn a_sample_draws_the_same_numbers_however_the_batch_is_cut() {
        let draws = |shards| -> Vec<u64> {
            let sampler = Sampler::new(&spec(42, shards, 100, 50)).unwrap();
            let shards = (0..shards).map(|index| sampler.shard(Step::new(1), index));
            let draw = |shard: Shard| (0..shard.samples().len()).map(move |at| shard.sample_random(at).stream(3).next_u64());
            shards.flat_map(draw).collect()
        };
        assert_eq!(draws(1).len(), 50);
        assert_eq!(draws(1), draws(7));
        let all: std::collections::BTreeSet<_> = draws(7).into_iter().collect();
        assert_eq!(all.len(), 50, "each place has numbers of its own");
    }

    #[test]
    fn a_shard_draws_its_own_random_numbers() {
        let sampler = Sampler::new(&spec(42, 8, 100, 50)).unwrap();
        let first = |step, index, stream| sampler.shard(Step::new(step), index).random(stream).next_u64();
        assert_eq!(first(3, 2, 1), first(3, 2, 1));
        let others = [first(4, 2, 1), first(3, 1, 1), first(3, 2, 0)];
        assert!(others.iter().all(|&other| other != first(3, 2, 1)));
    }

    /// A job that was begun by one version of this program must go on with another: a change here is a new order of data.
    #[test]
    fn the_order_is_fixed() {
        let sampler = Sampler::new(&spec(42, 8, 1_437, 64)).unwrap();
        assert_eq!(
            sampler.shard(Step::new(25), 3).samples(),
            [1186, 593, 460, 929, 1342, 575, 201, 573]
        );
    }

    #[test]
    fn a_huge_data_set_does_not_overflow() {
        let sampler = Sampler::new(&spec(42, 4_096, u64::MAX, 1)).unwrap();
        let last = Step::new((1 << STEP_BITS) - 1);
        assert_eq!(sampler.shard(last, 0).samples().len(), 1);
        let most = u64::from(u32::MAX);
        let whole = Sampler::new(&spec(42, 4_096, most, most)).unwrap();
        assert_eq!(whole.steps_per_epoch(), 1);
        assert_eq!(whole.samples(Step::new(7)), most);
        assert_eq!(
            whole.shard(Step::ZERO, 4_095).sample_random(0),
            SampleRandom::new(42, 0, 4_095 << 20)
        );
        let more = Sampler::new(&spec(42, 4_096, u64::MAX, most + 1)).unwrap_err();
        assert_eq!(more, SamplerError::Places(most + 1));
    }

    #[test]
    fn constants_that_make_no_order_are_refused_by_name() {
        let refusal = |spec: JobSpec| Sampler::new(&spec).unwrap_err();
        assert_eq!(refusal(spec(1, 8, 0, 1)), SamplerError::NoSamples);
        assert_eq!(refusal(spec(1, 8, 10, 0)), SamplerError::Batch { batch: 0, samples: 10 });
        let batch = refusal(spec(1, 8, 10, 11));
        assert_eq!(
            batch.to_string(),
            "job spec: expected `batch` from 1 to 10 (the number of samples), found 11"
        );
        assert_eq!(refusal(spec(1, 0, 10, 5)), SamplerError::Shards(0));
        assert_eq!(refusal(spec(1, MAX_SHARDS + 1, 10, 5)), SamplerError::Shards(MAX_SHARDS + 1));
        let mut long = spec(1, 8, 10, 5);
        long.steps = Step::new(u64::MAX);
        assert!(matches!(refusal(long), SamplerError::Steps(_)));
    }
}
