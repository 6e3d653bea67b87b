//! Checkpoint actors, called depots for short: one per host that keeps checkpoints. Each has a store, takes pieces from workers, gives
//! them back, and makes a manifest durable when the coordinator says so.
//!
//! - [`Server`]: the end that pieces are put to; [`Depots`]: the ends that ask.
//!
//! Must not know when a checkpoint is due, nor how long it is kept: the coordinator says so.

mod client;
mod error;
mod give;
pub mod limits;
mod names;
mod pins;
mod put;
mod server;
mod shares;
mod talk;
mod together;

pub use client::Depots;
pub use error::{DepotError, ReadFailed};
pub use server::Server;
