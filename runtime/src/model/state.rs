//! The hash of a model's state, with a check that what the model shows is a state at all.
//!
//! It must not know where the hash goes: the identity of a job, a step's agreement and a saved state all use this one.

use std::collections::BTreeSet;

use sardana_protocol::limits::{MAX_TENSORS, MAX_TEXT_BYTES};
use sardana_protocol::state::{Dtype, StateHash, StateHasher, TensorSpec};
use sardana_protocol::words::Step;

use super::threads::hashes;
use super::{ModelError, SharedState, Trainable};

/// Most dimensions of a tensor: numeric libraries end at 32 or before.
pub const MAX_DIMENSIONS: usize = 32;

/// Why a model's state could not be read or brought back.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The model failed by itself; its message says what to do.
    #[error("the model failed to {operation} its state: {source}")]
    Model {
        /// What the model was asked to do.
        operation: &'static str,
        /// The error of the model.
        source: ModelError,
    },
    /// Two tensors have one name: rename one in the model's `visit` or `gradients`.
    #[error("model: expected every tensor to have a name of its own, found {0:?} twice; rename one")]
    NameTwice(String),
    /// A name has so many bytes, more than a message may carry: shorten it.
    #[error("model: expected tensor names of up to {MAX_TEXT_BYTES} bytes, found one of {0}; shorten it")]
    NameLength(usize),
    /// A shape has too many dimensions: reshape the tensor.
    #[error("model: tensor {name:?}: expected up to {MAX_DIMENSIONS} dimensions, found {found}; reshape it")]
    Dimensions {
        /// The tensor with this shape.
        name: String,
        /// How many dimensions it has.
        found: usize,
    },
    /// The bytes are not those of the shape and dtype: correct the model's `visit`.
    #[error("model: tensor {spec}: expected {expected} bytes of its shape and dtype, found {found}; correct `visit`")]
    ByteLength {
        /// The tensor as the model describes it.
        spec: TensorSpec,
        /// Bytes that this means.
        expected: ByteCount,
        /// Bytes that it showed.
        found: usize,
    },
    /// More tensors than a message may list: join some.
    #[error("model: expected up to {MAX_TENSORS} tensors, found more; join some into one")]
    TooMany,
    /// The bytes are as many as those of another model's state: use the model that it was saved from.
    #[error(
        "model: expected a state of {expected} bytes, found {found}; it is another model's, or `visit` varies: correct it"
    )]
    StateLength {
        /// Bytes that the model's state has.
        expected: usize,
        /// Bytes that were there.
        found: usize,
    },
}

/// How many bytes a tensor takes, if memory can hold so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteCount(pub Option<usize>);

impl std::fmt::Display for ByteCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("(more than memory can address)"),
        }
    }
}

/// The hash of the model's state, which is its state at `step`. Equal hashes mean equal bits (STEP-2).
///
/// # Errors
/// When the model cannot show its state, or shows something that is none.
pub fn state_hash(model: &dyn Trainable, step: Step) -> Result<StateHash, StateError> {
    let mut hasher = StateHasher::new(step);
    visit_checked(model, &mut |spec, bytes| hasher.pieces(spec, bytes.len(), &hashes(bytes)))?;
    Ok(hasher.finish())
}

/// The same of what a model has shared.
pub(super) fn shared_hash(shared: &dyn SharedState, step: Step) -> Result<StateHash, StateError> {
    let mut hasher = StateHasher::new(step);
    shared_checked(shared, &mut |spec, bytes| hasher.pieces(spec, bytes.len(), &hashes(bytes)))?;
    Ok(hasher.finish())
}

