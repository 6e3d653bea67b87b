//! What a convolution computes, on slices. It knows no tensors.
//!
//! The bits follow from the shapes, not from the number of threads: images are apart, and gradients of weights are added within parts of
//! the batch first and then from part to part, in order.

use std::iter::zip;

use rayon::prelude::*;

use super::super::product::{Matrix, product, transposed};
use super::super::values::Real;
use super::windows::{Plan, Tile};

/// Into how many parts a batch is cut at most: so many threads can compute gradients of weights.
const PARTS: usize = 8;

/// Sums of a row have so many lanes.
const LANES: usize = 16;

/// A convolution of an input of known shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution<'a, T> {
    pub(super) plan: Plan,
    pub(super) input: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) to: usize,
    pub(super) rectified: bool,
}

/// Gradients: of the input if asked for, of the weights, of the biases.
pub(super) struct Gradients<T> {
    pub(super) input: Option<Vec<T>>,
    pub(super) weight: Vec<T>,
    pub(super) bias: Vec<T>,
}

/// What a thread writes on.
struct Scratch<T> {
    padded: Vec<T>,
    padded_gradient: Vec<T>,
    /// A tile's windows, and its maps.
    windows: Vec<T>,
    maps: Vec<T>,
}

impl<T: Real> Scratch<T> {
    fn new() -> Self {
        Self {
            padded: Vec::new(),
            padded_gradient: Vec::new(),
            windows: Vec::new(),
            maps: Vec::new(),
        }
    }
}

/// The first values of a vector that is as long as was ever needed.
fn room<T: Real>(vector: &mut Vec<T>, values: usize) -> &mut [T] {
    if vector.len() < values {
        vector.resize(values, T::zero());
    }
    &mut vector[..values]
}

/// Calls `each` for all items, in as many threads as there are.
fn side_by_side<I: Send, T: Real>(items: Vec<I>, each: impl Fn(&mut Scratch<T>, I) + Send + Sync) {
    if items.len() == 1 || rayon::current_num_threads() == 1 {
        let mut scratch = Scratch::new();
        items.into_iter().for_each(|item| each(&mut scratch, item));
    } else {
        items.into_par_iter().for_each_init(Scratch::new, each);
    }
}

/// How many threads a product may have when its like are computed side by side.
fn threads_beside(items: usize) -> usize {
    if items == 1 { rayon::current_num_threads() } else { 1 }
}

