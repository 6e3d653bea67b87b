//! Max-pooling with a right gradient: candle's scales the gradient of each window by its number of maxima over its size, and refuses
//! windows that overlap.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor, WithDType};

use super::taps::{outside, taps};
use super::values::{Reading, Real, by_dtype, values};
use super::windows::{Planes, Windows};

const NAME: &str = "MaxPool2d";

/// The largest value of each window, of (images, channels, height, width) in f32 or f64. A window that holds a NaN gives NaN. The
/// whole gradient of a window goes to the first of its maxima, row by row, or to its first NaN.
///
/// Calling it fails for another type or rank, for an empty input, for images smaller than the kernel, and for a kernel or stride of
/// 0.
///
/// ```
/// # use candle_core::{Device, Module, Result, Tensor};
/// # use sardana_candle::MaxPool2d;
/// # fn main() -> Result<()> {
/// let images = Tensor::zeros((8, 64, 112, 112), candle_core::DType::F32, &Device::Cpu)?;
/// let pooled = MaxPool2d::new(3, 2).padding(1).forward(&images)?;
/// assert_eq!(pooled.dims(), [8, 64, 56, 56]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d {
    windows: Windows,
}

impl MaxPool2d {
    /// Windows of `kernel` × `kernel` pixels, `stride` pixels apart; none reaches beyond the image.
    #[must_use]
    pub const fn new(kernel: usize, stride: usize) -> Self {
        Self {
            windows: Windows {
                kernel,
                stride,
                padding: 0,
            },
        }
    }

    /// As if `pixels` of -∞ were around each image; at most half the kernel, or calling it fails.
    #[must_use]
    pub const fn padding(mut self, pixels: usize) -> Self {
        self.windows.padding = pixels;
        self
    }
}

impl Module for MaxPool2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let planes = self.windows.over(NAME, input.shape())?;
        if !input.device().is_cpu() {
            return self.composed(input);
        }
        input.contiguous()?.apply_op1(Maxima { planes })
    }
}

impl MaxPool2d {
    /// By operations of candle.
    fn composed(&self, input: &Tensor) -> Result<Tensor> {
        let sizes = self.windows.sizes();
        let (taps, mut outside) = (taps(input, sizes)?, outside(input, sizes)?.into_iter());
        // 1 for windows that have not met the image yet, where some have padding.
        let mut unmet = outside.next();
        let mut largest = taps[0].clone();
        for tap in &taps[1..] {
            // As `larger` has it.
            let mut takes = (tap.gt(&largest)? + (tap.ne(tap)? * largest.eq(&largest)?)?)?;
            if let (Some(before), Some(outside)) = (unmet.take(), outside.next()) {
                takes = takes.broadcast_add(&before)?.broadcast_mul(&outside.eq(0_u8)?)?;
                unmet = Some((before * outside)?);
            }
            largest = takes.where_cond(tap, &largest)?;
        }
        Ok(largest)
    }
}

struct Maxima {
    planes: Planes,
}

impl CustomOp1 for Maxima {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let maxima = by_dtype!(storage.dtype(), NAME, T => {
            T::to_cpu_storage_owned(maxima::<T>(&self.planes, values(storage, layout)?))
        });
        Ok((maxima, self.planes.output()))
    }

    fn bwd(&self, input: &Tensor, maxima: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (read, maxima, gradient) = (Reading::of(input), Reading::of(maxima), Reading::of(&gradient));
        let scattered = by_dtype!(input.dtype(), NAME, T => {
            let scattered = scattered::<T>(&self.planes, read.values()?, maxima.values()?, gradient.values()?);
            Tensor::from_vec(scattered, input.shape(), input.device())?
        });
        Ok(Some(scattered))
    }
}

/// The larger of two, a NaN if either is one, and the first of equals.
#[inline]
fn larger<T: Real>(first: T, second: T) -> T {
    if second > first || second.is_no_number() {
        second
    } else {
        first
    }
}

