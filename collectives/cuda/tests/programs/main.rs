//! Kernels of a program's own on the twin driver, which finds the same source compiled for the host under the names that PTX has; and with NVIDIA's own compiler,
//! where that is found. Where something is missing, each test says that it is skipped.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod absent;
mod compiled;
mod launches;
#[path = "../kernels/numbers.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod numbers;
mod swish;
