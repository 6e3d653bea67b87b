//! Samples that a network is measured by, and never trained on. Must not know how it is trained.

use std::sync::Arc;

use super::error::FitError;
use super::network::Network;
use crate::data::{DataHash, Dataset, SampleRandom};
use crate::model::ModelError;

/// Samples that the network is measured by.
pub(super) struct HeldOut<T> {
    samples: Arc<dyn Dataset<Item = T>>,
    pub(super) hash: DataHash,
    seed: u64,
    pub(super) batch: usize,
}

impl<T: Send> HeldOut<T> {
    pub(super) fn new(samples: Arc<dyn Dataset<Item = T>>, seed: u64, batch: usize) -> Result<Self, FitError> {
        if samples.is_empty() {
            return Err(FitError::NothingHeldOut);
        }
        let hash = samples.fingerprint()?.hash();
        Ok(Self {
            samples,
            hash,
            seed,
            batch,
        })
    }

    /// The most that are measured at once.
    pub(super) fn at_once(&self) -> u64 {
        self.samples.len().min(self.batch as u64)
    }

    /// Sums of the metrics over all samples, and how many they are.
    pub(super) fn measure(&self, network: &impl Network<Item = T>, metrics: usize) -> Result<(Vec<f64>, u64), ModelError> {
        let (count, mut sums) = (self.samples.len(), vec![0.0; metrics]);
        let mut start = 0;
        while start < count {
            let end = count.min(start + self.batch as u64);
            let get = |index| self.samples.get(index, &SampleRandom::held_out(self.seed, index));
            let items = (start..end).map(get).collect::<Result<Vec<_>, _>>()?;
            network.measure(&items, &mut sums)?;
            start = end;
        }
        Ok((sums, count))
    }
}
