//! Sardana's arithmetic on CUDA devices: sums of shards, tensors packed into gradients, means, updates, conversions, norms, hashes, dense layers and what
//! lies between them, as kernels whose bits are those of plain Rust. Knows no device: what is here is text, and what that text must compute.
//!
//! - [`kernels`]: each kernel by name, the PTX that it is in, and its parameters; [`parameters`]: those of them that are structures, and the rows of
//!   the tables that kernels read; [`geometry`]: how many blocks and threads each needs.
//! - [`mod@reference`]: what each kernel gives, in Rust, for any input.
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
pub mod inventory;
pub mod kernels;
pub mod parameters;
#[cfg(feature = "cuda")]
mod raw;
pub mod reference;
pub mod staged;