/// First the largest of each column of a row of windows, which takes whole rows at once; then the largest of those.
fn maxima<T: Real>(planes: &Planes, input: &[T]) -> Vec<T> {
    let mut maxima = Vec::with_capacity(planes.outputs());
    let mut largest = vec![T::zero(); planes.width];
    for plane in input.chunks_exact(planes.pixels()) {
        for row in 0..planes.rows {
            let seen = planes.down(row);
            let mut lines = plane[seen.start * planes.width..seen.end * planes.width].chunks_exact(planes.width);
            if let Some(first) = lines.next() {
                largest.copy_from_slice(first);
            }
            for line in lines {
                for (largest, &value) in largest.iter_mut().zip(line) {
                    *largest = larger(*largest, value);
                }
            }
            maxima.extend((0..planes.columns).map(|column| {
                let seen = &largest[planes.across(column)];
                seen[1..].iter().fold(seen[0], |first, &second| larger(first, second))
            }));
        }
    }
    maxima
}

/// The gradient of each window added where its maximum was found, window by window.
fn scattered<T: Real>(planes: &Planes, input: &[T], maxima: &[T], gradient: &[T]) -> Vec<T> {
    let mut scattered = vec![T::zero(); input.len()];
    let inputs = input.chunks_exact(planes.pixels());
    let outputs = maxima
        .chunks_exact(planes.windows())
        .zip(gradient.chunks_exact(planes.windows()));
    for ((to, input), (maxima, gradient)) in scattered.chunks_exact_mut(planes.pixels()).zip(inputs).zip(outputs) {
        if planes.are_pairs() {
            scatter_in_pairs(planes, [input, maxima, gradient], to);
            continue;
        }
        let rows = maxima.chunks_exact(planes.columns).zip(gradient.chunks_exact(planes.columns));
        for (row, (maxima, gradient)) in rows.enumerate() {
            for (column, (&maximum, &gradient)) in maxima.iter().zip(gradient).enumerate() {
                let across = planes.across(column);
                // When there is a NaN in a window its maximum is one, and nothing equals it.
                let found = planes.down(row).find_map(|line| {
                    let start = line * planes.width;
                    let seen = &input[start + across.start..start + across.end];
                    let at = seen.iter().position(|&value| value == maximum || value.is_no_number())?;
                    Some(start + across.start + at)
                });
                if let Some(at) = found {
                    to[at] += gradient;
                }
            }
        }
    }
    scattered
}

