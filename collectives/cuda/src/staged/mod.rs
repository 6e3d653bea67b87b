//! A running sum that passes a device: it comes up in chunks, each shard is added to it where the shard lies, in the order of shards, and it goes down
//! again; beside what the device computes, and without an addition by the host. [`plan`](Visit) decides what is done when, and is pure; with
//! the feature `cuda` `Staged` does it. Must not know which ranks there are, nor how a chunk comes from one to the next.
//!
//! What crosses between the host and a device in each step, for gradients of G bytes, k shards a rank, of which s are spilled:
//!
//! | | rank 0 | between | closer |
//! |---|---|---|---|
//! | down | (1 + s) G | (1 + s) G | (1 + s) G |
//! | up | (1 + s) G | (2 + s) G | (1 + s) G |
//!
//! A host that adds by itself would have k G come down and G go up, and k G to add. Shards that are spilled go down once and come up once,
//! so that the sum is never added to in two places.

#[cfg(feature = "cuda")]
mod carrying;
mod plan;

#[cfg(feature = "cuda")]
pub use carrying::{Host, Shard, Staged, StagedError};
pub use plan::{Place, Role, Step, Visit, places};

#[cfg(test)]
mod tests;
