//! A dense layer, forward and backward, in f32. Matrices are row-major: `x` is batch by inputs, `w` outputs by inputs, `y` batch by outputs, `b`
//! has an element for each output; `dx`, `dw`, `dy` and `db` are gradients of the same shapes, summed over the batch where they have no row for each
//! sample.
//!
//! Each result is one chain of fused multiply-adds. Processors that have an instruction for these use it, and give the same bits.

use multiversion::multiversion;

use super::Number as _;

/// The sizes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Samples.
    pub batch: usize,
    /// Elements of a sample's result.
    pub outputs: usize,
    /// Elements of a sample.
    pub inputs: usize,
}

/// `y`: the bias, and then the products of inputs and weights from the first input to the last.
///
/// # Panics
/// When a slice is shorter than its shape.
#[must_use]
#[multiversion(targets("x86_64+avx2+fma"))]
pub fn forward(x: &[f32], w: &[f32], b: &[f32], sizes: Sizes) -> Vec<f32> {
    let Sizes { batch, outputs, inputs } = sizes;
    matrix(batch, outputs, |n, o| {
        let terms = (0..inputs).map(|i| (x[n * inputs + i], w[o * inputs + i]));
        chain(b[o], terms)
    })
}

/// `dx`: from 0 on the products of results' gradients and weights, from the first output to the last.
///
/// # Panics
/// When a slice is shorter than its shape.
#[must_use]
#[multiversion(targets("x86_64+avx2+fma"))]
pub fn backward_inputs(dy: &[f32], w: &[f32], sizes: Sizes) -> Vec<f32> {
    let Sizes { batch, outputs, inputs } = sizes;
    matrix(batch, inputs, |n, i| {
        let terms = (0..outputs).map(|o| (dy[n * outputs + o], w[o * inputs + i]));
        chain(0.0, terms)
    })
}

/// `dw`: from 0 on the products of results' gradients and inputs, from the first sample to the last.
///
/// # Panics
/// When a slice is shorter than its shape.
#[must_use]
#[multiversion(targets("x86_64+avx2+fma"))]
pub fn backward_weights(dy: &[f32], x: &[f32], sizes: Sizes) -> Vec<f32> {
    let Sizes { batch, outputs, inputs } = sizes;
    matrix(outputs, inputs, |o, i| {
        let terms = (0..batch).map(|n| (dy[n * outputs + o], x[n * inputs + i]));
        chain(0.0, terms)
    })
}

/// `db`: from 0 on the results' gradients, from the first sample to the last.
///
/// # Panics
/// When `dy` is shorter than its shape.
#[must_use]
pub fn backward_biases(dy: &[f32], sizes: Sizes) -> Vec<f32> {
    let Sizes { batch, outputs, .. } = sizes;
    let sum = |o: usize| (0..batch).fold(0.0, |sum, n| sum + dy[n * outputs + o]);
    (0..outputs).map(|o| sum(o).one_nan()).collect()
}

#[inline(always)]
fn chain(start: f32, terms: impl Iterator<Item = (f32, f32)>) -> f32 {
    terms.fold(start, |sum, (left, right)| left.mul_add(right, sum)).one_nan()
}

#[inline(always)]
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    let element = &element;
    (0..rows)
        .flat_map(|row| (0..columns).map(move |column| element(row, column)))
        .collect()
}
