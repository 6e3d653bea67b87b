//! Elastic data-parallel training: workers come and go, the result stays the same, bit for bit.
//!
//! This crate is what a user touches. A model implements [`model::Trainable`]; [`data`] tells which samples a shard holds;
//! [`reference`](mod@reference) trains it in a plain loop, which is what every elastic run must equal (BITS-1).

pub mod data;
pub mod model;
pub mod reference;

pub use sardana_protocol::job::{JobSpec, Order};
