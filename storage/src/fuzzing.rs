//! What fuzzers of decoders share. Each room has its own beside what it decodes: bytes in, and a panic where something is wrong.

/// The first byte, which says what the others should be.
#[must_use]
pub fn kind(bytes: &[u8], kinds: u8) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(kind, rest)| (kind % kinds, rest))
}