impl<T: Real> Convolution<'_, T> {
    /// Values of an image's maps.
    fn maps(&self) -> usize {
        self.to * self.plan.places()
    }

    fn weights(&self) -> Matrix<'_, T> {
        Matrix::new(self.weight, self.to, self.plan.taps())
    }

    /// The maps of all images.
    pub(super) fn forward(&self, bias: Option<&[T]>) -> Vec<T> {
        let (plan, maps) = (self.plan, self.maps());
        let mut output = vec![T::zero(); plan.images * maps];
        let groups: Vec<_> = zip(
            self.input.chunks(plan.group * plan.pixels()),
            output.chunks_mut(plan.group * maps),
        )
        .collect();
        let threads = threads_beside(groups.len());
        side_by_side(groups, |scratch: &mut Scratch<T>, (input, output)| {
            let padded = plan.pad(input, &mut scratch.padded);
            for tile in plan.tiles(output.len() / maps) {
                let across = plan.across(tile);
                let windows = room(&mut scratch.windows, plan.taps() * across);
                plan.unfold(tile, padded, windows);
                let found = room(&mut scratch.maps, self.to * across);
                product(
                    found,
                    self.weights(),
                    Matrix::new(windows, plan.taps(), across),
                    false,
                    threads,
                );
                self.place(tile, found, bias, output);
            }
        });
        output
    }

    /// From a tile's matrix to the images' maps.
    fn place(&self, tile: Tile, found: &[T], bias: Option<&[T]>, output: &mut [T]) {
        let (span, columns) = (self.plan.span(tile), self.plan.columns);
        for (image, maps) in output.chunks_exact_mut(self.maps()).enumerate() {
            for (channel, map) in maps.chunks_exact_mut(self.plan.places()).enumerate() {
                let bias = bias.map_or(T::zero(), |bias| bias[channel]);
                let found = &found[(channel * tile.images + image) * span..][..span];
                for (from, to) in self.plan.lines(tile) {
                    let pairs = zip(&mut map[to..to + columns], &found[from..from + columns]);
                    if self.rectified {
                        // A NaN is not below 0.
                        pairs.for_each(|(to, &found)| {
                            let value = found + bias;
                            *to = if value < T::zero() { T::zero() } else { value };
                        });
                    } else {
                        pairs.for_each(|(to, &found)| *to = found + bias);
                    }
                }
            }
        }
    }

    /// The gradients, from that of the output.
    pub(super) fn backward(&self, output: &[T], gradient: &[T], of_input: bool) -> Gradients<T> {
        let (plan, maps, weights) = (self.plan, self.maps(), self.weight.len());
        // Sums of parts take no more memory than the input, or there is one.
        let groups = plan.images.div_ceil(plan.group);
        let parts = (self.input.len() / weights).clamp(1, PARTS).min(groups);
        let images = groups.div_ceil(parts) * plan.group;
        let parts = plan.images.div_ceil(images);
        let mut pixels = of_input.then(|| vec![T::zero(); self.input.len()]);
        let mut sums = vec![T::zero(); parts * (weights + self.to)];
        let mut pixels_of_parts = pixels.as_mut().map(|pixels| pixels.chunks_mut(images * plan.pixels()));
        let items: Vec<_> = zip(
            self.input.chunks(images * plan.pixels()),
            sums.chunks_exact_mut(weights + self.to),
        )
        .enumerate()
        .map(|(part, (input, sums))| {
            let from = part * images * maps;
            let end = from + input.len() / plan.pixels() * maps;
            let part = Part {
                input,
                output: &output[from..end],
                gradient: &gradient[from..end],
            };
            (part, pixels_of_parts.as_mut().and_then(Iterator::next), sums)
        })
        .collect();
        let threads = threads_beside(parts);
        side_by_side(items, |scratch, (part, pixels, sums)| {
            self.backward_of(part, pixels, sums, threads, scratch);
        });
        let (first, others) = sums.split_at_mut(weights + self.to);
        for other in others.chunks_exact(weights + self.to) {
            zip(&mut *first, other).for_each(|(sum, other)| *sum += *other);
        }
        let (turned, bias) = first.split_at(weights);
        Gradients {
            input: pixels,
            weight: transposed(turned, plan.taps(), self.to),
            bias: bias.to_vec(),
        }
    }

    /// Adds the gradients of a part: those of the weights, transposed, and the biases' to `sums`.
    fn backward_of(
        &self,
        part: Part<'_, T>,
        pixels: Option<&mut [T]>,
        sums: &mut [T],
        threads: usize,
        scratch: &mut Scratch<T>,
    ) {
        let (plan, taps) = (self.plan, self.plan.taps());
        let (weight, bias) = sums.split_at_mut(self.weight.len());
        let (size, maps) = (plan.group * plan.pixels(), plan.group * self.maps());
        let mut pixels = pixels.map(|pixels| pixels.chunks_mut(size));
        let groups = zip(
            part.input.chunks(size),
            zip(part.output.chunks(maps), part.gradient.chunks(maps)),
        );
        for (input, (output, gradient)) in groups {
            let padded = plan.pad(input, &mut scratch.padded);
            let mut backward = |mut pixels: Option<&mut [T]>| {
                for tile in plan.tiles(input.len() / plan.pixels()) {
                    let across = plan.across(tile);
                    let windows = room(&mut scratch.windows, taps * across);
                    let found = room(&mut scratch.maps, self.to * across);
                    plan.unfold(tile, padded, windows);
                    self.gather(tile, output, gradient, found);
                    zip(&mut *bias, found.chunks_exact(across)).for_each(|(bias, row)| *bias += sum(row));
                    let found = Matrix::new(found, self.to, across);
                    product(weight, Matrix::new(windows, taps, across), found.transposed(), true, threads);
                    if let Some(pixels) = &mut pixels {
                        product(windows, self.weights().transposed(), found, false, threads);
                        plan.fold(tile, windows, pixels);
                    }
                }
            };
            match pixels.as_mut().and_then(Iterator::next) {
                Some(pixels) => plan.cropped(pixels, &mut scratch.padded_gradient, |pixels| backward(Some(pixels))),
                None => backward(None),
            }
        }
    }

    /// From the gradients of images' maps to a tile's matrix: the other way than [`Self::place`]. Columns of no window are 0.
    fn gather(&self, tile: Tile, output: &[T], gradient: &[T], found: &mut [T]) {
        let (span, columns) = (self.plan.span(tile), self.plan.columns);
        for (row, found) in found.chunks_exact_mut(span).enumerate() {
            let map = ((row % tile.images) * self.to + row / tile.images) * self.plan.places();
            let mut end = 0;
            for (to, from) in self.plan.lines(tile) {
                found[end..to].fill(T::zero());
                end = to + columns;
                let to = &mut found[to..end];
                let gradient = &gradient[map + from..][..columns];
                if self.rectified {
                    let output = &output[map + from..][..columns];
                    for ((to, &gradient), &output) in zip(zip(to, gradient), output) {
                        *to = if output <= T::zero() { T::zero() } else { gradient };
                    }
                } else {
                    to.copy_from_slice(gradient);
                }
            }
        }
    }
}

/// Some images of a batch, their maps and the gradient of those.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    input: &'a [T],
    output: &'a [T],
    gradient: &'a [T],
}

/// The sum of a row, in lanes that are added last.
fn sum<T: Real>(row: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        zip(&mut lanes, chunk).for_each(|(lane, value)| *lane += *value);
    }
    zip(&mut lanes, rest).for_each(|(lane, value)| *lane += *value);
    lanes.into_iter().fold(T::zero(), |sum, lane| sum + lane)
}