/// The same for one plane and windows of 2 × 2 that lie side by side: without branches, so that several are done at once.
fn scatter_in_pairs<T: Real>(planes: &Planes, [input, maxima, gradient]: [&[T]; 3], to: &mut [T]) {
    let lines = to
        .chunks_exact_mut(2 * planes.width)
        .zip(input.chunks_exact(2 * planes.width));
    let windows = maxima.chunks_exact(planes.columns).zip(gradient.chunks_exact(planes.columns));
    for ((to, input), (maxima, gradient)) in lines.zip(windows) {
        let ((above, below), (first, second)) = (to.split_at_mut(planes.width), input.split_at(planes.width));
        let to = above.as_chunks_mut().0.iter_mut().zip(below.as_chunks_mut().0);
        let seen = first.as_chunks().0.iter().zip(second.as_chunks().0);
        for ((to, seen), (&maximum, &gradient)) in to.zip(seen).zip(maxima.iter().zip(gradient)) {
            let ((&[a, b], &[c, d]), mut left) = (seen, gradient);
            // The first that is the maximum takes what is left, and leaves nothing.
            let mut taken = |value: T| {
                let found = value == maximum || value.is_no_number();
                let taken = if found { left } else { T::zero() };
                left = if found { T::zero() } else { left };
                taken
            };
            *to.0 = [taken(a), taken(b)];
            *to.1 = [taken(c), taken(d)];
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::checked::{assert_gradients, distinct, drawn, farthest};

    fn image(rows: &[&[f64]]) -> Tensor {
        let values = rows.concat();
        Tensor::from_vec(values, (1, 1, rows.len(), rows[0].len()), &Device::Cpu).unwrap()
    }

    /// The gradient of the input when the windows' gradients are 1, 2, 3, …: the same by loops and by operations of candle.
    fn gradient(pool: MaxPool2d, input: &Tensor) -> Vec<Vec<f64>> {
        let found = gradient_by(&|input| pool.forward(input), input);
        assert_eq!(gradient_by(&|input| pool.composed(input), input), found);
        found
    }

    fn gradient_by(pool: &dyn Fn(&Tensor) -> Result<Tensor>, input: &Tensor) -> Vec<Vec<f64>> {
        let input = Var::from_tensor(input).unwrap();
        let output = pool(&input).unwrap();
        let weights = Tensor::arange(1.0, output.elem_count() as f64 + 1.0, &Device::Cpu).unwrap();
        let loss = (&output * weights.reshape(output.shape()).unwrap())
            .unwrap()
            .sum_all()
            .unwrap();
        let gradients = loss.backward().unwrap();
        gradients
            .get(&input)
            .unwrap()
            .squeeze(0)
            .unwrap()
            .squeeze(0)
            .unwrap()
            .to_vec2()
            .unwrap()
    }

    #[test]
    fn the_gradient_is_right_for_every_geometry() {
        for (kernel, stride, padding, size) in [
            (1, 1, 0, (3, 4)),
            (2, 2, 0, (4, 6)),
            (2, 2, 1, (5, 5)),
            (2, 1, 0, (4, 3)),
            (3, 2, 0, (7, 8)),
            (3, 2, 1, (7, 8)),
            (3, 2, 1, (6, 5)),
            (3, 3, 0, (8, 7)),
            (2, 3, 0, (8, 7)),
            (4, 1, 2, (4, 5)),
            (5, 2, 2, (3, 1)),
        ] {
            let input = distinct((2, 3, size.0, size.1), 1);
            let pool = MaxPool2d::new(kernel, stride).padding(padding);
            assert_gradients(&[&input], || pool.forward(&input));
            assert_gradients(&[&input], || pool.composed(&input));
            assert_eq!(farthest(&pool.composed(&input).unwrap(), &pool.forward(&input).unwrap()), 0.0);
        }
    }

    #[test]
    fn maxima_are_those_of_each_window_looked_at_alone() {
        for kernel in 1..5 {
            for (stride, padding) in [(1, 0), (1, kernel / 2), (2, 0), (2, kernel / 2), (3, 0)] {
                let (height, width) = (6, 5);
                let input = drawn((1, 1, height, width), kernel as u64);
                let output = MaxPool2d::new(kernel, stride).padding(padding).forward(&input).unwrap();
                let input = input.flatten_all().unwrap().to_vec1::<f64>().unwrap();
                let (_, _, rows, columns) = output.dims4().unwrap();
                let mut expected = Vec::new();
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let mut largest = f64::NEG_INFINITY;
                    for (down, across) in (0..kernel).flat_map(|down| (0..kernel).map(move |across| (down, across))) {
                        let (y, x) = (row * stride + down, column * stride + across);
                        if (padding..padding + height).contains(&y) && (padding..padding + width).contains(&x) {
                            largest = largest.max(input[(y - padding) * width + x - padding]);
                        }
                    }
                    expected.push(largest);
                }
                assert_eq!(output.flatten_all().unwrap().to_vec1::<f64>().unwrap(), expected);
            }
        }
    }

    #[test]
    fn maxima_are_candles_where_candle_pools_too() {
        let input = drawn((2, 3, 9, 7), 5).to_dtype(DType::F32).unwrap();
        for (kernel, stride) in [(2, 2), (3, 2), (3, 1), (4, 3)] {
            let ours = MaxPool2d::new(kernel, stride).forward(&input).unwrap();
            let candles = input.max_pool2d_with_stride(kernel, stride).unwrap();
            assert_eq!(ours.dims(), candles.dims());
            let values = |pooled: &Tensor| pooled.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(values(&ours), values(&candles));
        }
    }

    #[test]
    fn the_first_maximum_of_a_window_has_its_whole_gradient() {
        let tied = image(&[&[1.0, 5.0, 2.0, 2.0], &[5.0, 5.0, 2.0, 2.0]]);
        let expected = [[0.0, 1.0, 2.0, 0.0], [0.0; 4]];
        assert_eq!(gradient(MaxPool2d::new(2, 2), &tied), expected);
        // The windows share the middle column, and the first of the equals differs between them.
        let shared = image(&[&[0.0, 7.0, 7.0], &[7.0, 7.0, 7.0]]);
        assert_eq!(gradient(MaxPool2d::new(2, 1), &shared), [[0.0, 3.0, 0.0], [0.0; 3]]);
        // The padding of -∞ never counts as a maximum, not even among its like.
        let lowest = image(&[[f64::NEG_INFINITY; 2].as_slice(); 2]);
        assert_eq!(gradient(MaxPool2d::new(3, 3).padding(1), &lowest), [[1.0, 0.0], [0.0, 0.0]]);
    }

    #[test]
    fn a_nan_goes_through_and_has_the_gradient_of_its_windows() {
        let input = image(&[&[1.0, f64::NAN, 3.0, 4.0], &[9.0, f64::NAN, 5.0, 6.0]]);
        let pool = MaxPool2d::new(2, 2);
        for output in [pool.forward(&input), pool.composed(&input)] {
            let output = output.unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
            assert!(output[0].is_nan() && output[1] == 6.0, "{output:?}");
        }
        let expected = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]];
        assert_eq!(gradient(MaxPool2d::new(2, 2), &input), expected);
    }

    #[test]
    fn an_input_that_is_not_contiguous_is_pooled_as_its_copy() {
        let pool = MaxPool2d::new(2, 1);
        let input = distinct((2, 3, 4, 5), 3);
        let turned = || input.transpose(2, 3)?.narrow(0, 1, 1);
        let output = pool.forward(&turned().unwrap()).unwrap();
        let copied = pool.forward(&turned().unwrap().force_contiguous().unwrap()).unwrap();
        let values = |pooled: &Tensor| pooled.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(values(&output), values(&copied));
        assert_gradients(&[&input], || pool.forward(&turned()?));
        // Neither is the gradient that comes back.
        assert_gradients(&[&input], || pool.forward(&input)?.transpose(1, 3)?.sqr());
    }

    #[test]
    fn what_cannot_be_pooled_is_refused_with_what_was_expected_and_found() {
        let refusal = |pool: MaxPool2d, dims: &[usize], dtype| {
            let input = Tensor::zeros(dims, dtype, &Device::Cpu).unwrap();
            pool.forward(&input).unwrap_err().to_string()
        };
        let small = refusal(MaxPool2d::new(5, 2).padding(1), &[1, 1, 8, 2], DType::F32);
        assert!(
            small.contains("expected images of at least 3 × 3") && small.contains("found 8 × 2"),
            "{small}"
        );
        let empty = refusal(MaxPool2d::new(1, 1), &[0, 1, 8, 8], DType::F32);
        assert!(
            empty.contains("expected at least one image") && empty.contains("[0, 1, 8, 8]"),
            "{empty}"
        );
        let flat = refusal(MaxPool2d::new(1, 1), &[8, 8], DType::F32);
        assert!(
            flat.contains("expected shape (images, channels, height, width), found [8, 8]"),
            "{flat}"
        );
        let padded = refusal(MaxPool2d::new(3, 1).padding(2), &[1, 1, 8, 8], DType::F32);
        assert!(
            padded.contains("at most half the kernel of 3") && padded.contains("found 2"),
            "{padded}"
        );
        let still = refusal(MaxPool2d::new(2, 0), &[1, 1, 8, 8], DType::F32);
        assert!(still.contains("a stride of at least 1, found 2 and 0"), "{still}");
        let whole = refusal(MaxPool2d::new(2, 2), &[1, 1, 8, 8], DType::U32);
        assert!(whole.contains("expected f32 or f64, found U32"), "{whole}");
    }
}
