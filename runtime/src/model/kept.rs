//! A copy of a model's state, with the hash of each of its pieces: what is shown later is hashed by it. A piece that is as it was has the hash that it had, as
//! all have of weights that are not trained. To compare one takes half as long as to hash it, and ends at the first byte that differs.

use bytes::BytesMut;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::state::{StateHash, StateHasher, TensorSpec};
use sardana_protocol::words::Step;

use super::hash::{hash_of, told_tensors};
use super::same::is_shown;
use super::saved::{restore_as, save_by};
use super::state::{StateError, Take, shared_checked, visit_checked};
use super::threads::{copy_and_hash, hashes_beside};
use super::{SharedState, Trainable};

/// A state of these tensors, as it was saved.
pub(super) struct Kept {
    pub(super) specs: Vec<TensorSpec>,
    /// Those of all tensors, one after the other.
    pub(super) bytes: BytesMut,
    /// The hashes of their pieces, tensor after tensor.
    pieces: Vec<PieceHash>,
}

impl Kept {
    /// Copies the state of these tensors out of a model, and hashes it by the way.
    pub(super) fn of(model: &dyn Trainable, specs: Vec<TensorSpec>) -> Result<Self, StateError> {
        let mut pieces = Vec::new();
        let bytes = save_by(model, &specs, |from, to| pieces.extend(copy_and_hash(from, to)))?;
        Ok(Self { specs, bytes, pieces })
    }

    /// Its hash, as the state at `step`.
    pub(super) fn hash(&self, step: Step) -> StateHash {
        let mut hasher = StateHasher::new(step);
        for (spec, bytes, pieces) in self.tensors() {
            hasher.pieces(spec, bytes.len(), pieces);
        }
        hasher.finish()
    }

    /// The hash of what a model shows, whatever hashes it gives itself.
    pub(super) fn hash_shown(&self, model: &dyn Trainable, step: Step) -> Result<StateHash, StateError> {
        self.hash_beside(&|take| visit_checked(model, take), step)
    }

    /// The same of what a model has shared.
    pub(super) fn hash_shared(&self, shared: &dyn SharedState, step: Step) -> Result<StateHash, StateError> {
        self.hash_beside(&|take| shared_checked(shared, take), step)
    }

    /// The same of a model's state, which it hashes itself or else shows.
    pub(super) fn hash_state(&self, model: &dyn Trainable, step: Step) -> Result<StateHash, StateError> {
        match told_tensors(model)? {
            Some(tensors) => Ok(hash_of(&tensors, step)),
            None => self.hash_shown(model, step),
        }
    }

    fn hash_beside(&self, show: &dyn Fn(Take<'_>) -> Result<(), StateError>, step: Step) -> Result<StateHash, StateError> {
        let (mut hasher, mut kept) = (StateHasher::new(step), self.tensors());
        show(&mut |spec, bytes| {
            let before = kept.next().map(|(_, bytes, pieces)| (bytes, pieces));
            hasher.pieces(spec, bytes.len(), &hashes_beside(bytes, before.unwrap_or_default()));
        })?;
        Ok(hasher.finish())
    }

    /// Whether this, with the same tensors, is what a model shows.
    pub(super) fn is_shown_by(&self, model: &dyn Trainable) -> Result<bool, StateError> {
        is_shown(&|take| visit_checked(model, take), &self.specs, &self.bytes, |_| ())
    }

    /// Brings it back into a model.
    pub(super) fn load(&self, model: &mut dyn Trainable) -> Result<(), StateError> {
        restore_as(model, &self.specs, &self.bytes, |_| ())
    }

    /// Each tensor with its bytes, and the hashes of their pieces.
    fn tensors(&self) -> impl Iterator<Item = (&TensorSpec, &[u8], &[PieceHash])> {
        let (mut bytes, mut pieces) = (&*self.bytes, &*self.pieces);
        self.specs.iter().map(move |spec| {
            let own = spec.bytes().unwrap_or_default();
            let (tensor, bytes_after) = bytes.split_at(own.min(bytes.len()));
            let (hashes, pieces_after) = pieces.split_at(own.div_ceil(PIECE_BYTES).min(pieces.len()));
            (bytes, pieces) = (bytes_after, pieces_after);
            (spec, tensor, hashes)
        })
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::state::Dtype;

    use super::super::hash::state_hash;
    use super::super::toys::Fixed;
    use super::*;

    const STEP: Step = Step::new(3);

    /// Tensors of no, one and several pieces.
    fn model() -> Fixed {
        let tensor = |name: &str, bytes: usize| {
            let content = (0..bytes).map(|at| (at / 3 + at / PIECE_BYTES) as u8).collect();
            (TensorSpec::new(name, Dtype::F32, &[bytes / 4]), content)
        };
        Fixed {
            tensors: vec![
                tensor("none", 0),
                tensor("some", 20),
                tensor("many", 9 * PIECE_BYTES + 8),
                tensor("last", PIECE_BYTES),
            ],
        }
    }

    fn kept(model: &Fixed) -> Kept {
        let specs = model.tensors.iter().map(|(spec, _)| spec.clone()).collect();
        Kept::of(model, specs).unwrap()
    }

    #[test]
    fn what_is_kept_has_the_hash_of_the_state_at_any_step() {
        let model = model();
        let kept = kept(&model);
        for step in [Step::ZERO, STEP] {
            assert_eq!(kept.hash(step), state_hash(&model, step).unwrap());
        }
        assert!(kept.is_shown_by(&model).unwrap());
    }

    #[test]
    fn what_is_shown_later_has_its_own_hash_whatever_is_kept() {
        let mut model = model();
        let kept = kept(&model);
        assert_eq!(kept.hash_shown(&model, STEP).unwrap(), kept.hash(STEP));
        for (tensor, at) in [(1, 16), (2, 0), (2, 5 * PIECE_BYTES - 1), (2, 9 * PIECE_BYTES + 7), (3, 7)] {
            model.tensors[tensor].1[at] ^= 0x10;
            let expected = state_hash(&model, STEP).unwrap();
            assert_ne!(expected, kept.hash(STEP));
            assert_eq!(
                kept.hash_shown(&model, STEP).unwrap(),
                expected,
                "byte {at} of tensor {tensor}"
            );
            assert_eq!(kept.hash_state(&model, STEP).unwrap(), expected);
        }
    }

    #[test]
    fn tensors_of_another_number_order_or_length_have_their_own_hash() {
        let (own, mut model) = (kept(&model()), model());
        model.tensors.swap(1, 2);
        assert_eq!(own.hash_shown(&model, STEP).unwrap(), state_hash(&model, STEP).unwrap());
        let (spec, bytes) = model.tensors.swap_remove(1);
        assert_eq!(own.hash_shown(&model, STEP).unwrap(), state_hash(&model, STEP).unwrap());
        model.tensors.push((
            TensorSpec::new(spec.name, Dtype::F32, &[bytes.len() / 4 - 1]),
            bytes[4..].to_vec(),
        ));
        model
            .tensors
            .push((TensorSpec::new("one more", Dtype::F32, &[1]), vec![1; 4]));
        assert_eq!(own.hash_shown(&model, STEP).unwrap(), state_hash(&model, STEP).unwrap());
    }
}
