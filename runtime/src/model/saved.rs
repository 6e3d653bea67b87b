//! A model's state as bytes, and its shares: what members hand to a worker that lacks it.
//!
//! The bytes are those of the tensors in the order of `visit`, one after the other (see [`StatePieces`]): which tensor
//! they belong to follows from the model, which is the same on all workers of a job. They carry no checksum; the worker that
//! receives them compares their hash.
//! It must not know how they travel.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use sardana_actors::room::{self, Room};
use sardana_collectives::stores::Stores;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces, TensorSpec};
use sardana_storage::manifest::encode_description;

use super::hash::{hashed_tensors, hashes_of_shares, state_specs};
use super::state::{StateError, Take, Wanted, other_tensor, visit_checked, wanted_checked};
use super::wanted::{ShowWanted, see_wanted};
use super::{SharedState, Trainable, threads};

/// How the model's state is cut into pieces.
///
/// # Errors
/// When the model cannot show its state, or shows something that is none.
pub fn pieces(model: &dyn Trainable) -> Result<StatePieces, StateError> {
    Ok(pieces_of(&state_specs(model)?))
}

/// The same of a state whose tensors are known.
pub(crate) fn pieces_of(specs: &[TensorSpec]) -> StatePieces {
    StatePieces::new(specs.iter().map(length))
}

/// Of a tensor that was shown, its bytes were as many.
fn length(spec: &TensorSpec) -> usize {
    spec.bytes().unwrap_or_default()
}

/// The names, dtypes and shapes of the model's state, as checkpoints keep them.
///
/// # Errors
/// When the model cannot show its state, or shows something that is none, or has too many or too long names.
pub fn describe(model: &dyn Trainable) -> Result<Bytes, StateError> {
    describe_specs(&state_specs(model)?)
}

/// The same of a state whose tensors are known.
pub(crate) fn describe_specs(specs: &[TensorSpec]) -> Result<Bytes, StateError> {
    let described = encode_description(specs).map_err(|error| StateError::Model {
        operation: "visit",
        source: error.into(),
    })?;
    Ok(described.into())
}

/// Copies the whole state out of a model.
///
/// # Errors
/// When the model cannot show its state, or shows something that is none.
pub fn save(model: &dyn Trainable) -> Result<BytesMut, StateError> {
    save_by(model, &state_specs(model)?, threads::copy)
}

/// The same of a state whose tensors are known. `copy` copies each to its place.
pub(super) fn save_by(
    model: &dyn Trainable,
    specs: &[TensorSpec],
    mut copy: impl FnMut(&[u8], &mut [u8]),
) -> Result<BytesMut, StateError> {
    let expected = specs.iter().map(length).sum();
    let (mut saved, mut found) = (room::zeros(expected), 0);
    let (mut specs, mut other) = (specs.iter(), Ok(()));
    visit_checked(model, &mut |spec, bytes| {
        match (specs.next(), saved.get_mut(found..found + bytes.len())) {
            (Some(expected), Some(room)) if expected == spec => copy(bytes, room),
            (Some(expected), _) if other.is_ok() => other = Err(other_tensor("`visit`", expected, Some(spec))),
            (Some(_) | None, _) => {}
        }
        found += bytes.len();
    })?;
    other.and_then(|()| check_length(expected, found))?;
    Ok(saved)
}

/// Copies these shares out of a model whose state has these pieces, one after the other into what `room` gives for so many bytes. The model is visited
/// once, and only what belongs to a share is copied: training waits meanwhile.
///
/// # Errors
/// When the model cannot show its state, or shows another one than before.
pub(crate) fn copy_shares(
    model: &dyn Trainable,
    pieces: &StatePieces,
    shares: &[Share],
    room: impl FnOnce(usize) -> Room,
) -> Result<Vec<Bytes>, StateError> {
    let show = |wanted: Wanted<'_>, take: Take<'_>| {
        visit_checked(model, &mut |spec, bytes| {
            if wanted(spec) {
                take(spec, bytes);
            }
        })
    };
    copy(&show, pieces, shares, room, |_| ())
}

