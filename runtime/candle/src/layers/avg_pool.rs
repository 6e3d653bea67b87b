//! Average-pooling with a right gradient: candle's is wrong for images that are no multiple of the kernel, and refuses windows that
//! overlap.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor, WithDType};

use super::taps::taps;
use super::values::{Reading, Real, by_dtype, values};
use super::windows::{Planes, Windows};

const NAME: &str = "AvgPool2d";

/// The mean of each window, of (images, channels, height, width) in f32 or f64. Windows lie within the image.
///
/// Calling it fails for another type or rank, for an empty input, for images smaller than the kernel, and for a kernel or stride of
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvgPool2d {
    windows: Windows,
}

impl AvgPool2d {
    /// Windows of `kernel` × `kernel` pixels, `stride` pixels apart.
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
}

impl Module for AvgPool2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let planes = self.windows.over(NAME, input.shape())?;
        let share = 1.0 / (self.windows.kernel * self.windows.kernel) as f64;
        if !input.device().is_cpu() {
            return self.composed(input, share);
        }
        input.contiguous()?.apply_op1(Means { planes, share })
    }
}

impl AvgPool2d {
    /// By operations of candle.
    fn composed(&self, input: &Tensor, share: f64) -> Result<Tensor> {
        let taps = taps(input, self.windows.sizes())?;
        let sum = taps[1..].iter().try_fold(taps[0].clone(), |sum, tap| sum + tap)?;
        sum * share
    }
}

struct Means {
    planes: Planes,
    /// What part of a window one of its values is.
    share: f64,
}

impl CustomOp1 for Means {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let means =
            by_dtype!(storage.dtype(), NAME, T => T::to_cpu_storage_owned(self.means::<T>(values(storage, layout)?)));
        Ok((means, self.planes.output()))
    }

    fn bwd(&self, input: &Tensor, _means: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let gradient = Reading::of(&gradient);
        let spread = by_dtype!(input.dtype(), NAME, T => {
            Tensor::from_vec(self.spread::<T>(input.elem_count(), gradient.values()?), input.shape(), input.device())?
        });
        Ok(Some(spread))
    }
}

impl Means {
    /// First the sums of each column of a row of windows, which takes whole rows at once; then the sums of those.
    fn means<T: Real>(&self, input: &[T]) -> Vec<T> {
        let planes = &self.planes;
        let share = T::nearest(self.share);
        let mut means = Vec::with_capacity(planes.outputs());
        let mut sums = vec![T::zero(); planes.width];
        for plane in input.chunks_exact(planes.pixels()) {
            for row in 0..planes.rows {
                let seen = planes.down(row);
                sums.fill(T::zero());
                for line in plane[seen.start * planes.width..seen.end * planes.width].chunks_exact(planes.width) {
                    for (sum, &value) in sums.iter_mut().zip(line) {
                        *sum += value;
                    }
                }
                means.extend((0..planes.columns).map(|column| {
                    let seen = &sums[planes.across(column)];
                    seen.iter().fold(T::zero(), |sum, &value| sum + value) * share
                }));
            }
        }
        means
    }

    /// The gradient of each window, spread evenly over its `count` values.
    fn spread<T: Real>(&self, count: usize, gradient: &[T]) -> Vec<T> {
        let planes = &self.planes;
        let share = T::nearest(self.share);
        let mut spread = vec![T::zero(); count];
        let gradients = gradient.chunks_exact(planes.windows());
        for (plane, gradients) in spread.chunks_exact_mut(planes.pixels()).zip(gradients) {
            for (row, gradients) in gradients.chunks_exact(planes.columns).enumerate() {
                for line in planes.down(row) {
                    let line = &mut plane[line * planes.width..][..planes.width];
                    for (column, &gradient) in gradients.iter().enumerate() {
                        for value in &mut line[planes.across(column)] {
                            *value += gradient * share;
                        }
                    }
                }
            }
        }
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};

    #[test]
    fn the_gradient_is_right_for_every_geometry() {
        for (kernel, stride, size) in [
            (1, 1, (3, 4)),
            (2, 2, (5, 6)),
            (2, 1, (4, 3)),
            (3, 2, (8, 7)),
            (2, 3, (8, 7)),
            (4, 4, (4, 4)),
        ] {
            let input = drawn((2, 3, size.0, size.1), 1);
            let pool = AvgPool2d::new(kernel, stride);
            assert_gradients(&[&input], || pool.forward(&input));
            assert_gradients(&[&input], || pool.composed(&input, 1.0 / (kernel * kernel) as f64));
            assert_gradients(&[&input], || pool.forward(&input.transpose(2, 3)?)?.transpose(1, 3)?.sqr());
        }
    }

    #[test]
    fn means_are_candles() {
        let input = drawn((2, 3, 9, 7), 5);
        for (kernel, stride) in [(2, 2), (3, 2), (3, 1), (4, 3)] {
            let ours = AvgPool2d::new(kernel, stride).forward(&input).unwrap();
            let candles = input.avg_pool2d_with_stride(kernel, stride).unwrap();
            assert_eq!(ours.dims(), candles.dims());
            let distance = (ours - candles)
                .unwrap()
                .abs()
                .unwrap()
                .max_all()
                .unwrap()
                .to_scalar::<f64>()
                .unwrap();
            assert!(distance < 1e-15, "{distance}");
            let pool = AvgPool2d::new(kernel, stride);
            let composed = pool.composed(&input, 1.0 / (kernel * kernel) as f64).unwrap();
            assert!(farthest(&composed, &pool.forward(&input).unwrap()) < 1e-15);
        }
    }

    #[test]
    fn images_smaller_than_the_kernel_are_refused() {
        let refusal = AvgPool2d::new(3, 1).forward(&drawn((1, 1, 4, 2), 1)).unwrap_err().to_string();
        assert!(
            refusal.contains("AvgPool2d: expected images of at least 3 × 3") && refusal.contains("found 4 × 2"),
            "{refusal}"
        );
    }
}
