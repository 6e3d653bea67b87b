//! The device layer on the twin driver: real calls of CUDA's interface, carried out by the host in any order that streams and events allow. Where there
//! is no C++ compiler, each test says that it is skipped.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod dlpack;
mod failing;
mod gradients;
mod launches;
mod memory;
mod moved_planted;
#[path = "../kernels/numbers.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod numbers;
mod timing;
mod twin;
mod uploads;
