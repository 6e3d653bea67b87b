//! Lends the decoders of this crate to a fuzzer: bytes in, and a panic where something is wrong. Each part has its own beside what it decodes.

pub use crate::agent::notices::fuzz as notices;
pub use crate::depot::fuzz as depots;
pub use crate::peers::fuzz as peers;
