//! Networks of candle, as they are, that Sardana trains.
//!
//! - [`Builder`]: names a network's tensors and makes their first values, from the job's seed and their names;
//! - [`layers`]: layers for those of candle that are wrong, cannot be seeded, or would let the membership reach the arithmetic;
//! - [`Pass`]: what layers share with their network while it computes.

mod builder;
mod initial;
pub mod layers;
pub mod pass;

pub use builder::{Builder, Running};
pub use layers::Dropout;
pub use pass::{Pass, Statistic};
