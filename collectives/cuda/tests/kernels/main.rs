//! The kernels, run by the host twin, against their references, and those against what trains without a device: bit for bit, for any input, and in
//! many orders of blocks and threads. Where there is no C++ compiler it is said that this was skipped.

mod dense;
mod halves;
mod hashes;
mod norms;
mod numbers;
mod planted;
mod pointwise;
mod sums;
mod table;
mod tensors;
mod twin;
mod updates;
