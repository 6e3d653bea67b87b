//! Lends the decoders of this crate to a fuzzer: bytes in, and a panic where something is wrong. Each part has its own beside what it decodes.

/// The first byte, which says what the others should be.
#[must_use]
pub fn kind(bytes: &[u8], kinds: u8) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(kind, rest)| (kind % kinds, rest))
}

pub use crate::catalogue::fuzz as catalogue;
pub use crate::store::fuzz as store;
