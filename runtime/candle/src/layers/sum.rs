//! Sums in an order that is always the same.

use super::values::Real;

/// Sums are added in this many lanes and then from the first to the last: fast, and in an order that never changes.
const LANES: usize = 8;

/// The sum of `term` of each pair of values.
#[inline]
pub(super) fn sum<T: Real>(left: &[T], right: &[T], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (lefts, rights) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = lefts.remainder().iter().zip(rights.remainder());
    let mut sum = rest.fold(0.0, |sum, (left, right)| sum + term(left.wide(), right.wide()));
    for (left, right) in lefts.zip(rights) {
        for (lane, (left, right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *lane += term(left.wide(), right.wide());
        }
    }
    for lane in lanes {
        sum += lane;
    }
    sum
}
