//! Data for elastic training: samples by number, in an order and with random numbers that depend on the job's constants alone.
//!
//! Nothing here knows of workers, generations or the network: that is why the data cannot depend on them (BITS-1).
//!
//! - [`dataset`]: what a data set must offer, and what is made of one by [`DatasetExt::map`];
//! - [`formats`]: data sets in the formats that people have, each behind a feature;
//! - [`image`](mod@image), [`array`](mod@array): what samples consist of, and what is done to them;
//! - [`sampler`]: from step and shard to samples; [`permutation`]: the order of an epoch, without a table;
//! - [`loader`]: samples decoded ahead, on threads, within a budget; [`coming`]: which they are; [`held_bytes`]: how large;
//! - [`random`], [`sample_random`]: counter-based random numbers;
//! - [`fingerprint`]: what data are called, so that two hosts with other files are told so.

pub mod array;
pub mod coming;
pub mod dataset;
pub mod error;
pub mod fingerprint;
pub mod formats;
pub mod held_bytes;
pub mod image;
pub mod loader;
pub mod permutation;
pub mod random;
pub mod sample_random;
pub mod sampler;

pub use array::Array;
pub use coming::Coming;
pub use dataset::{Dataset, DatasetExt};
pub use error::DataError;
pub use held_bytes::HeldBytes;
pub use image::Image;
pub use loader::Loader;
pub use permutation::Permutation;
pub use random::{CounterRng, Domain, MAX_SAMPLE_STREAMS};
pub use sample_random::SampleRandom;
pub use sampler::{Sampler, SamplerError, Shard};
pub use sardana_protocol::data::{DataFingerprint, DataHash, DataPart};
