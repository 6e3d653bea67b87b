//! What can be wrong with a job. Must not know how it is checked.

use sardana_protocol::job::Compression;
use sardana_protocol::limits::{MAX_SHARDS, MAX_STEPS, MAX_TEXT_BYTES, MAX_WORKERS};

use crate::data::SamplerError;

/// What is wrong with a job. Fix the named setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The name: how long it is.
    #[error("a job's name has 1 to {MAX_TEXT_BYTES} bytes, found {0}: shorten it")]
    Name(usize),
    /// The number of shards.
    #[error("a job has 1 to {MAX_SHARDS} shards, found {0}: set .shards(K), for example 8 per worker you may ever have")]
    Shards(u32),
    /// The length.
    #[error("a job has at least one step: set .steps(n) or .epochs(n)")]
    NoSteps,
    /// Both lengths.
    #[error("the job's length is set twice, by .steps({steps}) and .epochs({epochs}): set one")]
    TwoLengths {
        /// The length in steps.
        steps: u64,
        /// The length in epochs.
        epochs: u64,
    },
    /// So many epochs that their steps cannot be counted.
    #[error("{0} epochs are too many to count their steps: set fewer")]
    TooLong(u64),
    /// More steps than can be counted in gradients.
    #[error("{0} steps are too many, at most {MAX_STEPS} are possible: set fewer")]
    TooManySteps(u64),
    /// The data order.
    #[error(transparent)]
    Data(#[from] SamplerError),
    /// The numbers of workers.
    #[error(
        "expected 1 <= min <= workers <= max <= {MAX_WORKERS}, found min {min}, workers {workers}, max {max}: \
         change .min_workers, .workers or .max_workers"
    )]
    Staffing {
        /// The least.
        min: u32,
        /// As many as are started.
        workers: u32,
        /// The most.
        max: u32,
    },
    /// The compression.
    #[error(
        "expected order fast for gradients that are compressed to {0}, found exact, whose bits are those of one machine: \
         set .order(Order::Fast), or leave .compression out"
    )]
    Compression(Compression),
    /// The room for gradients.
    #[error("a worker must hold at least one shard's gradient: set .shard_capacity(1) or more, or leave it out")]
    NoRoom,
}
