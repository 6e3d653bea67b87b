//! Which samples a shard holds and which random numbers it may draw: pure functions of the job's constants.
//!
//! Nothing here knows of workers, generations or the network: that is why the data order cannot depend on them (BITS-1).
//!
//! - [`random`]: counter-based random numbers;
//! - [`permutation`]: the order of an epoch, without a table;
//! - [`sampler`]: from step and shard to samples.

pub mod permutation;
pub mod random;
pub mod sampler;

pub use permutation::Permutation;
pub use random::{CounterRng, Domain};
pub use sampler::{Sampler, SamplerError, Shard};
