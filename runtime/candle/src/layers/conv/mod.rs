//! Convolutions as products of matrices, forward and backward: candle's backward pass has a loop for each window instead, and fails for
//! some strides.

mod compute;
mod operation;
mod windows;

use candle_core::{Module, Result, Tensor, bail};
use candle_nn::Init;

use self::operation::Convolve;
use self::windows::{Plan, Windows};
use super::taps::taps;
use crate::Builder;

const NAME: &str = "Conv2d";

/// A convolution of (images, channels, height, width) in f32 or f64, with square kernels.
///
/// Windows become the columns of a matrix (Chellapilla, Puri, Simard: "High performance convolutional neural networks for document
/// processing", 2006): so many at a time as stay in a core's cache, and once more when the gradient is computed. Dilated and grouped
/// convolutions are candle's: `candle_nn::conv2d`.
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    windows: Windows,
    rectified: bool,
}

impl Conv2d {
    /// From `from` to `to` channels with kernels of `kernel` × `kernel`, one pixel apart, without padding. Its tensors are `weight`, of shape
    /// (to, from, kernel, kernel), and `bias`, of shape (to); their first values are spread as in candle.
    ///
    /// # Errors
    /// When `from` or `kernel` is 0, or a tensor's name is taken.
    pub fn new(from: usize, to: usize, kernel: usize, builder: &Builder) -> Result<Self> {
        let plain = Self::without_bias(from, to, kernel, builder)?;
        let bound = 1.0 / ((from * kernel * kernel) as f64).sqrt();
        let spread = Init::Uniform { lo: -bound, up: bound };
        Ok(Self {
            bias: Some(builder.parameter(to, "bias", spread)?),
            ..plain
        })
    }

    /// The same without a bias: before a normalisation it would change nothing.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn without_bias(from: usize, to: usize, kernel: usize, builder: &Builder) -> Result<Self> {
        if from == 0 || kernel == 0 {
            bail!(
                "{NAME}: expected at least one channel and a kernel of at least 1, found {from} channels and a kernel of {kernel}"
            );
        }
        if to == 0 {
            bail!("{NAME}: expected at least one channel to convolve to, found none");
        }
        let spread = candle_nn::init::DEFAULT_KAIMING_NORMAL;
        Ok(Self {
            weight: builder.parameter((to, from, kernel, kernel), "weight", spread)?,
            bias: None,
            windows: Windows {
                kernel,
                stride: 1,
                padding: 0,
            },
            rectified: false,
        })
    }

    /// Windows `stride` pixels apart, at least 1.
    #[must_use]
    pub fn stride(mut self, stride: usize) -> Self {
        self.windows.stride = stride;
        self
    }

    /// With a border of so many pixels of zeros around each image.
    #[must_use]
    pub fn padding(mut self, padding: usize) -> Self {
        self.windows.padding = padding;
        self
    }

    /// Followed by a rectifier: what is negative becomes 0, in the same operation. A NaN stays one; the gradient at 0 is 0.
    #[must_use]
    pub fn relu(mut self) -> Self {
        self.rectified = true;
        self
    }
}

impl Module for Conv2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (to, from, _, _) = self.weight.dims4()?;
        let plan = Plan::of(self.windows, from, input.shape())?;
        if !input.device().is_cpu() {
            return self.composed(input);
        }
        let convolve = Convolve {
            plan,
            to,
            rectified: self.rectified,
        };
        let (input, weight) = (input.contiguous()?, self.weight.contiguous()?);
        match &self.bias {
            Some(bias) => input.apply_op3(&weight, &bias.contiguous()?, convolve),
            None => input.apply_op2(&weight, convolve),
        }
    }
}

impl Conv2d {
    /// By operations of candle: all windows become the columns of one matrix.
    fn composed(&self, input: &Tensor) -> Result<Tensor> {
        let (to, from, kernel, _) = self.weight.dims4()?;
        let Windows { stride, padding, .. } = self.windows;
        // Channels come first, so that there is one product for all images.
        let taps = taps(&input.transpose(0, 1)?, [kernel, stride, padding])?;
        let (_, images, rows, columns) = taps[0].dims4()?;
        let matrix = Tensor::stack(&taps, 1)?.reshape((from * kernel * kernel, images * rows * columns))?;
        let maps = self.weight.reshape((to, from * kernel * kernel))?.matmul(&matrix)?;
        let maps = match &self.bias {
            Some(bias) => maps.broadcast_add(&bias.unsqueeze(1)?)?,
            None => maps,
        };
        let maps = if self.rectified {
            // candle's own rectifier hides a NaN.
            maps.le(0.0)?.where_cond(&maps.zeros_like()?, &maps)?
        } else {
            maps
        };
        maps.reshape((to, images, rows, columns))?.transpose(0, 1)?.contiguous()
    }
}

#[cfg(test)]
mod tests;