/// The same from what a model has shared, by another thread. `copied` is told how many bytes more are copied.
pub(crate) fn copy_shared(
    shared: &dyn SharedState,
    pieces: &StatePieces,
    shares: &[Share],
    room: impl FnOnce(usize) -> Room,
    copied: impl Fn(usize),
) -> Result<Vec<Bytes>, StateError> {
    let show = |wanted: Wanted<'_>, take: Take<'_>| wanted_checked(shared, wanted, take);
    copy(&show, pieces, shares, room, copied)
}

/// Between two words of how far a copy is.
const TOLD_BYTES: usize = 64 << 20;

fn copy(
    show: ShowWanted<'_>,
    pieces: &StatePieces,
    shares: &[Share],
    room: impl FnOnce(usize) -> Room,
    copied: impl Fn(usize),
) -> Result<Vec<Bytes>, StateError> {
    let ranges: Vec<_> = shares.iter().map(|&share| pieces.bytes_of(share)).collect();
    let mut room = room(ranges.iter().map(ExactSizeIterator::len).sum());
    let mut rest = room.as_mut();
    let mut copies = Vec::with_capacity(ranges.len());
    for range in &ranges {
        let (copy, behind) = rest.split_at_mut(range.len());
        copies.push(copy);
        rest = behind;
    }
    let stores = Stores::of(pieces.bytes());
    let is_copied = |tensor: &Range<usize>| {
        ranges
            .iter()
            .any(|range| range.start < tensor.end && tensor.start < range.end)
    };
    let found = see_wanted(
        show,
        |_, tensor| is_copied(tensor),
        |Range { start, end }, bytes| {
            for (range, copy) in ranges.iter().zip(&mut copies) {
                let (from, to) = (range.start.max(start), range.end.min(end));
                if from < to {
                    let copy = &mut copy[from - range.start..to - range.start];
                    let parts = bytes[from - start..to - start].chunks(TOLD_BYTES);
                    for (part, copy) in parts.zip(copy.chunks_mut(TOLD_BYTES)) {
                        stores.copy(copy, part);
                        copied(part.len());
                    }
                }
            }
        },
    )?;
    check_length(pieces.bytes(), found)?;
    let mut rest = Bytes::from(room);
    Ok(ranges.iter().map(|range| rest.split_to(range.len())).collect())
}

/// The hashes of all `of` shares of a model's state, which has these pieces.
///
/// # Errors
/// When the model cannot show its state, or shows another one than before.
pub fn share_hashes(model: &dyn Trainable, pieces: &StatePieces, of: u32) -> Result<Vec<StateHash>, StateError> {
    share_hashes_watched(model, pieces, of, |_| ())
}

/// The same. `hashed` is told how many bytes more are hashed.
pub(crate) fn share_hashes_watched(
    model: &dyn Trainable,
    pieces: &StatePieces,
    of: u32,
    hashed: impl Fn(usize),
) -> Result<Vec<StateHash>, StateError> {
    hashes_of_shares(&hashed_tensors(model, hashed)?, pieces, of)
}

/// Brings a saved state back into a model. Its length is compared with the model's state before the first tensor is loaded.
///
/// # Errors
/// When the state is that of another model (the model is unchanged), or the model cannot take it (it may be half loaded: drop
/// it).
pub fn restore(model: &mut dyn Trainable, saved: &[u8]) -> Result<(), StateError> {
    let specs = state_specs(model)?;
    restore_as(model, &specs, saved, |_| ())
}

/// The same where the model's state is known to have these tensors. `loaded` is told how many bytes more are loaded.
pub(crate) fn restore_as(
    model: &mut dyn Trainable,
    specs: &[TensorSpec],
    saved: &[u8],
    loaded: impl Fn(usize),
) -> Result<(), StateError> {
    check_length(specs.iter().map(length).sum(), saved.len())?;
    let mut rest = saved;
    for spec in specs {
        let (bytes, after) = rest.split_at(length(spec));
        model.load(spec, bytes).map_err(|source| StateError::Model {
            operation: "load",
            source,
        })?;
        loaded(bytes.len());
        rest = after;
    }
    Ok(())
}

