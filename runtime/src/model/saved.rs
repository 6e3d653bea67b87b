//! A model's state as one run of bytes that describes itself: what a donor sends to a worker that comes back.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `sardana` and the version, 1 |
//! | 4 | number of tensors |
//! | then, for each tensor: | |
//! | 2, n | length of the name, name in UTF-8 |
//! | 1 | dtype: 0 f32, 1 f64, 2 u64 |
//! | 1, 8 × d | number of dimensions, dimensions |
//! | rest | the elements; how many bytes follows from dtype and shape |
//!
//! It must not know how the bytes travel. They carry no checksum: who receives them compares [`SavedState::hash`] with the hash
//! that the donor states.

use std::ops::Range;

use sardana_protocol::limits::{MAX_TENSORS, MAX_TEXT_BYTES};
use sardana_protocol::state::{Dtype, StateHash, StateHasher, TensorSpec};
use sardana_protocol::words::Step;

use super::Trainable;
use super::state::{MAX_DIMENSIONS, StateError, TensorOrEnd, state_specs, visit_checked};

const MAGIC: [u8; 8] = *b"sardana\x01";

/// Why bytes are no saved state. Nothing was loaded: fetch the state again, from another donor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They start otherwise: not a saved state, or of another version.
    #[error(
        "saved state: expected the bytes to start with {MAGIC:?}, found {found:?}; sender and receiver must be one version"
    )]
    Magic {
        /// How they start.
        found: Vec<u8>,
    },
    /// They end too early.
    #[error("saved state: expected {expected} more bytes at offset {offset}, found {found}; fetch it again")]
    Truncated {
        /// Where.
        offset: usize,
        /// How many were needed.
        expected: usize,
        /// How many were there.
        found: usize,
    },
    /// They go on after the last tensor.
    #[error("saved state: expected the end at offset {offset}, found {found} more bytes; fetch it again")]
    Trailing {
        /// Where the last tensor ends.
        offset: usize,
        /// How many follow.
        found: usize,
    },
    /// A number is beyond its bound.
    #[error("saved state: expected {what} up to {most} at offset {offset}, found {found}; fetch it again")]
    Bound {
        /// Of what.
        what: &'static str,
        /// Where.
        offset: usize,
        /// The bound.
        most: usize,
        /// What was there.
        found: usize,
    },
    /// A name is not UTF-8.
    #[error("saved state: expected a name in UTF-8 at offset {offset}; fetch it again")]
    Name {
        /// Where.
        offset: usize,
    },
    /// A dtype is none of ours.
    #[error("saved state: expected a dtype from 0 to 2 at offset {offset}, found {found}; fetch it again")]
    UnknownDtype {
        /// Where.
        offset: usize,
        /// What was there.
        found: u8,
    },
    /// A shape has more elements than memory can address.
    #[error(
        "saved state: expected a tensor that fits into memory at offset {offset}, found shape {shape:?}; fetch it again"
    )]
    Shape {
        /// Where.
        offset: usize,
        /// The shape.
        shape: Vec<u64>,
    },
}

/// A model's state, copied out of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    encoded: Vec<u8>,
    /// Each tensor and where its elements lie in `encoded`.
    tensors: Vec<(TensorSpec, Range<usize>)>,
}

impl SavedState {
    /// The encoding; [`Self::from_bytes`] reads it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.encoded
    }

    /// The encoding, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.encoded
    }

    /// Reads an encoding that came from outside: every length is compared with its bound and with what is there.
    ///
    /// # Errors
    /// When the bytes are no saved state; nothing is kept of them.
    pub fn from_bytes(encoded: Vec<u8>) -> Result<Self, DecodeError> {
        let mut reader = Reader {
            bytes: &encoded,
            offset: 0,
        };
        let start = &encoded[..encoded.len().min(MAGIC.len())];
        if start != MAGIC {
            return Err(DecodeError::Magic { found: start.to_vec() });
        }
        reader.offset = MAGIC.len();
        let count = reader.bounded("a number of tensors", reader.offset, 4, MAX_TENSORS)?;
        let mut tensors = Vec::new();
        for _ in 0..count {
            tensors.push(reader.tensor()?);
        }
        let (offset, found) = (reader.offset, encoded.len() - reader.offset);
        if found > 0 {
            return Err(DecodeError::Trailing { offset, found });
        }
        Ok(Self { encoded, tensors })
    }

    /// The tensors and their elements' little-endian bytes, in the model's order.
    pub fn tensors(&self) -> impl Iterator<Item = (&TensorSpec, &[u8])> {
        self.tensors.iter().map(|(spec, range)| (spec, &self.encoded[range.clone()]))
    }

    /// What [`super::state_hash`] gives for a model in this state at `step`.
    #[must_use]
    pub fn hash(&self, step: Step) -> StateHash {
        let mut hasher = StateHasher::new(step);
        self.tensors().for_each(|(spec, bytes)| hasher.tensor(spec, bytes));
        hasher.finish()
    }
}

