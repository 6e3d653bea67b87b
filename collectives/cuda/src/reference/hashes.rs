//! What pieces of a state are called.

/// The BLAKE3 hash of a piece's bytes, at most [`MAX_PIECE_BYTES`](crate::parameters::MAX_PIECE_BYTES).
#[must_use]
pub fn hash(piece: &[u8]) -> [u8; 32] {
    blake3::hash(piece).into()
}
