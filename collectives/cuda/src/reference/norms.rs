//! Sums in f64, and sums of squares.

use super::Number as _;
use crate::parameters::SQUARES_TILE;

const LANES: usize = 8;

/// The sum of the squares of `values / divisor`: the quotient is an f32, its square and the sum are f64. Tiles of 16,384 elements are added up each by itself, and
/// then by a [tree](tree_sum). Within a tile element i is added to lane i modulo 8, in order; and the lanes are added from the first to the last. With
/// `divisor` 1 the values are as they are.
#[must_use]
pub fn squares(values: &[f32], divisor: f32) -> f64 {
    let tiles = values.chunks(SQUARES_TILE as usize);
    tree_sum(&tiles.map(|tile| squares_of_tile(tile, divisor)).collect::<Vec<_>>())
}

fn squares_of_tile(values: &[f32], divisor: f32) -> f64 {
    let mut lanes = [0.0; LANES];
    for (number, value) in values.iter().enumerate() {
        let value = f64::from(value / divisor);
        lanes[number % LANES] += value * value;
    }
    let [first, rest @ ..] = lanes;
    rest.iter().fold(first, |sum, lane| sum + lane).one_nan()
}

/// The sum of the terms by a tree that only their number decides: what is left of it has the largest power of two of them that leaves some to its right, and so
/// on within both. The sum of none is 0. (Errors grow with the tree's height: Higham, "The accuracy of floating point summation", 1993.)
#[must_use]
pub fn tree_sum(terms: &[f64]) -> f64 {
    match terms {
        [] => 0.0,
        [term] => term.one_nan(),
        _ => {
            let (left, right) = terms.split_at(terms.len().next_power_of_two() / 2);
            tree_sum(left).plus(tree_sum(right))
        }
    }
}
