//! f32 as halves, and back. The crate `half` rounds to the nearest, and to an even one between two; here every NaN becomes the type's one.

use half::{bf16, f16};

use super::Number as _;

/// Each f32 rounded to the nearest bf16.
#[must_use]
pub fn narrow_bf16(values: &[f32]) -> Vec<bf16> {
    let narrow = |value: &f32| if value.is_nan() { bf16::NAN } else { bf16::from_f32(*value) };
    values.iter().map(narrow).collect()
}

/// Each f32 rounded to the nearest f16; from 65,520 on that is infinite.
#[must_use]
pub fn narrow_f16(values: &[f32]) -> Vec<f16> {
    let narrow = |value: &f32| if value.is_nan() { f16::NAN } else { f16::from_f32(*value) };
    values.iter().map(narrow).collect()
}

/// The f32 that each bf16 is.
#[must_use]
pub fn widen_bf16(halves: &[bf16]) -> Vec<f32> {
    halves.iter().map(|half| half.to_f32().one_nan()).collect()
}

/// The f32 that each f16 is.
#[must_use]
pub fn widen_f16(halves: &[f16]) -> Vec<f32> {
    halves.iter().map(|half| half.to_f32().one_nan()).collect()
}
