//! Whether a state that is shown is one that was saved. Reads both once, and copies neither.

use sardana_protocol::state::{StateHash, StatePieces, TensorSpec};

use super::Trainable;
use super::hash::{HashedTensor, hash_shown, hashes_of_shares, told_tensors};
use super::state::{StateError, Take, visit_checked};
use super::threads::are_equal;

/// Whether what is shown is the saved state of these tensors. `compared` is told how many bytes more are compared.
pub(super) fn is_shown(
    show: &dyn Fn(Take<'_>) -> Result<(), StateError>,
    specs: &[TensorSpec],
    saved: &[u8],
    compared: impl Fn(usize),
) -> Result<bool, StateError> {
    let (mut rest, mut specs, mut same) = (saved, specs.iter(), true);
    show(&mut |spec, bytes| {
        let (expected, after) = rest.split_at(bytes.len().min(rest.len()));
        same = same && specs.next() == Some(spec) && are_equal(expected, bytes);
        compared(bytes.len());
        rest = after;
    })?;
    Ok(same && specs.next().is_none())
}

/// Nothing if the model shows this saved state of these tensors; or else the hashes of all `of` shares of its state. To compare takes half as long as to hash. One that
/// [hashes](Trainable::piece_hashes) its state where that lies does so: to show it would cost more. `looked_at` is told how many bytes more are compared or hashed.
pub(crate) fn hashes_unless_saved(
    model: &dyn Trainable,
    (specs, saved): (&[TensorSpec], &[u8]),
    (pieces, of): (&StatePieces, u32),
    looked_at: impl Fn(usize),
) -> Result<Option<Vec<StateHash>>, StateError> {
    let show = |take: Take<'_>| visit_checked(model, take);
    let tensors: Vec<HashedTensor> = match told_tensors(model)? {
        Some(told) => {
            told.iter().filter_map(|tensor| tensor.spec.bytes()).for_each(&looked_at);
            told
        }
        None if is_shown(&show, specs, saved, &looked_at)? => return Ok(None),
        None => hash_shown(&show, looked_at)?,
    };
    hashes_of_shares(&tensors, pieces, of).map(Some)
}
