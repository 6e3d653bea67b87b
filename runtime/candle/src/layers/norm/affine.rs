//! A scale and a shift for each channel. As operations of candle it would take twice the passes over the values, and sums across
//! strides.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, WithDType, bail};

use super::super::sum::sum;
use super::super::values::{Reading, Real, by_dtype, values};

const NAME: &str = "scale and shift";

/// `input` times `weight` plus `bias`, each of which has one value for each index of the dimension `channels_at`.
pub(super) fn scaled(input: &Tensor, channels_at: usize, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let channels = input.dim(channels_at)?;
    if weight.dims() != [channels] || bias.dims() != [channels] {
        bail!(
            "{NAME}: expected a scale and a shift for each of {channels} channels, found {:?} and {:?}",
            weight.shape(),
            bias.shape()
        );
    }
    let types: [DType; 3] = [input.dtype(), weight.dtype(), bias.dtype()];
    if types.iter().any(|&dtype| dtype != types[0]) {
        bail!("{NAME}: expected input, scale and shift of one type, found {types:?}");
    }
    if !input.device().is_cpu() {
        return composed(input, channels_at, weight, bias);
    }
    let inner = input.dims()[channels_at + 1..].iter().product();
    input
        .contiguous()?
        .apply_op3(&weight.contiguous()?, &bias.contiguous()?, Scaled { channels, inner })
}

/// The same by operations of candle.
fn composed(input: &Tensor, channels_at: usize, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; input.rank()];
    shape[channels_at] = input.dim(channels_at)?;
    let scaled = input.broadcast_mul(&weight.reshape(shape.clone())?)?;
    scaled.broadcast_add(&bias.reshape(shape)?)
}

/// Of a tensor that is (outer, channels, inner).
struct Scaled {
    channels: usize,
    inner: usize,
}

impl CustomOp3 for Scaled {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        input: &CpuStorage,
        input_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let output = by_dtype!(input.dtype(), NAME, T => {
            let (weight, bias) = (values(weight, weight_layout)?, values(bias, bias_layout)?);
            T::to_cpu_storage_owned(self.forward::<T>(values(input, input_layout)?, weight, bias))
        });
        Ok((output, input_layout.shape().clone()))
    }

    fn bwd(
        &self,
        input: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _output: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (input_read, weight_read, gradient) = (Reading::of(input), Reading::of(weight), Reading::of(&gradient));
        by_dtype!(input.dtype(), NAME, T => {
            let (inputs, weights, biases) =
                self.backward::<T>(input_read.values()?, weight_read.values()?, gradient.values()?);
            Ok((
                Some(Tensor::from_vec(inputs, input.shape(), input.device())?),
                Some(Tensor::from_vec(weights, weight.shape(), input.device())?),
                Some(Tensor::from_vec(biases, bias.shape(), input.device())?),
            ))
        })
    }
}

impl Scaled {
    fn forward<T: Real>(&self, input: &[T], weight: &[T], bias: &[T]) -> Vec<T> {
        let mut output = Vec::with_capacity(input.len());
        for outer in input.chunks_exact(self.channels * self.inner) {
            for ((values, &weight), &bias) in outer.chunks_exact(self.inner).zip(weight).zip(bias) {
                output.extend(values.iter().map(|&value| value * weight + bias));
            }
        }
        output
    }

    /// The gradients of the input, the weight and the bias.
    fn backward<T: Real>(&self, input: &[T], weight: &[T], gradient: &[T]) -> (Vec<T>, Vec<T>, Vec<T>) {
        let size = self.channels * self.inner;
        let mut inputs = Vec::with_capacity(input.len());
        let (mut weights, mut biases) = (vec![0.0; self.channels], vec![0.0; self.channels]);
        for (input, gradient) in input.chunks_exact(size).zip(gradient.chunks_exact(size)) {
            let values = input.chunks_exact(self.inner).zip(gradient.chunks_exact(self.inner));
            let sums = weights.iter_mut().zip(&mut biases);
            for (((input, gradient), &weight), (weights, biases)) in values.zip(weight).zip(sums) {
                inputs.extend(gradient.iter().map(|&gradient| gradient * weight));
                *weights += sum(input, gradient, |value, gradient| value * gradient);
                *biases += sum(gradient, gradient, |gradient, _| gradient);
            }
        }
        let nearest = |sums: Vec<f64>| sums.into_iter().map(T::nearest).collect();
        (inputs, nearest(weights), nearest(biases))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};

    #[test]
    fn the_gradients_are_right_wherever_the_channels_are() {
        for (channels_at, dims) in [(0, [3, 2, 11]), (1, [2, 3, 11]), (2, [2, 5, 3])] {
            let (input, weight, bias) = (drawn(&dims, 1), drawn(3, 2), drawn(3, 3));
            assert_gradients(&[&input, &weight, &bias], || {
                scaled(&input, channels_at, &weight, &bias)?.sin()
            });
            assert_gradients(&[&input, &weight, &bias], || {
                composed(&input, channels_at, &weight, &bias)?.sin()
            });
            let composed = composed(&input, channels_at, &weight, &bias).unwrap();
            let ours = scaled(&input, channels_at, &weight, &bias).unwrap();
            assert_eq!(farthest(&composed, &ours), 0.0);
        }
    }

    #[test]
    fn values_are_those_of_candles_operations() {
        let (input, weight, bias) = (drawn((2, 3, 4), 1), drawn(3, 2), drawn(3, 3));
        let ours = scaled(&input, 1, &weight, &bias).unwrap();
        let column = |vector: &Tensor| vector.reshape((3, 1)).unwrap();
        let candles = input
            .broadcast_mul(&column(&weight))
            .unwrap()
            .broadcast_add(&column(&bias))
            .unwrap();
        assert_eq!(ours.to_vec3::<f64>().unwrap(), candles.to_vec3::<f64>().unwrap());
    }

    #[test]
    fn a_scale_of_another_size_or_type_is_refused() {
        let (input, weight, bias) = (drawn((2, 3), 1), drawn(2, 2), drawn(3, 3));
        let refusal = scaled(&input, 1, &weight, &bias).unwrap_err().to_string();
        assert!(refusal.contains("each of 3 channels, found [2] and [3]"), "{refusal}");
        let single = bias.to_dtype(DType::F32).unwrap();
        let refusal = scaled(&input, 1, &bias, &single).unwrap_err().to_string();
        assert!(refusal.contains("of one type, found [F64, F64, F32]"), "{refusal}");
    }
}
