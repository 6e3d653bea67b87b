//! The random numbers of one sample in one step. They depend on the job's seed, the step and the sample's place in the global batch:
//! not on K, on the worker, or on the thread that decodes it.

use super::random::{CounterRng, Domain, MAX_SAMPLE_STREAMS, STEP_BITS};

/// Random numbers of one sample in one step: one stream for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRandom {
    seed: u64,
    step: u64,
    place: u32,
}

impl SampleRandom {
    pub(crate) const fn new(seed: u64, step: u64, place: u32) -> Self {
        Self { seed, step, place }
    }

    /// Of the sample `index` of a set that is only looked at, not trained on: the same whenever it is looked at.
    #[must_use]
    pub const fn held_out(seed: u64, index: u64) -> Self {
        // No job reaches this step.
        Self::new(seed, (1 << STEP_BITS) - 1, index as u32)
    }

    /// Stream number `stream`, from its beginning.
    ///
    /// # Panics
    /// When `stream` is not below [`MAX_SAMPLE_STREAMS`].
    #[must_use]
    pub fn stream(&self, stream: u32) -> CounterRng {
        assert!(
            stream < MAX_SAMPLE_STREAMS,
            "a sample has {MAX_SAMPLE_STREAMS} streams of random numbers, found number {stream}"
        );
        let &Self { step, place, .. } = self;
        CounterRng::new(self.seed, Domain::Sample { step, place, stream })
    }
}
