//! Sums of squares.

use super::Number as _;

const LANES: usize = 8;

/// The sum of the squares of `values / divisor`: the quotient is an f32, its square and the sum are f64. Element i is added to lane i modulo 8, in
/// order; and the lanes are added from the first to the last. With `divisor` 1 the values are as they are.
#[must_use]
pub fn squares(values: &[f32], divisor: f32) -> f64 {
    let mut lanes = [0.0; LANES];
    for (number, value) in values.iter().enumerate() {
        let value = f64::from(value / divisor);
        lanes[number % LANES] += value * value;
    }
    let [first, rest @ ..] = lanes;
    rest.iter().fold(first, |sum, lane| sum + lane).one_nan()
}
