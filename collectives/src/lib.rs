//! How Sardana sums gradients: the bytes of a gradient, which rank adds what in which order, and the links that carry it.
//!
//! - [`layout`]: where each tensor lies in a gradient's bytes; [`gradient`]: the buffers, and the finished sum.
//! - [`mapping`]: memory of which something else may be told, such as a GPU's driver; [`pages`]: memory that other processes of the host can read where it lies.
//! - [`runs`]: bytes that are read where they lie; [`reduce`]: the additions themselves; [`stores`]: whether what is written goes past the caches; [`compression`]: f32 as halves on their way, and how far off the sum may be then.
//! - [`links`]: streams between ranks, over QUIC or within a process.
//! - [`ring`]: executes a rank's part of a plan step after step over links; [`moves`]: what goes over the hops of a ring plan.
//! - [`summation`]: another means than links, by which the ranks of a fast ring sum where their gradients lie.
//! - [`group`]: the collective operations by themselves, for programs that train in their own way.
//! - [`alone`]: the same sum without links.
//! - [`helped`]: a future that a task carries out, and a thread that waits for it.
//! - [`limits`]: every bound, with its argument.
//!
//! Nothing here decides which workers are in a ring, or knows what a model is.

pub mod alone;
mod block_on;
mod borrowed;
mod coming;
pub mod compression;
pub mod gradient;
pub mod group;
pub mod helped;
pub mod layout;
pub mod limits;
pub mod links;
pub mod mapping;
pub mod moves;
pub mod pages;
pub mod reduce;
pub mod ring;
pub mod runs;
mod setbacks;
pub mod stores;
pub mod summation;
mod yielding;
