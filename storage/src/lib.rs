//! What lies on a disk: checkpoints in pieces, small records, and files that only their owner can read.
//!
//! Must not know the network, nor actors, nor what the bytes mean. All calls block, for as long as the disk takes.
//!
//! - [`store`]: the pieces and manifests of checkpoints on one disk; [`manifest`]: what a manifest says.
//! - [`catalogue`]: small records in named tables: sled, hardened.
//! - [`lock`]: files that one process at a time has, and mutexes.
//! - [`private`]: files and folders that only their owner can read.

mod bytes;
pub mod catalogue;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod lock;
pub mod manifest;
pub mod private;
pub mod store;
