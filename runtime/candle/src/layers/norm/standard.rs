//! Values less their mean, over their deviation: the arithmetic of every normalisation, forward and backward. It knows no layer.

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, WithDType, bail};

use super::super::sum::sum;
use super::super::values::{Reading, Real, by_dtype, values};

const NAME: &str = "normalisation";

/// A contiguous tensor as groups of values to be normalised together: it is (outer, groups, inner), and a group is all of one index
/// in the middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    pub(super) groups: usize,
    pub(super) inner: usize,
}

/// The mean of a group, and its biased variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

/// Each group of the input with mean 0 and variance 1, but for `eps` which is added to the variance before; and the moments that the
/// groups had. The gradient flows through the moments too.
pub(super) fn standardised(input: &Tensor, groups: Groups, eps: f64) -> Result<(Tensor, Arc<[Moments]>)> {
    if groups.groups == 0 || groups.inner == 0 || input.elem_count() == 0 {
        bail!("{NAME}: expected at least one value, found {:?}", input.shape());
    }
    let input = input.contiguous()?;
    let moments: Arc<[Moments]> = {
        let read = Reading::of(&input);
        by_dtype!(input.dtype(), NAME, T => moments::<T>(groups, read.values()?).into())
    };
    let moved = Standard {
        groups,
        moments: Arc::clone(&moments),
        eps,
    };
    Ok((input.apply_op1(moved)?, moments))
}

/// As [`standardised`], on any device, without the moments.
pub(super) fn normalised(input: &Tensor, groups: Groups, eps: f64) -> Result<Tensor> {
    if input.device().is_cpu() {
        Ok(standardised(input, groups, eps)?.0)
    } else {
        Ok(composed(input, groups, eps)?.0)
    }
}

/// As [`standardised`], by operations of candle and in the input's type; and the means and variances that the groups had, as tensors of shape (groups) through
/// which no gradient flows.
pub(super) fn composed(input: &Tensor, groups: Groups, eps: f64) -> Result<(Tensor, [Tensor; 2])> {
    let Groups { groups, inner } = groups;
    let values = input.reshape(((), groups, inner))?;
    let mean = values.mean_keepdim((0, 2))?;
    let distances = values.broadcast_sub(&mean)?;
    let variance = distances.sqr()?.mean_keepdim((0, 2))?;
    let standard = distances.broadcast_mul(&(&variance + eps)?.sqrt()?.recip()?)?;
    let moments = [mean.detach().reshape(groups)?, variance.detach().reshape(groups)?];
    Ok((standard.reshape(input.shape())?, moments))
}

struct Standard {
    groups: Groups,
    moments: Arc<[Moments]>,
    eps: f64,
}

impl CustomOp1 for Standard {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let output =
            by_dtype!(storage.dtype(), NAME, T => T::to_cpu_storage_owned(self.forward::<T>(values(storage, layout)?)));
        Ok((output, layout.shape().clone()))
    }

    fn bwd(&self, input: &Tensor, _output: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (read, gradient) = (Reading::of(input), Reading::of(&gradient));
        let gradient = by_dtype!(input.dtype(), NAME, T => {
            Tensor::from_vec(self.backward::<T>(read.values()?, gradient.values()?), input.shape(), input.device())?
        });
        Ok(Some(gradient))
    }
}

impl Standard {
    /// By what values less their mean are multiplied.
    fn scale(&self, moments: Moments) -> f64 {
        (moments.variance + self.eps).sqrt().recip()
    }

    fn forward<T: Real>(&self, input: &[T]) -> Vec<T> {
        let mut output = Vec::with_capacity(input.len());
        for outer in input.chunks_exact(self.groups.groups * self.groups.inner) {
            for (values, &moments) in outer.chunks_exact(self.groups.inner).zip(&*self.moments) {
                let scale = self.scale(moments);
                output.extend(values.iter().map(|value| T::nearest((value.wide() - moments.mean) * scale)));
            }
        }
        output
    }

