//! How Sardana sums gradients: the bytes of a gradient, who adds what in which order, and the links that carry it.
//!
//! - [`layout`]: where each tensor lies in a gradient's bytes; [`gradient`]: the buffers, and the finished sum.
//! - [`reduce`]: the additions themselves.
//! - [`plan`]: pure schedules, ordered (`exact`) and ring (`fast`).
//! - [`links`]: streams between ranks, over QUIC or within a process.
//! - [`ring`]: executes a plan step after step over links.
//! - [`alone`]: the same sum without links.
//! - [`limits`]: every bound, with its argument.
//!
//! Nothing here decides who is in a ring, or knows what a model is.

pub mod alone;
pub mod gradient;
pub mod layout;
pub mod limits;
pub mod links;
pub mod plan;
pub mod reduce;
pub mod ring;