/// The same of a state that was saved, and has these tensors.
pub(super) fn saved_hash(specs: &[TensorSpec], saved: &[u8], step: Step) -> StateHash {
    let (mut hasher, mut rest) = (StateHasher::new(step), saved);
    for spec in specs {
        let (bytes, after) = rest.split_at(spec.bytes().unwrap_or_default().min(rest.len()));
        hasher.pieces(spec, bytes.len(), &hashes(bytes));
        rest = after;
    }
    hasher.finish()
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

/// The tensors of the state, in the model's order.
pub(super) fn state_specs(model: &dyn Trainable) -> Result<Vec<TensorSpec>, StateError> {
    let mut specs = Vec::new();
    visit_checked(model, &mut |spec, _| specs.push(spec.clone()))?;
    Ok(specs)
}

/// Visits the state, and stops handing tensors on at the first that cannot be one.
pub(super) fn visit_checked(model: &dyn Trainable, take: Take<'_>) -> Result<(), StateError> {
    checked(&|visitor| model.visit(visitor), take)
}

/// The same of what a model has shared.
pub(super) fn shared_checked(shared: &dyn SharedState, take: Take<'_>) -> Result<(), StateError> {
    checked(&|visitor| shared.visit(visitor), take)
}

/// A function that is shown a state, tensor by tensor.
pub(super) type Take<'a> = &'a mut dyn FnMut(&TensorSpec, &[u8]);

fn checked(show: &dyn Fn(Take<'_>) -> Result<(), ModelError>, take: Take<'_>) -> Result<(), StateError> {
    let mut names = Names::default();
    let mut verdict = Ok(());
    show(&mut |spec, bytes| {
        if verdict.is_ok() {
            verdict = names.admit(spec).and_then(|()| check_length(spec, bytes));
            if verdict.is_ok() {
                take(spec, bytes);
            }
        }
    })
    .map_err(|source| StateError::Model {
        operation: "show",
        source,
    })?;
    verdict
}

fn check_length(spec: &TensorSpec, bytes: &[u8]) -> Result<(), StateError> {
    if spec.bytes() == Some(bytes.len()) {
        return Ok(());
    }
    Err(StateError::ByteLength {
        spec: spec.clone(),
        expected: ByteCount(spec.bytes()),
        found: bytes.len(),
    })
}

/// The names seen so far.
#[derive(Default)]
struct Names {
    seen: BTreeSet<String>,
}

impl Names {
    fn admit(&mut self, spec: &TensorSpec) -> Result<(), StateError> {
        if self.seen.len() == MAX_TENSORS {
            return Err(StateError::TooMany);
        }
        if spec.name.len() > MAX_TEXT_BYTES {
            return Err(StateError::NameLength(spec.name.len()));
        }
        if spec.shape.len() > MAX_DIMENSIONS {
            return Err(StateError::Dimensions {
                name: spec.name.clone(),
                found: spec.shape.len(),
            });
        }
        if !self.seen.insert(spec.name.clone()) {
            return Err(StateError::NameTwice(spec.name.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::toys::{Fixed, Line};
    use super::*;

    fn fixed(tensors: Vec<(TensorSpec, Vec<u8>)>) -> Result<StateHash, StateError> {
        state_hash(&Fixed { tensors }, Step::ZERO)
    }

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
    fn what_is_no_state_is_refused() {
        let spec = |name: &str| TensorSpec::new(name, Dtype::F32, &[2]);
        let twice = fixed(vec![(spec("w"), vec![0; 8]), (spec("w"), vec![0; 8])]);
        assert!(matches!(twice, Err(StateError::NameTwice(name)) if name == "w"));
        let short = fixed(vec![(spec("w"), vec![0; 7])]).unwrap_err();
        assert_eq!(
            short.to_string(),
            "model: tensor w: f32[2]: expected 8 bytes of its shape and dtype, found 7; correct `visit`"
        );
        let endless = TensorSpec::new("w", Dtype::F32, &[usize::MAX, 2]);
        assert!(matches!(
            fixed(vec![(endless, vec![])]),
            Err(StateError::ByteLength {
                expected: ByteCount(None),
                ..
            })
        ));
        let long = fixed(vec![(spec(&"w".repeat(2_000)), vec![0; 8])]);
        assert!(matches!(long, Err(StateError::NameLength(2_000))));
        let deep = TensorSpec::new("w", Dtype::F32, &[1; 33]);
        assert!(matches!(
            fixed(vec![(deep, vec![0; 4])]),
            Err(StateError::Dimensions { found: 33, .. })
        ));
        let empty = TensorSpec::new("", Dtype::F32, &[0]);
        let many = (0..=MAX_TENSORS).map(|index| {
            let mut spec = empty.clone();
            spec.name = index.to_string();
            (spec, vec![])
        });
        assert!(matches!(fixed(many.collect()), Err(StateError::TooMany)));
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
