//! Tests of saved states: the fixed bytes of the format, what comes back, and what bytes from outside may not do.

use proptest::prelude::*;

use super::super::state::state_hash;
use super::super::toys::{Fixed, Line};
use super::*;

fn tensor(name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> (TensorSpec, Vec<u8>) {
    (TensorSpec::new(name, dtype, shape), bytes.to_vec())
}

fn example() -> Fixed {
    Fixed {
        tensors: vec![
            tensor("w", Dtype::F32, &[2, 1], &[1, 2, 3, 4, 5, 6, 7, 8]),
            tensor("é", Dtype::U64, &[], &[9, 0, 0, 0, 0, 0, 0, 0]),
            tensor("none", Dtype::F64, &[0], &[]),
        ],
    }
}

/// The bytes of version 1. A change here is a new version.
#[test]
fn the_format_is_fixed() {
    let mut golden = b"sardana\x01\x03\0\0\0".to_vec();
    golden.extend(b"\x01\0w\x00\x02\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08");
    golden.extend(b"\x02\0\xc3\xa9\x02\x00\x09\0\0\0\0\0\0\0");
    golden.extend(b"\x04\0none\x01\x01\0\0\0\0\0\0\0\0");
    let saved = save(&example()).unwrap();
    assert_eq!(saved.as_bytes(), golden);
    assert_eq!(SavedState::from_bytes(golden).unwrap(), saved);
}

#[test]
fn what_is_saved_comes_back() {
    let model = Line {
        w: [1.5, -2.5],
        velocity: [0.1, f64::NAN],
        ..Line::default()
    };
    let saved = SavedState::from_bytes(save(&model).unwrap().into_bytes()).unwrap();
    let mut other = Line::default();
    restore(&mut other, &saved).unwrap();
    let step = Step::new(3);
    assert_eq!(state_hash(&other, step).unwrap(), state_hash(&model, step).unwrap());
    assert_eq!(saved.hash(step), state_hash(&model, step).unwrap());
}

#[test]
fn a_state_of_another_model_is_not_loaded() {
    let mut line = Line {
        w: [1.0, 2.0],
        ..Line::default()
    };
    let before = state_hash(&line, Step::ZERO).unwrap();
    let error = restore(&mut line, &save(&example()).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "saved state: tensor number 0: expected `w: f64[2]`, found `w: f32[2, 1]`; it was saved from another model"
    );
    let first = save(&line).unwrap().tensors[..1].to_vec();
    let shorter = SavedState {
        tensors: first,
        ..save(&line).unwrap()
    };
    let error = restore(&mut line, &shorter).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected `velocity: f64[2]`, found no more tensors"),
        "{error}"
    );
    assert_eq!(before, state_hash(&line, Step::ZERO).unwrap());
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    let whole = save(&example()).unwrap().into_bytes();
    for end in 0..whole.len() {
        let error = SavedState::from_bytes(whole[..end].to_vec()).unwrap_err();
        let expected = match error {
            DecodeError::Magic { .. } => end < MAGIC.len(),
            DecodeError::Truncated { .. } => end >= MAGIC.len(),
            DecodeError::Trailing { .. }
            | DecodeError::Bound { .. }
            | DecodeError::Name { .. }
            | DecodeError::UnknownDtype { .. }
            | DecodeError::Shape { .. } => false,
        };
        assert!(expected, "cut at {end}: {error}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    let offset = whole.len();
    assert_eq!(
        SavedState::from_bytes(longer),
        Err(DecodeError::Trailing { offset, found: 1 })
    );
}

#[test]
fn numbers_are_bounded_before_they_are_believed() {
    let from = |rest: &[u8]| SavedState::from_bytes([&MAGIC, rest].concat()).unwrap_err();
    assert!(matches!(from(&[255; 4]), DecodeError::Bound { offset: 8, .. }));
    assert!(matches!(from(b"\x01\0\0\0\xff\xff"), DecodeError::Bound { offset: 12, .. }));
    assert_eq!(from(b"\x01\0\0\0\x01\0\xff"), DecodeError::Name { offset: 14 });
    assert_eq!(
        from(b"\x01\0\0\0\x01\0w\x03"),
        DecodeError::UnknownDtype { offset: 15, found: 3 }
    );
    assert!(matches!(
        from(b"\x01\0\0\0\x01\0w\x00\x21"),
        DecodeError::Bound { offset: 16, .. }
    ));
    let mut shape = b"\x01\0\0\0\x01\0w\x00\x01".to_vec();
    shape.extend([255; 8]);
    assert!(matches!(from(&shape), DecodeError::Shape { offset: 17, .. }));
    let end = shape.len() - 1;
    shape[end] = 0;
    shape[end - 1] = 0;
    // 2^48 - 1 elements are thinkable, but not there.
    assert!(matches!(
        from(&shape),
        DecodeError::Truncated {
            offset: 25,
            found: 0,
            ..
        }
    ));
}

proptest! {
    #[test]
    fn bytes_from_outside_never_panic(bytes: Vec<u8>, place: usize, value: u8) {
        let _ = SavedState::from_bytes([&MAGIC, &*bytes].concat());
        let mut damaged = save(&example()).unwrap().into_bytes();
        let place = place % damaged.len();
        damaged[place] = value;
        if let Ok(state) = SavedState::from_bytes(damaged.clone()) {
            // What is read is what was written: no two encodings of one state.
            let model = Fixed { tensors: state.tensors().map(|(spec, bytes)| (spec.clone(), bytes.to_vec())).collect() };
            if let Ok(again) = save(&model) {
                prop_assert_eq!(again.as_bytes(), damaged);
            }
        }
    }
}
