//! Sardana's arithmetic on CUDA devices: sums of shards, tensors packed into gradients, means, updates, conversions, norms, hashes, dense layers and what
//! lies between them, as kernels whose bits are those of plain Rust. Without the feature `cuda` no device is known: what is here then is text, and what
//! that text must compute.
//!
//! - [`kernels`]: each kernel by name, the PTX that it is in, and its parameters; [`parameters`]: those of them that are structures, and the rows of
//!   the tables that kernels read; [`geometry`]: how many blocks and threads each needs.
//! - [`mod@reference`]: what each kernel gives, in Rust, for any input.
//!
//! With `cuda`, which builds without CUDA and looks for its driver when the program runs:
//! - `driver`, `inventory` and `instances`: whether there is a GPU that can be used, and if not why; which GPUs and libraries there are; the names of
//!   GPUs, and of the instances of those that are divided.
//! - `gradient`: a model's gradients stay in the device's memory until they are asked for, running sums pass it, and a finished one comes there.
//! - `device`: memory, streams, and launches that are compared with the table before anything is enqueued.
//! - `nccl`, with the feature of that name: sums of several GPUs by NCCL, in fast order; `summation`: those of a job's gradients, one communicator for each
//!   generation.
//! - `program`: kernels of a program's own, compiled when it runs or before, and their launches.
//!
//! The kernels are `kernels/*.cu`. Their PTX is kept beside them, made by `.ci/ptx`, so that building needs no compiler of CUDA. A kernel's
//! result depends on its input alone: no atomics, no functions whose last bit a device chooses, no contraction, one NaN; and, but where
//! [`geometry`] says otherwise, any number of blocks and threads. Tests run the same files on the host and compare each bit with the
//! references, and those with the functions that train without a device.

#[cfg(feature = "cuda")]
pub mod device;
#[cfg(feature = "cuda")]
pub mod driver;
pub mod geometry;
#[cfg(feature = "cuda")]
pub mod gradient;
#[cfg(feature = "cuda")]
pub mod instances;
#[cfg(feature = "cuda")]
pub mod inventory;
pub mod kernels;
#[cfg(feature = "cuda")]
mod libraries;
#[cfg(feature = "cuda")]
mod mapped;
#[cfg(feature = "nccl")]
pub mod nccl;
pub mod parameters;
#[cfg(feature = "cuda")]
pub mod program;
#[cfg(feature = "cuda")]
mod raw;
pub mod reference;
#[cfg(feature = "nccl")]
pub mod summation;