fn check_length(expected: usize, found: usize) -> Result<(), StateError> {
    if expected == found {
        Ok(())
    } else {
        Err(StateError::StateLength { expected, found })
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::limits::PIECE_BYTES;
    use sardana_protocol::words::Step;

    use std::sync::{Arc, Mutex};

    use sardana_actors::room::Reserve;

    use super::super::hash::state_hash;
    use super::super::toys::{Fixed, Line};
    use super::*;
    use crate::model::{Dtype, ModelError};

    fn tensor(name: &str, dtype: Dtype, shape: &[usize]) -> (TensorSpec, Vec<u8>) {
        let spec = TensorSpec::new(name, dtype, shape);
        let bytes = (0..spec.bytes().unwrap()).map(|at| (at / 5 + name.len()) as u8).collect();
        (spec, bytes)
    }

    fn room(bytes: usize) -> Room {
        Reserve::default().room(bytes)
    }

    /// Five pieces: 8 bytes, a whole one and 4 bytes, 8 bytes, nothing, 16 bytes.
    fn example() -> Fixed {
        Fixed {
            tensors: vec![
                tensor("w", Dtype::F32, &[2, 1]),
                tensor("long", Dtype::F32, &[PIECE_BYTES / 4 + 1]),
                tensor("é", Dtype::U64, &[]),
                tensor("none", Dtype::F64, &[0]),
                tensor("velocity", Dtype::F64, &[2]),
            ],
        }
    }

    #[test]
    fn a_state_is_its_tensors_bytes_in_order() {
        let model = example();
        let expected: Vec<u8> = model.tensors.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let saved = save(&model).unwrap();
        assert!(saved == expected);
        assert_eq!(pieces(&model).unwrap().bytes(), expected.len());
    }

    #[test]
    fn what_is_saved_comes_back() {
        let model = Line {
            w: [1.5, -2.5],
            velocity: [0.1, f64::NAN],
            ..Line::default()
        };
        let mut other = Line::default();
        restore(&mut other, &save(&model).unwrap()).unwrap();
        let step = Step::new(3);
        assert_eq!(state_hash(&other, step).unwrap(), state_hash(&model, step).unwrap());
        assert!(other.velocity[1].is_nan() && other.w == [1.5, -2.5]);
    }

    #[test]
    fn a_state_of_another_length_is_not_loaded() {
        let mut line = Line {
            w: [1.0, 2.0],
            ..Line::default()
        };
        let before = state_hash(&line, Step::ZERO).unwrap();
        let saved = save(&line).unwrap();
        for wrong in [&saved[..31], &[&saved[..], &[0]].concat(), &[]] {
            let error = restore(&mut line, wrong).unwrap_err().to_string();
            let expected = format!("expected a state of 32 bytes, found {}", wrong.len());
            assert!(error.contains(&expected), "{error}");
        }
        assert_eq!(before, state_hash(&line, Step::ZERO).unwrap());
    }

    #[test]
    fn shares_are_the_ranges_of_the_whole_state() {
        let model = example();
        let (pieces, saved) = (pieces(&model).unwrap(), save(&model).unwrap());
        for of in 1..8 {
            let shares: Vec<Share> = (0..of).map(|index| Share { index, of }).collect();
            let copies = copy_shares(&model, &pieces, &shares, room).unwrap();
            for (&share, copy) in shares.iter().zip(&copies) {
                assert!(copy == &saved[pieces.bytes_of(share)], "{share}");
            }
            assert!(copies.concat() == saved);
            let hashes = share_hashes(&model, &pieces, of).unwrap();
            let expected: Vec<StateHash> = shares
                .iter()
                .zip(&copies)
                .map(|(&share, copy)| pieces.hash_of(share, copy))
                .collect();
            assert_eq!(hashes, expected);
            // The two that a member copies: the last and the first.
            let two = [Share { index: of - 1, of }, Share { index: 0, of }];
            let copied = copy_shares(&model, &pieces, &two, room).unwrap();
            assert!(copied[0] == copies[of as usize - 1] && copied[1] == copies[0]);
        }
    }

    #[test]
    fn shares_lie_one_after_the_other_in_the_room_for_all_of_them() {
        let model = example();
        let (pieces, saved) = (pieces(&model).unwrap(), save(&model).unwrap());
        let shares: Vec<Share> = (1..3).map(|index| Share { index, of: 3 }).collect();
        let mut place = std::ptr::null();
        let room = |bytes| {
            let mut room = room(bytes);
            // What was there before does not matter.
            room.as_mut().fill(0xff);
            place = room.as_ref().as_ptr();
            room
        };
        let copies = copy_shares(&model, &pieces, &shares, room).unwrap();
        let expected = &saved[pieces.bytes_of(shares[0]).start..];
        assert_eq!((copies[0].as_ptr(), copies.concat().as_slice()), (place, expected));
        assert_eq!(copies[1].as_ptr(), copies[0].as_ptr_range().end);
    }

    /// A state that is shown from elsewhere, and notes which tensors were brought for that.
    struct Elsewhere {
        tensors: Vec<(TensorSpec, Vec<u8>)>,
        brought: Arc<Mutex<Vec<String>>>,
    }

    impl SharedState for Elsewhere {
        fn visit(&self, visitor: Take<'_>) -> Result<(), ModelError> {
            self.visit_wanted(&mut |_| true, visitor)
        }

        fn visit_wanted(&self, wanted: Wanted<'_>, visitor: Take<'_>) -> Result<(), ModelError> {
            for (spec, bytes) in self.tensors.iter().filter(|(spec, _)| wanted(spec)) {
                self.brought.lock().unwrap().push(spec.name.clone());
                visitor(spec, bytes);
            }
            Ok(())
        }
    }

    #[test]
    fn only_tensors_of_the_copied_shares_are_brought() {
        let (model, brought) = (example(), Arc::default());
        let (pieces, saved) = (pieces(&model).unwrap(), save(&model).unwrap());
        let shared = Elsewhere {
            tensors: model.tensors.clone(),
            brought: Arc::clone(&brought),
        };
        // The pieces of the five shares are of w, of long twice, of é, and of velocity.
        for (shares, expected) in [
            (&[0, 1][..], &["w", "long"][..]),
            (&[1], &["long"]),
            (&[4, 0], &["w", "velocity"]),
            (&[2, 3], &["long", "é"]),
        ] {
            let shares: Vec<Share> = shares.iter().map(|&index| Share { index, of: 5 }).collect();
            let copies = copy_shared(&shared, &pieces, &shares, room, |_| ()).unwrap();
            for (&share, copy) in shares.iter().zip(&copies) {
                assert!(copy == &saved[pieces.bytes_of(share)], "{share}");
            }
            assert_eq!(*brought.lock().unwrap(), expected);
            brought.lock().unwrap().clear();
        }
    }

    #[test]
    fn a_model_that_shows_another_state_than_before_is_told_so() {
        let pieces = pieces(&example()).unwrap();
        let other = Line::default();
        // There it shows more than it did before.
        let shorter = pieces_of(&state_specs(&other).unwrap()[..1]);
        let longer = copy_shares(&other, &shorter, &[Share::WHOLE], room).unwrap_err();
        assert!(matches!(longer, StateError::StateLength { found: 32, .. }), "{longer}");
        for error in [
            copy_shares(&other, &pieces, &[Share::WHOLE], room).unwrap_err(),
            share_hashes(&other, &pieces, 2).unwrap_err(),
        ] {
            assert!(matches!(error, StateError::StateLength { found: 32, .. }), "{error}");
        }
    }
}
