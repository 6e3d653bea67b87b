//! A convolution as one operation of candle's graph: what is between its input and its maps is never a tensor.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, WithDType};

use super::super::values::{Reading, Real, by_dtype, values};
use super::NAME;
use super::compute::Convolution;
use super::windows::Plan;

/// With or without a bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolve {
    pub(super) plan: Plan,
    /// Channels of the maps.
    pub(super) to: usize,
    pub(super) rectified: bool,
}

type Stored<'a> = (&'a CpuStorage, &'a Layout);

/// Gradients of input, weight and bias.
type Three = (Option<Tensor>, Option<Tensor>, Option<Tensor>);

impl Convolve {
    fn of<'a, T: Real>(&self, input: &'a [T], weight: &'a [T]) -> Convolution<'a, T> {
        Convolution {
            plan: self.plan,
            input,
            weight,
            to: self.to,
            rectified: self.rectified,
        }
    }

    fn forward(&self, input: Stored<'_>, weight: Stored<'_>, bias: Option<Stored<'_>>) -> Result<(CpuStorage, Shape)> {
        let maps = by_dtype!(input.0.dtype(), NAME, T => {
            let convolution = self.of::<T>(values(input.0, input.1)?, values(weight.0, weight.1)?);
            let bias = bias.map(|(storage, layout)| values(storage, layout)).transpose()?;
            T::to_cpu_storage_owned(convolution.forward(bias))
        });
        Ok((
            maps,
            Shape::from((self.plan.images, self.to, self.plan.rows, self.plan.columns)),
        ))
    }

    fn backward(
        &self,
        input: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        output: &Tensor,
        gradient: &Tensor,
    ) -> Result<Three> {
        let gradient = gradient.contiguous()?;
        let [pixels, weights, output, gradient] = [input, weight, output, &gradient].map(Reading::of);
        by_dtype!(input.dtype(), NAME, T => {
            let convolution = self.of::<T>(pixels.values()?, weights.values()?);
            // The first layer's input is data: its gradient is not asked for.
            let found = convolution.backward(output.values()?, gradient.values()?, input.track_op());
            let tensor = |values: Vec<T>, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
            Ok((
                found.input.map(|values| tensor(values, input)).transpose()?,
                Some(tensor(found.weight, weight)?),
                bias.map(|bias| tensor(found.bias, bias)).transpose()?,
            ))
        })
    }
}

impl CustomOp2 for Convolve {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        input: &CpuStorage,
        places: &Layout,
        weight: &CpuStorage,
        weights: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward((input, places), (weight, weights), None)
    }

    fn bwd(
        &self,
        input: &Tensor,
        weight: &Tensor,
        output: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (input, weight, _) = self.backward(input, weight, None, output, gradient)?;
        Ok((input, weight))
    }
}

impl CustomOp3 for Convolve {
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
        self.forward((input, places), (weight, weights), Some((bias, biases)))
    }

    fn bwd(&self, input: &Tensor, weight: &Tensor, bias: &Tensor, output: &Tensor, gradient: &Tensor) -> Result<Three> {
        self.backward(input, weight, Some(bias), output, gradient)
    }
}
