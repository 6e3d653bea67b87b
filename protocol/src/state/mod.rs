//! What a state is to the runtime (named tensors) and its hash.
//!
//! The hash is BLAKE3 over the step and, for every tensor in the order visited, its name, dtype, shape and the hashes of its
//! pieces. Pieces are cut by tensor and offset, never by the number of workers, so that a checkpoint can name the same ones.

mod pieces;

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

pub use pieces::{ShareHasher, StatePieces, share_hash};

use crate::hash::{PieceHash, hash};
use crate::limits::PIECE_BYTES;
use crate::words::Step;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 binary32, little-endian.
    F32,
    /// IEEE 754 binary64, little-endian.
    F64,
    /// Unsigned 64-bit, little-endian: counters.
    U64,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::U64 => 8,
        }
    }
}

/// A tensor's name, dtype and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Unique within the state.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
}

/// How much a state is. Equal on all workers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateSize {
    /// Pieces of all tensors: see [`StatePieces`].
    pub pieces: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
}

impl TensorSpec {
    /// A tensor called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: &[usize]) -> Self {
        Self {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    /// How many elements; none when the product does not fit in memory's address range.
    #[must_use]
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))
    }

    /// How many bytes; none when that does not fit in memory's address range.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{:?}", self.name, self.dtype, self.shape)
    }
}

hash!(
    /// The BLAKE3 hash of a state, of a list of tensors, or of a program.
    StateHash
);

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Hashes a state tensor by tensor.
#[derive(Debug)]
pub struct StateHasher {
    whole: blake3::Hasher,
}

impl StateHasher {
    /// Starts the hash of the state at `step`.
    #[must_use]
    pub fn new(step: Step) -> Self {
        let mut whole = blake3::Hasher::new_derive_key("sardana state v1");
        whole.update(&step.get().to_le_bytes());
        Self { whole }
    }

    /// Adds the next tensor, in the state's own order.
    pub fn tensor(&mut self, spec: &TensorSpec, bytes: &[u8]) {
        self.spec(spec);
        self.number(bytes.len());
        for piece in bytes.chunks(PIECE_BYTES) {
            self.whole.update(blake3::hash(piece).as_bytes());
        }
    }

    /// Adds the next tensor of `bytes` bytes, by the hashes of its pieces.
    pub fn pieces(&mut self, spec: &TensorSpec, bytes: usize, pieces: &[PieceHash]) {
        self.spec(spec);
        self.number(bytes);
        for piece in pieces {
            self.whole.update(&piece.bytes());
        }
    }

    /// Adds only the name, dtype and shape of a tensor.
    pub fn spec(&mut self, spec: &TensorSpec) {
        self.number(spec.name.len());
        self.whole.update(spec.name.as_bytes());
        self.whole.update(spec.dtype.to_string().as_bytes());
        self.number(spec.shape.len());
        for &dim in &spec.shape {
            self.number(dim);
        }
    }

    /// The hash of all that was added.
    #[must_use]
    pub fn finish(&self) -> StateHash {
        StateHash(self.whole.finalize().into())
    }

    fn number(&mut self, value: usize) {
        self.whole.update(&(value as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(step: u64, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> StateHash {
        let mut hasher = StateHasher::new(Step::new(step));
        hasher.tensor(&TensorSpec::new(name, dtype, shape), bytes);
        hasher.finish()
    }

    #[test]
    fn everything_that_makes_a_state_is_in_its_hash() {
        let base = hash(1, "w", Dtype::F32, &[2], &[0; 8]);
        assert_eq!(base, hash(1, "w", Dtype::F32, &[2], &[0; 8]));
        let mut flipped = [0; 8];
        flipped[7] = 1;
        for other in [
            hash(2, "w", Dtype::F32, &[2], &[0; 8]),
            hash(1, "v", Dtype::F32, &[2], &[0; 8]),
            hash(1, "w", Dtype::F64, &[1], &[0; 8]),
            hash(1, "w", Dtype::F32, &[2, 1], &[0; 8]),
            hash(1, "w", Dtype::F32, &[2], &flipped),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn every_piece_of_a_long_tensor_counts() {
        let mut bytes = vec![7; PIECE_BYTES * 2 + 12];
        let elements = bytes.len() / 4;
        let base = hash(0, "w", Dtype::F32, &[elements], &bytes);
        for at in [0, PIECE_BYTES, PIECE_BYTES * 2 + 11] {
            bytes[at] ^= 1;
            assert_ne!(base, hash(0, "w", Dtype::F32, &[elements], &bytes));
            bytes[at] ^= 1;
        }
    }
}