/// Copies the state out of a model.
///
/// # Errors
/// When the model cannot show its state, or shows something that is none.
pub fn save(model: &dyn Trainable) -> Result<SavedState, StateError> {
    let mut encoded = MAGIC.to_vec();
    // The number of tensors, known at the end.
    encoded.extend([0; 4]);
    let mut tensors = Vec::new();
    visit_checked(model, &mut |spec, bytes| {
        encode_spec(&mut encoded, spec);
        let start = encoded.len();
        encoded.extend_from_slice(bytes);
        tensors.push((spec.clone(), start..encoded.len()));
    })?;
    // MAX_TENSORS bounds the count.
    let count = tensors.len() as u32;
    encoded[MAGIC.len()..][..4].copy_from_slice(&count.to_le_bytes());
    Ok(SavedState { encoded, tensors })
}

fn encode_spec(encoded: &mut Vec<u8>, spec: &TensorSpec) {
    let name_bytes = u16::try_from(spec.name.len()).expect("MAX_TEXT_BYTES fits 16 bits");
    let dimensions = u8::try_from(spec.shape.len()).expect("MAX_DIMENSIONS fits 8 bits");
    encoded.extend(name_bytes.to_le_bytes());
    encoded.extend(spec.name.as_bytes());
    encoded.push(match spec.dtype {
        Dtype::F32 => 0,
        Dtype::F64 => 1,
        Dtype::U64 => 2,
    });
    encoded.push(dimensions);
    encoded.extend(spec.shape.iter().flat_map(|dim| dim.to_le_bytes()));
}

const _: () = assert!(MAX_TENSORS <= u32::MAX as usize);
const _: () = assert!(MAX_TEXT_BYTES <= u16::MAX as usize);
const _: () = assert!(MAX_DIMENSIONS <= u8::MAX as usize);

/// Brings a saved state back into a model. The saved tensors are compared with the model's before the first is loaded.
///
/// # Errors
/// When the state is that of another model (the model is unchanged), or the model cannot take it (it may be half loaded: drop
/// it).
pub fn restore(model: &mut dyn Trainable, saved: &SavedState) -> Result<(), StateError> {
    let specs = state_specs(model)?;
    for index in 0..specs.len().max(saved.tensors.len()) {
        let (expected, found) = (specs.get(index), saved.tensors.get(index).map(|(spec, _)| spec));
        if expected != found {
            return Err(StateError::AnotherModel {
                index,
                expected: TensorOrEnd(expected.cloned()),
                found: TensorOrEnd(found.cloned()),
            });
        }
    }
    for (spec, bytes) in saved.tensors() {
        model.load(spec, bytes).map_err(|source| StateError::Model {
            operation: "load",
            source,
        })?;
    }
    Ok(())
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, expected: usize) -> Result<&'a [u8], DecodeError> {
        let (offset, rest) = (self.offset, &self.bytes[self.offset..]);
        let taken = rest.get(..expected).ok_or(DecodeError::Truncated {
            offset,
            expected,
            found: rest.len(),
        })?;
        self.offset += expected;
        Ok(taken)
    }

    /// A number of `width` bytes, up to 8.
    fn number(&mut self, width: usize) -> Result<u64, DecodeError> {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(wide))
    }

    /// A number that must not exceed `most`.
    fn bounded(&mut self, what: &'static str, offset: usize, width: usize, most: usize) -> Result<usize, DecodeError> {
        let found = usize::try_from(self.number(width)?).unwrap_or(usize::MAX);
        if found > most {
            return Err(DecodeError::Bound {
                what,
                offset,
                most,
                found,
            });
        }
        Ok(found)
    }

    fn tensor(&mut self) -> Result<(TensorSpec, Range<usize>), DecodeError> {
        let name_bytes = self.bounded("a name's length", self.offset, 2, MAX_TEXT_BYTES)?;
        let offset = self.offset;
        let name = std::str::from_utf8(self.take(name_bytes)?).map_err(|_| DecodeError::Name { offset })?;
        let offset = self.offset;
        let dtype = match self.take(1)?[0] {
            0 => Dtype::F32,
            1 => Dtype::F64,
            2 => Dtype::U64,
            found => return Err(DecodeError::UnknownDtype { offset, found }),
        };
        let dimensions = self.bounded("a number of dimensions", self.offset, 1, MAX_DIMENSIONS)?;
        let offset = self.offset;
        let shape = (0..dimensions).map(|_| self.number(8)).collect::<Result<_, _>>()?;
        let spec = TensorSpec {
            name: name.to_owned(),
            dtype,
            shape,
        };
        let Some(length) = spec.bytes() else {
            let shape = spec.shape;
            return Err(DecodeError::Shape { offset, shape });
        };
        let start = self.offset;
        self.take(length)?;
        Ok((spec, start..self.offset))
    }
}

#[cfg(test)]
#[path = "saved_tests.rs"]
mod tests;
