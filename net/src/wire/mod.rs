//! How messages travel: one form of frames for control streams and for bundles over a child's standard input.
//!
//! A frame is, all little-endian: version (`u16`), zero (`u16`), payload length (`u32`), payload (of the protocol's
//! codec). A reader bounds the length before it believes it, and refuses other versions, bytes left over and bytes
//! missing. Nothing here knows what the messages mean.

mod exchange;
mod frame;
pub mod limits;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod golden_depots;
#[cfg(test)]
mod golden_forms;
#[cfg(test)]
mod golden_operators;
#[cfg(test)]
mod over_quic;
#[cfg(test)]
mod tests;

pub use exchange::{exchange, last_word};
pub use frame::{FrameError, framed, read_frame, read_frame_blocking, write_frame, write_frame_blocking};
