//! Which piece is which part of which tensor, and the state's hash that follows.

use std::collections::BTreeSet;
use std::ops::Range;

use sardana_protocol::checkpoint::{Manifest, PieceHash};
use sardana_protocol::limits::{MAX_TENSORS, PIECE_BYTES};
use sardana_protocol::state::{StateHash, StateHasher, TensorSpec};
use sardana_storage::manifest::{self, ManifestError};

use super::directory::Checkpoints;

/// A piece that no directory can give. Name another one that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceError {
    /// The piece.
    pub piece: PieceHash,
    /// What was found where it should be; empty if no directory has it.
    pub reasons: Vec<String>,
}

impl std::fmt::Display for PieceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.reasons[..] {
            [] => write!(
                f,
                "piece {} is in none of the directories given; name one that has it with --also",
                self.piece
            ),
            reasons => f.write_str(&reasons.join("; ")),
        }
    }
}

impl std::error::Error for PieceError {}

/// Why it is not known what the pieces of a checkpoint are. It cannot be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A piece that describes the tensors cannot be had.
    #[error("the description of its tensors cannot be read: {0}")]
    Piece(#[from] PieceError),
    /// What describes the tensors makes no sense.
    #[error("the description of its tensors makes no sense: {0}")]
    Senseless(#[from] ManifestError),
    /// Description and manifest contradict each other.
    #[error(
        "expected tensors of {bytes} bytes in {pieces} pieces, as its manifest says, found a description of {found}; the program that wrote it \
         was at fault: use another checkpoint"
    )]
    Contradiction {
        /// Bytes of the state.
        bytes: u64,
        /// How many pieces it has.
        pieces: usize,
        /// What the description says.
        found: String,
    },
}

/// The tensors of a checkpoint, and which of its pieces they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) tensors: Vec<Tensor>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) spec: TensorSpec,
    pub(super) bytes: usize,
    /// The numbers of its pieces.
    pub(super) pieces: Range<usize>,
}

impl Tensor {
    /// Bytes of its piece with this number among its own.
    pub(super) fn piece_bytes(&self, number: usize) -> usize {
        PIECE_BYTES.min(self.bytes.saturating_sub(number.saturating_mul(PIECE_BYTES)))
    }
}

impl Layout {
    /// The layout of a manifest with these tensors.
    ///
    /// # Errors
    /// [`LayoutError::Contradiction`].
    pub(super) fn new(manifest: &Manifest, specs: Vec<TensorSpec>) -> Result<Self, LayoutError> {
        let contradiction = |found: String| LayoutError::Contradiction {
            bytes: manifest.bytes,
            pieces: manifest.pieces.len(),
            found,
        };
        if specs.len() > MAX_TENSORS {
            return Err(contradiction(format!(
                "{} tensors; expected {MAX_TENSORS} at most",
                specs.len()
            )));
        }
        let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
        let (mut pieces, mut total) = (0_usize, 0_u64);
        for spec in specs {
            if !names.insert(spec.name.clone()) {
                return Err(contradiction(format!("two tensors called {:?}", spec.name)));
            }
            let bytes = spec.bytes();
            let bytes = bytes.ok_or_else(|| contradiction(format!("{spec}, which no memory can hold")))?;
            total = total.saturating_add(bytes as u64);
            let end = pieces.saturating_add(bytes.div_ceil(PIECE_BYTES));
            tensors.push(Tensor {
                spec,
                bytes,
                pieces: pieces..end,
            });
            pieces = end;
        }
        if (total, pieces) == (manifest.bytes, manifest.pieces.len()) {
            Ok(Self { tensors })
        } else {
            Err(contradiction(format!("{total} bytes in {pieces} pieces")))
        }
    }

    /// The hash of the state, if its pieces are what they are called.
    pub(super) fn state_hash(&self, manifest: &Manifest) -> StateHash {
        let mut hasher = StateHasher::new(manifest.step());
        for tensor in &self.tensors {
            let pieces = manifest.pieces.get(tensor.pieces.clone()).unwrap_or_default();
            hasher.pieces(&tensor.spec, tensor.bytes, pieces);
        }
        hasher.finish()
    }

