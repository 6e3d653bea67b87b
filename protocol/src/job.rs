//! What a job is: the constants that every worker of it shares, and what makes two workers compute the same bits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::state::StateHash;
use crate::words::Step;

/// In which order a step's shard gradients are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Shard by shard, 0 to K-1: the same bits for every membership (BITS-1).
    Exact,
    /// Ring reduce-scatter and all-gather: the result depends on the membership. Opt-in, and shown as `fast` everywhere.
    Fast,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        })
    }
}

/// The constants of a job. Fixed for its life and equal on every worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// What people call it.
    pub name: String,
    /// Keys the data order and every random number.
    pub seed: u64,
    /// K: into how many shards every global batch is cut.
    pub shards: u32,
    /// How many updates make the job.
    pub steps: Step,
    /// How many samples the data set holds.
    pub samples: u64,
    /// How many samples a step's global batch holds (the last batch of an epoch may be shorter).
    pub batch: u64,
    /// In which order gradients are added.
    pub order: Order,
}

/// What decides the bits of a worker's arithmetic. Two workers of one job must have equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hash of the executable.
    pub program: StateHash,
    /// Hash over the names, dtypes and shapes of the state's and the gradient's tensors.
    pub tensors: StateHash,
    /// Architecture and the vector extensions that numeric libraries choose their kernels by.
    pub processor: String,
    /// Where gradients are computed: `cpu`, or the name of an accelerator.
    pub device: String,
    /// Versions of the libraries that do arithmetic.
    pub libraries: String,
    /// Hash of the state after one gradient and one apply at state 0: the last word on whether the bits agree.
    pub probe: StateHash,
}

/// A job's identity: what a hello must match. The first worker of a job sets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobIdentity {
    /// The constants.
    pub spec: JobSpec,
    /// Hash of the state before the first update.
    pub state_zero: StateHash,
    /// What decides the bits.
    pub fingerprint: Fingerprint,
}
