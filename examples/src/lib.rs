//! Small real jobs on Sardana: a newcomer's second page.
//!
//! - [`linear_regression`]: least squares in plain Rust, beside its closed form: the shortest complete model;
//! - [`digits`]: a neural network for handwritten digits, with gradients by candle;
//! - [`mnist`], [`cifar`], [`chars`], [`diabetes`]: jobs on data in their own formats, with networks that people use;
//! - [`cuda_mlp`]: a perceptron that trains on GPUs and on processors, to the same bits;
//! - [`showing`]: runs a job and shows how far it is;
//! - [`networks`]: the networks of the examples, with candle;
//! - [`table`]: reads the numbers of a CSV file.
//!
//! Nothing here knows of workers or the network: the same models run in a plain loop and in an elastic run, to the same bits.

pub mod chars;
pub mod cifar;
pub mod cuda_mlp;
pub mod diabetes;
pub mod digits;
pub mod linear_regression;
pub mod mnist;
pub mod networks;
pub mod showing;
pub mod table;

/// Tensor libraries allocate and free at every operation, which the system's allocator makes slower once a process has a second
/// thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