    /// For output y = (x − mean) · scale and its gradient g: (g − E\[g\] − y · E\[g · y\]) · scale.
    fn backward<T: Real>(&self, input: &[T], gradient: &[T]) -> Vec<T> {
        let size = self.groups.groups * self.groups.inner;
        let count = (input.len() / self.groups.groups) as f64;
        // E[g], and E[g · (x − mean)] · scale², so that y itself is not needed.
        let mut means = vec![(0.0, 0.0); self.groups.groups];
        for (input, gradient) in input.chunks_exact(size).zip(gradient.chunks_exact(size)) {
            let values = input
                .chunks_exact(self.groups.inner)
                .zip(gradient.chunks_exact(self.groups.inner));
            for ((sums, (input, gradient)), moments) in means.iter_mut().zip(values).zip(&*self.moments) {
                sums.0 += sum(gradient, gradient, |gradient, _| gradient);
                sums.1 += sum(input, gradient, |value, gradient| gradient * (value - moments.mean));
            }
        }
        for (means, &moments) in means.iter_mut().zip(&*self.moments) {
            *means = (means.0 / count, means.1 / count * self.scale(moments).powi(2));
        }
        let mut output = Vec::with_capacity(input.len());
        for (input, gradient) in input.chunks_exact(size).zip(gradient.chunks_exact(size)) {
            let values = input
                .chunks_exact(self.groups.inner)
                .zip(gradient.chunks_exact(self.groups.inner));
            for ((&(mean, slope), (input, gradient)), &moments) in means.iter().zip(values).zip(&*self.moments) {
                let scale = self.scale(moments);
                output.extend(input.iter().zip(gradient).map(|(value, gradient)| {
                    T::nearest((gradient.wide() - mean - (value.wide() - moments.mean) * slope) * scale)
                }));
            }
        }
        output
    }
}

/// The variance is that of the differences to the mean: the mean square less the squared mean has no digits left where values lie
/// far from 0.
fn moments<T: Real>(groups: Groups, input: &[T]) -> Vec<Moments> {
    let count = (input.len() / groups.groups) as f64;
    let mut means = vec![0.0; groups.groups];
    for outer in input.chunks_exact(groups.groups * groups.inner) {
        for (mean, values) in means.iter_mut().zip(outer.chunks_exact(groups.inner)) {
            *mean += sum(values, values, |value, _| value);
        }
    }
    let mut moments: Vec<Moments> = means
        .into_iter()
        .map(|sum| Moments {
            mean: sum / count,
            variance: 0.0,
        })
        .collect();
    for outer in input.chunks_exact(groups.groups * groups.inner) {
        for (moments, values) in moments.iter_mut().zip(outer.chunks_exact(groups.inner)) {
            let mean = moments.mean;
            moments.variance += sum(values, values, |value, _| (value - mean) * (value - mean));
        }
    }
    for moments in &mut moments {
        moments.variance /= count;
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};

    #[test]
    fn the_gradient_is_right_for_groups_anywhere() {
        for (groups, inner, dims) in [(3, 10, [4, 3, 10]), (3, 1, [4, 3, 1]), (1, 17, [1, 1, 17]), (8, 5, [1, 8, 5])] {
            let input = drawn(&dims, 2);
            let groups = Groups { groups, inner };
            assert_gradients(&[&input], || Ok(standardised(&input, groups, 1e-3)?.0));
            assert_gradients(&[&input], || Ok(composed(&input, groups, 1e-3)?.0));
            let (ours, moments) = standardised(&input, groups, 1e-3).unwrap();
            let (other, [means, variances]) = composed(&input, groups, 1e-3).unwrap();
            assert!(farthest(&ours, &other) < 1e-13);
            let of = |tensor: Tensor| tensor.to_vec1::<f64>().unwrap();
            for (moments, (mean, variance)) in moments.iter().zip(of(means).into_iter().zip(of(variances))) {
                assert!((moments.mean - mean).abs() < 1e-15 && (moments.variance - variance).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn values_far_from_zero_keep_their_digits() {
        let near = drawn((1, 1, 100), 3).affine(1.0, 0.0).unwrap();
        let far = near.affine(1.0, 1e6).unwrap();
        let groups = Groups { groups: 1, inner: 100 };
        let (near, _) = standardised(&near, groups, 1e-5).unwrap();
        let (far, moments) = standardised(&far, groups, 1e-5).unwrap();
        assert!((moments[0].mean - 1e6).abs() < 1.0, "{moments:?}");
        let distance = (near - far)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap();
        assert!(distance < 1e-8, "{distance}");
    }

    #[test]
    fn values_that_are_all_equal_become_zero() {
        let input = Tensor::full(3.5_f32, (2, 1, 9), &candle_core::Device::Cpu).unwrap();
        let (output, moments) = standardised(&input, Groups { groups: 1, inner: 9 }, 1e-5).unwrap();
        assert_eq!(output.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [0.0; 18]);
        assert_eq!(
            moments[0],
            Moments {
                mean: 3.5,
                variance: 0.0
            }
        );
    }
}
