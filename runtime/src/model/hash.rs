//! The hash of a model's state: of its tensors, by the hashes of their pieces, which a model may know without showing itself.
//!
//! It must not know where the hash goes: the identity of a job, a step's agreement and a saved state all use this one.

use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::state::{Dtype, ShareHasher, StateHash, StateHasher, StatePieces, TensorSpec};
use sardana_protocol::words::Step;

use super::Trainable;
use super::state::{Names, StateError, Take, could_not_show, visit_checked};
use super::threads::hashes;

/// A tensor of a state, as it is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedTensor {
    /// Its name, dtype and shape.
    pub spec: TensorSpec,
    /// The BLAKE3 hash of each 1 MiB of its little-endian bytes, in order; the last piece may be shorter, and an empty tensor has none.
    pub pieces: Vec<PieceHash>,
}

/// The hash of the model's state, which is its state at `step`. Equal hashes mean equal bits (STEP-2).
///
/// # Errors
/// When the model cannot show or hash its state, or shows something that is none.
pub fn state_hash(model: &dyn Trainable, step: Step) -> Result<StateHash, StateError> {
    Ok(hash_of(&hashed_tensors(model, |_| ())?, step))
}

/// The tensors of the model's state, which hashes them itself or else shows them. `hashed` is told how many bytes more are hashed.
pub(super) fn hashed_tensors(model: &dyn Trainable, hashed: impl Fn(usize)) -> Result<Vec<HashedTensor>, StateError> {
    let Some(tensors) = told_tensors(model)? else {
        return hash_shown(&|take| visit_checked(model, take), hashed);
    };
    tensors.iter().filter_map(|tensor| tensor.spec.bytes()).for_each(hashed);
    Ok(tensors)
}

/// What the model hashes itself, if it does.
pub(super) fn told_tensors(model: &dyn Trainable) -> Result<Option<Vec<HashedTensor>>, StateError> {
    let Some(tensors) = model.piece_hashes().map_err(could_not_show)? else {
        return Ok(None);
    };
    let mut names = Names::default();
    for HashedTensor { spec, pieces } in &tensors {
        names.admit(spec)?;
        if spec.bytes().map(|bytes| bytes.div_ceil(PIECE_BYTES)) != Some(pieces.len()) {
            return Err(StateError::PieceCount {
                spec: spec.clone(),
                found: pieces.len(),
            });
        }
    }
    Ok(Some(tensors))
}

pub(super) fn hash_shown(
    show: &dyn Fn(Take<'_>) -> Result<(), StateError>,
    hashed: impl Fn(usize),
) -> Result<Vec<HashedTensor>, StateError> {
    let mut tensors = Vec::new();
    show(&mut |spec, bytes| {
        let (spec, pieces) = (spec.clone(), hashes(bytes));
        tensors.push(HashedTensor { spec, pieces });
        hashed(bytes.len());
    })?;
    Ok(tensors)
}

pub(super) fn hash_of(tensors: &[HashedTensor], step: Step) -> StateHash {
    let mut hasher = StateHasher::new(step);
    for HashedTensor { spec, pieces } in tensors {
        hasher.pieces(spec, spec.bytes().unwrap_or_default(), pieces);
    }
    hasher.finish()
}

/// The hashes of all `of` shares of a state that has these tensors, and is cut into these pieces.
pub(super) fn hashes_of_shares(
    tensors: &[HashedTensor],
    pieces: &StatePieces,
    of: u32,
) -> Result<Vec<StateHash>, StateError> {
    let found = tensors.iter().filter_map(|tensor| tensor.spec.bytes()).sum();
    if found != pieces.bytes() {
        let expected = pieces.bytes();
        return Err(StateError::StateLength { expected, found });
    }
    let mut hasher = ShareHasher::new(pieces, of);
    tensors.iter().for_each(|tensor| hasher.pieces(&tensor.pieces));
    Ok(hasher.finish())
}

/// The tensors of the state, in the model's order.
pub(super) fn state_specs(model: &dyn Trainable) -> Result<Vec<TensorSpec>, StateError> {
    if let Some(tensors) = told_tensors(model)? {
        return Ok(tensors.into_iter().map(|tensor| tensor.spec).collect());
    }
    let mut specs = Vec::new();
    visit_checked(model, &mut |spec, _| specs.push(spec.clone()))?;
    Ok(specs)
}

/// The hash over names, dtypes and shapes of the gradient's and the state's tensors and the names of the auxiliary sums. Equal
/// hashes mean that two models can take part in one sum.
///
/// # Errors
/// As [`state_hash`].
pub fn tensors_hash(model: &dyn Trainable) -> Result<StateHash, StateError> {
    tensors_hash_of(model, &state_specs(model)?)
}

/// The same of a model whose state is known to have these tensors.
pub(crate) fn tensors_hash_of(model: &dyn Trainable, specs: &[TensorSpec]) -> Result<StateHash, StateError> {
    let mut hasher = StateHasher::new(Step::ZERO);
    let mut list = |heading: &str, specs: &[TensorSpec]| {
        // A heading that tells how many follow: no two different pairs of lists read the same.
        hasher.spec(&TensorSpec::new(heading, Dtype::U64, &[specs.len()]));
        specs.iter().for_each(|spec| hasher.spec(spec));
    };
    let gradients = model.gradients();
    let mut names = Names::default();
    gradients.iter().try_for_each(|spec| names.admit(spec))?;
    list("gradient", &gradients);
    list("state", specs);
    let sums: Vec<_> = model
        .auxiliary()
        .into_iter()
        .map(|name| TensorSpec::new(name, Dtype::F64, &[]))
        .collect();
    list("auxiliary", &sums);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::super::toys::{Fixed, Line};
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_tensors_in_order() {
        let model = Line::default();
        let mut hasher = StateHasher::new(Step::new(4));
        hasher.tensor(&TensorSpec::new("w", Dtype::F64, &[2]), &[0; 16]);
        hasher.tensor(&TensorSpec::new("velocity", Dtype::F64, &[2]), &[0; 16]);
        assert_eq!(state_hash(&model, Step::new(4)).unwrap(), hasher.finish());
        assert_ne!(state_hash(&model, Step::new(5)).unwrap(), hasher.finish());
    }

    #[test]
    fn the_tensors_hash_tells_models_apart_but_not_states() {
        let hash = tensors_hash(&Line::default()).unwrap();
        let moved = Line {
            w: [1.0, 2.0],
            ..Line::default()
        };
        assert_eq!(hash, tensors_hash(&moved).unwrap());
        let other = Fixed {
            tensors: vec![(TensorSpec::new("w", Dtype::F64, &[2]), vec![0; 16])],
        };
        assert_ne!(hash, tensors_hash(&other).unwrap());
    }
}
