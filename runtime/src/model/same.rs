//! Whether a state that is shown is one that was saved. Reads both once, and copies neither.

use sardana_protocol::state::TensorSpec;

use super::Trainable;
use super::hash::told_tensors;
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

/// The same of what the model shows. None if it [hashes](Trainable::piece_hashes) its state where that lies: to show it would cost more.
pub(crate) fn is_saved_as(
    model: &dyn Trainable,
    specs: &[TensorSpec],
    saved: &[u8],
    compared: impl Fn(usize),
) -> Result<Option<bool>, StateError> {
    if told_tensors(model)?.is_some() {
        return Ok(None);
    }
    is_shown(&|take| visit_checked(model, take), specs, saved, compared).map(Some)
}
