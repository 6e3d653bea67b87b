//! Linear layers as one operation: candle's turns its weights, and adds their gradient to zeros twice, once turned and once turned back.

use std::iter::zip;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, Layout, Module, Result, Shape, Tensor, WithDType, bail};
use candle_nn::Init;

use super::product::{Matrix, product, transposed};
use super::values::{Reading, Real, by_dtype, values};
use crate::Builder;

const NAME: &str = "Linear";

/// From `from` to `to` numbers, of (…, from) in f32 or f64: products with weights, and a bias.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Its tensors are `weight`, of shape (to, from), and `bias`, of shape (to): as in candle, which also spreads their first values so.
    ///
    /// # Errors
    /// When `from` is 0, or a tensor's name is taken.
    pub fn new(from: usize, to: usize, builder: &Builder) -> Result<Self> {
        if from == 0 {
            bail!("{NAME}: expected at least one number to come from, found none");
        }
        let bound = 1.0 / (from as f64).sqrt();
        let spread = Init::Uniform { lo: -bound, up: bound };
        Ok(Self {
            weight: builder.parameter((to, from), "weight", candle_nn::init::DEFAULT_KAIMING_NORMAL)?,
            bias: builder.parameter(to, "bias", spread)?,
        })
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (to, from) = self.weight.dims2()?;
        let Some((&found, places)) = input.dims().split_last() else {
            bail!("{NAME}: expected shape (…, {from}), found a scalar");
        };
        if found != from {
            bail!("{NAME}: expected shape (…, {from}), found {:?}", input.shape());
        }
        if !input.device().is_cpu() {
            return self.composed(input);
        }
        let transform = Transform {
            rows: places.iter().product(),
            from,
            to,
        };
        input
            .contiguous()?
            .apply_op3(&self.weight.contiguous()?, &self.bias.contiguous()?, transform)
    }
}

impl Linear {
    /// By operations of candle.
    fn composed(&self, input: &Tensor) -> Result<Tensor> {
        let (to, from) = self.weight.dims2()?;
        let rows = input.reshape(((), from))?;
        let output = rows.matmul(&self.weight.t()?)?.broadcast_add(&self.bias)?;
        let mut shape = input.dims().to_vec();
        shape.pop();
        shape.push(to);
        output.reshape(shape)
    }
}

/// Rows of `from` numbers become rows of `to`.
#[derive(Clone, Copy, Debug)]
struct Transform {
    rows: usize,
    from: usize,
    to: usize,
}

impl Transform {
    fn forward<T: Real>(self, input: &[T], weight: &[T], bias: &[T]) -> Vec<T> {
        let Self { rows, from, to } = self;
        // This way round the kernels read weights, the larger ones, as they lie.
        let mut turned = vec![T::zero(); to * rows];
        let input = Matrix::new(input, rows, from).transposed();
        product(
            &mut turned,
            Matrix::new(weight, to, from),
            input,
            false,
            rayon::current_num_threads(),
        );
        let mut output = transposed(&turned, to, rows);
        for row in output.chunks_exact_mut(to.max(1)) {
            zip(row, bias).for_each(|(value, bias)| *value += *bias);
        }
        output
    }

    /// The gradients of the input, if asked for, the weights and the bias.
    fn backward<T: Real>(
        self,
        input: Option<&[T]>,
        weight: &[T],
        seen: &[T],
        gradient: &[T],
    ) -> (Option<Vec<T>>, Vec<T>, Vec<T>) {
        let Self { rows, from, to } = self;
        let threads = rayon::current_num_threads();
        let of_output = Matrix::new(gradient, rows, to);
        let input = input.map(|input| {
            let mut found = vec![T::zero(); input.len()];
            product(&mut found, of_output, Matrix::new(weight, to, from), false, threads);
            found
        });
        let mut weights = vec![T::zero(); to * from];
        product(
            &mut weights,
            of_output.transposed(),
            Matrix::new(seen, rows, from),
            false,
            threads,
        );
        let mut bias = vec![T::zero(); to];
        for row in gradient.chunks_exact(to.max(1)) {
            zip(&mut bias, row).for_each(|(bias, gradient)| *bias += *gradient);
        }
        (input, weights, bias)
    }
}

