//! Some tensors of a state, each with its place in the state's bytes, from what shows those that are wanted. Must not know what they are wanted for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

use sardana_protocol::state::TensorSpec;

use super::state::{StateError, Take, Wanted, other_tensor};

/// What shows those tensors of a state that are wanted.
pub(super) type ShowWanted<'a> = &'a dyn Fn(Wanted<'_>, Take<'_>) -> Result<(), StateError>;

/// Sees the tensors that `wants`, by what they are and where they lie in the state's bytes, and says how many bytes the state has.
pub(super) fn see_wanted(
    show: ShowWanted<'_>,
    mut wants: impl FnMut(&TensorSpec, &Range<usize>) -> bool,
    mut see: impl FnMut(Range<usize>, &[u8]),
) -> Result<usize, StateError> {
    const METHOD: &str = "`visit_wanted`";
    let (to_come, mut end, mut other) = (RefCell::new(VecDeque::new()), 0_usize, Ok(()));
    let mut wanted = |spec: &TensorSpec| {
        // A length that no memory has is refused with the tensor.
        let place = end..end.saturating_add(spec.bytes().unwrap_or_default());
        end = place.end;
        let is_wanted = wants(spec, &place);
        if is_wanted {
            to_come.borrow_mut().push_back((spec.clone(), place));
        }
        is_wanted
    };
    show(&mut wanted, &mut |spec, bytes| match to_come.borrow_mut().pop_front() {
        Some((expected, place)) if expected == *spec => see(place, bytes),
        Some((expected, _)) if other.is_ok() => other = Err(other_tensor(METHOD, &expected, Some(spec))),
        // That a tensor was another one is told once; and of one that was not wanted the bytes are not looked at.
        Some(_) | None => {}
    })?;
    match to_come.into_inner().front() {
        Some((expected, _)) if other.is_ok() => Err(other_tensor(METHOD, expected, None)),
        Some(_) | None => other.map(|()| end),
    }
}