    /// What to say when the piece of this number has another length than its part of a tensor.
    pub(super) fn wrong_length(&self, manifest: &Manifest, number: usize, found: usize) -> LayoutError {
        LayoutError::Contradiction {
            bytes: manifest.bytes,
            pieces: manifest.pieces.len(),
            found: format!("a piece of {found} bytes for {}", self.place_of(number).unwrap_or_default()),
        }
    }

    /// Bytes that the piece of this number should have.
    pub(super) fn piece_bytes(&self, number: usize) -> Option<usize> {
        let tensor = self.tensor_of(number)?;
        Some(tensor.piece_bytes(number - tensor.pieces.start))
    }

    /// The tensor that the piece of this number is part of.
    fn tensor_of(&self, number: usize) -> Option<&Tensor> {
        let before = self.tensors.partition_point(|tensor| tensor.pieces.end <= number);
        self.tensors.get(before).filter(|tensor| tensor.pieces.contains(&number))
    }

    /// Where the piece of this number is, in words: the tensor, and which of its bytes.
    pub(super) fn place_of(&self, number: usize) -> Option<String> {
        let tensor = self.tensor_of(number)?;
        let own = number - tensor.pieces.start;
        let start = own * PIECE_BYTES;
        let end = start + tensor.piece_bytes(own);
        Some(format!("bytes {start}..{end} of tensor {:?}", tensor.spec.name))
    }
}

impl Checkpoints {
    /// The names, dtypes and shapes of a checkpoint's tensors.
    pub(super) fn layout(&self, manifest: &Manifest) -> Result<Layout, LayoutError> {
        let mut bytes = Vec::new();
        // The codec of manifests bounds how many there are.
        for &piece in &manifest.description {
            bytes.append(&mut self.fetch(piece)?);
        }
        Layout::new(manifest, manifest::decode_description(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::state::Dtype;

    use super::super::bare::manifest;
    use super::*;

    const LONG: usize = PIECE_BYTES / 4 + 1;

    fn specs() -> Vec<TensorSpec> {
        vec![
            TensorSpec::new("none", Dtype::F32, &[0]),
            TensorSpec::new("long", Dtype::F32, &[LONG]),
            TensorSpec::new("also none", Dtype::U64, &[2, 0]),
            TensorSpec::new("one", Dtype::F64, &[]),
        ]
    }

    #[test]
    fn every_piece_has_its_place_in_a_tensor() {
        let manifest = manifest(LONG as u64 * 4 + 8, 3);
        let layout = Layout::new(&manifest, specs()).unwrap();
        let places: Vec<_> = (0..4).map(|number| layout.place_of(number)).collect();
        let place = |words: &str| Some(words.to_owned());
        assert_eq!(
            places,
            [
                place("bytes 0..1048576 of tensor \"long\""),
                place("bytes 1048576..1048580 of tensor \"long\""),
                place("bytes 0..8 of tensor \"one\""),
                None
            ]
        );
        let lengths: Vec<_> = (0..4).map(|number| layout.piece_bytes(number)).collect();
        assert_eq!(lengths, [Some(PIECE_BYTES), Some(4), Some(8), None]);
    }

    #[test]
    fn a_description_that_contradicts_its_manifest_is_refused_before_anything_is_made_of_it() {
        let spec = |name: &str, shape: &[usize]| TensorSpec::new(name, Dtype::F32, shape);
        let refused = |manifest: &Manifest, specs: Vec<TensorSpec>, words: &str| {
            let error = Layout::new(manifest, specs).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("use another checkpoint"), "{error}");
        };
        let whole = manifest(LONG as u64 * 4 + 8, 3);
        refused(&whole, specs()[..3].to_vec(), "1048580 bytes in 2 pieces");
        refused(&manifest(LONG as u64 * 4 + 8, 2), specs(), "1048588 bytes in 3 pieces");
        refused(
            &manifest(8, 1),
            vec![spec("x", &[1]), spec("x", &[1])],
            "two tensors called \"x\"",
        );
        refused(&manifest(8, 1), vec![spec("x", &[usize::MAX, 2])], "which no memory can hold");
        // Longer than any disk: nothing is allocated for it.
        refused(&manifest(8, 1), vec![spec("x", &[1 << 60])], "bytes in");
        refused(
            &manifest(8, 1),
            vec![spec("x", &[0]); MAX_TENSORS + 1],
            "tensors; expected 65536 at most",
        );
    }
}