impl CustomOp3 for Transform {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        input: &CpuStorage,
        places: &Layout,
        weight: &CpuStorage,
        weights: &Layout,
        bias: &CpuStorage,
        biases: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let output = by_dtype!(input.dtype(), NAME, T => {
            let (input, weight) = (values::<T>(input, places)?, values(weight, weights)?);
            T::to_cpu_storage_owned(self.forward(input, weight, values(bias, biases)?))
        });
        let mut shape = places.dims().to_vec();
        shape.pop();
        shape.push(self.to);
        Ok((output, Shape::from(shape)))
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
        let [seen, weights, gradient] = [input, weight, &gradient].map(Reading::of);
        by_dtype!(input.dtype(), NAME, T => {
            let seen = seen.values::<T>()?;
            // The first layer's input is data: its gradient is not asked for.
            let asked = input.track_op().then_some(seen);
            let (of_input, of_weight, of_bias) = self.backward(asked, weights.values()?, seen, gradient.values()?);
            let tensor = |values: Vec<T>, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
            let of_input = of_input.map(|values| tensor(values, input)).transpose()?;
            Ok((of_input, Some(tensor(of_weight, weight)?), Some(tensor(of_bias, bias)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};

    fn layer(weight: &Var, bias: &Var) -> Linear {
        Linear {
            weight: weight.as_tensor().clone(),
            bias: bias.as_tensor().clone(),
        }
    }

    fn flat(tensor: &Tensor) -> Vec<f64> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn values_are_candles_and_gradients_are_right() {
        for (shape, to) in [
            (vec![5, 7], 3),
            (vec![2, 3, 4], 6),
            (vec![4], 2),
            (vec![1, 9], 1),
            (vec![17, 1], 20),
        ] {
            let from = shape[shape.len() - 1];
            let (input, weight, bias) = (drawn(shape.clone(), 1), drawn((to, from), 2), drawn(to, 3));
            let ours = layer(&weight, &bias);
            let found = ours.forward(&input).unwrap();
            assert_eq!(found.dims()[..], [&shape[..shape.len() - 1], &[to]].concat());
            let rows = input.reshape(((), from)).unwrap();
            let candles = candle_nn::Linear::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone()));
            for (found, expected) in zip(flat(&found), flat(&candles.forward(&rows).unwrap())) {
                assert!((found - expected).abs() < 1e-12, "{shape:?}");
            }
            assert_gradients(&[&input, &weight, &bias], || ours.forward(&input));
            assert_gradients(&[&input, &weight, &bias], || ours.composed(&input));
            let composed = ours.composed(&input).unwrap();
            assert_eq!(composed.dims(), ours.forward(&input).unwrap().dims());
            assert!(farthest(&composed, &ours.forward(&input).unwrap()) < 1e-12);
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let [input, weight, bias] = [drawn((40, 300), 1), drawn((200, 300), 2), drawn(200, 3)]
            .map(|variable| Var::from_tensor(&variable.to_dtype(DType::F32).unwrap()).unwrap());
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let output = layer(&weight, &bias).forward(&input).unwrap();
                let gradients = output.sqr().unwrap().sum_all().unwrap().backward().unwrap();
                let all = [&input, &weight, &bias].map(|variable| gradients.get(variable).unwrap().clone());
                let bits = |tensor: &Tensor| {
                    let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                    values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                [bits(&output), bits(&all[0]), bits(&all[1]), bits(&all[2])]
            })
        };
        let alone = with(1);
        assert!([2, 3].into_iter().all(|threads| with(threads) == alone));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let builder = Builder::new(1);
        assert!(Linear::new(0, 4, &builder.pp("none")).is_err());
        let linear = Linear::new(3, 4, &builder.pp("linear")).unwrap();
        let refusal = |shape: &[usize]| {
            let input = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
            linear.forward(&input).unwrap_err().to_string()
        };
        assert!(refusal(&[3, 5]).contains("(…, 3), found [3, 5]"));
        assert!(refusal(&[]).contains("a scalar"));
        let names: Vec<_> = builder.into_variables().into_iter().map(|variable| variable.name).collect();
        assert_eq!(names, ["linear.weight", "linear.bias"]);
    }
}
