//! A check that what a model shows is a state at all.
//!
//! It must not know what is made of it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use sardana_protocol::limits::{MAX_TENSORS, MAX_TEXT_BYTES, PIECE_BYTES};
use sardana_protocol::state::TensorSpec;

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
    /// Another tensor was shown than was to be, or none: correct the method that is named.
    #[error(
        "model: expected {method} to show {expected}, found {found}; it must show the same tensors in the same order as before"
    )]
    OtherTensor {
        /// What shows the state.
        method: &'static str,
        /// The tensor that was to be shown.
        expected: String,
        /// What was.
        found: String,
    },
    /// Not one hash for each piece of the tensor: correct the model's `piece_hashes`.
    #[error(
        "model: tensor {spec}: expected one hash for each {PIECE_BYTES} bytes of it, found {found} hashes; correct `piece_hashes`"
    )]
    PieceCount {
        /// The tensor as the model describes it.
        spec: TensorSpec,
        /// Hashes that came with it.
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

/// Visits the state, and stops handing tensors on at the first that cannot be one.
pub(super) fn visit_checked(model: &dyn Trainable, take: Take<'_>) -> Result<(), StateError> {
    checked(&|visitor| model.visit(visitor), take)
}

/// The same of what a model has shared.
pub(super) fn shared_checked(shared: &dyn SharedState, take: Take<'_>) -> Result<(), StateError> {
    checked(&|visitor| shared.visit(visitor), take)
}

/// The same of those tensors that are wanted.
pub(super) fn wanted_checked(shared: &dyn SharedState, wanted: Wanted<'_>, take: Take<'_>) -> Result<(), StateError> {
    let wanted = RefCell::new(wanted);
    checked(&|visitor| shared.visit_wanted(&mut **wanted.borrow_mut(), visitor), take)
}

/// A function that is shown a state, tensor by tensor.
pub(super) type Take<'a> = &'a mut dyn FnMut(&TensorSpec, &[u8]);

/// A function that is asked which tensors of a state it is to be shown.
pub(super) type Wanted<'a> = &'a mut dyn FnMut(&TensorSpec) -> bool;

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
    .map_err(could_not_show)?;
    verdict
}

pub(super) fn could_not_show(source: ModelError) -> StateError {
    StateError::Model {
        operation: "show",
        source,
    }
}

pub(super) fn other_tensor(method: &'static str, expected: &TensorSpec, found: Option<&TensorSpec>) -> StateError {
    StateError::OtherTensor {
        method,
        expected: expected.to_string(),
        found: found.map_or_else(|| "nothing".to_owned(), ToString::to_string),
    }
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
pub(super) struct Names {
    seen: BTreeSet<String>,
}

impl Names {
    /// Takes one more tensor, if a state can have it.
    pub(super) fn admit(&mut self, spec: &TensorSpec) -> Result<(), StateError> {
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
    use sardana_protocol::state::Dtype;

    use super::super::toys::Fixed;
    use super::*;

    fn fixed(tensors: Vec<(TensorSpec, Vec<u8>)>) -> Result<(), StateError> {
        visit_checked(&Fixed { tensors }, &mut |_, _| ())
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
}
