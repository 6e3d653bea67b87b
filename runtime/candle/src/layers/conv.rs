//! Convolutions as products of matrices, forward and backward: candle's backward pass has a loop for each window instead, and fails for
//! some strides.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor, WithDType, bail};
use candle_nn::Init;

use super::values::{Reading, Real, by_dtype, values};
use crate::Builder;

const NAME: &str = "Conv2d";

/// A convolution of (images, channels, height, width) in f32 or f64, with square kernels.
///
/// The windows of all images become the columns of one matrix (Chellapilla, Puri, Simard: "High performance convolutional neural networks
/// for document processing", 2006), which takes memory for kernel × kernel times the input, as long as a gradient is computed. Dilated and
/// grouped convolutions are candle's: `candle_nn::conv2d`.
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    windows: Windows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Windows {
    kernel: usize,
    stride: usize,
    padding: usize,
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
        let spread = candle_nn::init::DEFAULT_KAIMING_NORMAL;
        Ok(Self {
            weight: builder.parameter((to, from, kernel, kernel), "weight", spread)?,
            bias: None,
            windows: Windows {
                kernel,
                stride: 1,
                padding: 0,
            },
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
}

impl Module for Conv2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (to, from, _, _) = self.weight.dims4()?;
        let unfold = Unfold::of(self.windows, from, input.shape())?;
        let Unfold {
            images, rows, columns, ..
        } = unfold;
        let taps = unfold.taps();
        let windows = input.contiguous()?.apply_op1(unfold)?;
        let mut maps = self.weight.reshape((to, taps))?.matmul(&windows)?;
        if let Some(bias) = &self.bias {
            maps = maps.broadcast_add(&bias.unsqueeze(1)?)?;
        }
        maps.reshape((to, images, rows, columns))?.transpose(0, 1)?.contiguous()
    }
}

/// From images to the matrix of their windows: a column for each window, a row for each value of a window.
#[derive(Clone, Copy, Debug)]
struct Unfold {
    windows: Windows,
    images: usize,
    channels: usize,
    height: usize,
    width: usize,
    rows: usize,
    columns: usize,
}

impl Unfold {
    fn of(windows: Windows, channels: usize, input: &Shape) -> Result<Self> {
        let Windows { kernel, stride, padding } = windows;
        let &[images, found, height, width] = input.dims() else {
            bail!("{NAME}: expected shape (images, {channels}, height, width), found {input:?}");
        };
        if stride == 0 {
            bail!("{NAME}: expected a stride of at least 1, found 0");
        }
        let (high, wide) = (height + 2 * padding, width + 2 * padding);
        if found != channels || images == 0 || high < kernel || wide < kernel {
            bail!(
                "{NAME}: expected at least one image of {channels} channels and {least} × {least} pixels or more, for a kernel of {kernel} and \
                 a padding of {padding}; found {input:?}",
                least = kernel.saturating_sub(2 * padding)
            );
        }
        Ok(Self {
            windows,
            images,
            channels,
            height,
            width,
            rows: (high - kernel) / stride + 1,
            columns: (wide - kernel) / stride + 1,
        })
    }

    /// Values of a window.
    fn taps(&self) -> usize {
        self.channels * self.windows.kernel * self.windows.kernel
    }

    /// The outputs of one dimension whose window has its value number `tap` within `size` pixels: where they begin, where they end, and
    /// which pixel the first of them sees.
    fn inside(&self, tap: usize, size: usize, outputs: usize) -> (usize, usize, usize) {
        let Windows { stride, padding, .. } = self.windows;
        let first = padding.saturating_sub(tap).div_ceil(stride).min(outputs);
        // The last pixel is number size - 1.
        let end = (size + padding).saturating_sub(tap).div_ceil(stride).min(outputs).max(first);
        (first, end, (first * stride + tap).saturating_sub(padding))
    }

    /// Calls `each` with the place of a run of outputs in the matrix, its length, and the place of the pixel that its first output sees.
    fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        let Self {
            images,
            channels,
            height,
            width,
            rows,
            columns,
            windows: Windows { kernel, stride, .. },
        } = *self;
        let across = images * rows * columns;
        for channel in 0..channels {
            for down in 0..kernel {
                let (top, bottom, first_row) = self.inside(down, height, rows);
                for right in 0..kernel {
                    let (left, end, first) = self.inside(right, width, columns);
                    if left == end {
                        continue;
                    }
                    let line = ((channel * kernel + down) * kernel + right) * across;
                    for image in 0..images {
                        let plane = (image * channels + channel) * height * width;
                        for row in top..bottom {
                            let from = plane + (first_row + (row - top) * stride) * width + first;
                            each(line + (image * rows + row) * columns + left, end - left, from);
                        }
                    }
                }
            }
        }
    }

    fn unfolded<T: Real>(&self, input: &[T]) -> Vec<T> {
        let stride = self.windows.stride;
        let mut matrix = vec![T::zero(); self.taps() * self.images * self.rows * self.columns];
        self.runs(|to, count, from| {
            let to = &mut matrix[to..to + count];
            if stride == 1 {
                to.copy_from_slice(&input[from..from + count]);
            } else {
                to.iter_mut()
                    .zip(input[from..].iter().step_by(stride))
                    .for_each(|(to, from)| *to = *from);
            }
        });
        matrix
    }

    /// The other way: what each pixel is in all windows, added.
    fn folded<T: Real>(&self, matrix: &[T]) -> Vec<T> {
        let stride = self.windows.stride;
        let mut pixels = vec![T::zero(); self.images * self.channels * self.height * self.width];
        self.runs(|from, count, to| {
            let from = &matrix[from..from + count];
            if stride == 1 {
                pixels[to..to + count]
                    .iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to += *from);
            } else {
                pixels[to..]
                    .iter_mut()
                    .step_by(stride)
                    .zip(from)
                    .for_each(|(to, from)| *to += *from);
            }
        });
        pixels
    }
}

impl CustomOp1 for Unfold {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let matrix =
            by_dtype!(storage.dtype(), NAME, T => T::to_cpu_storage_owned(self.unfolded::<T>(values(storage, layout)?)));
        Ok((matrix, Shape::from((self.taps(), self.images * self.rows * self.columns))))
    }

    fn bwd(&self, input: &Tensor, _matrix: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        // The first layer's input is data: its gradient is not asked for.
        if !input.track_op() {
            return Ok(None);
        }
        let gradient = gradient.contiguous()?;
        let gradient = Reading::of(&gradient);
        let pixels = by_dtype!(input.dtype(), NAME, T => {
            Tensor::from_vec(self.folded::<T>(gradient.values()?), input.shape(), input.device())?
        });
        Ok(Some(pixels))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};
    use candle_nn::Conv2dConfig;

    use super::*;
    use crate::checked::{assert_gradients, drawn};

    fn layer(weight: &Var, bias: Option<&Var>, stride: usize, padding: usize) -> Conv2d {
        Conv2d {
            weight: weight.as_tensor().clone(),
            bias: bias.map(|bias| bias.as_tensor().clone()),
            windows: Windows {
                kernel: weight.dims()[2],
                stride,
                padding,
            },
        }
    }

    /// Odd sizes, strides that do not divide them, paddings beyond half the kernel.
    #[test]
    fn values_are_candles_own_and_gradients_are_right() {
        for (height, width, kernel, stride, padding) in [
            (5, 5, 3, 1, 0),
            (6, 5, 3, 2, 1),
            (4, 7, 1, 1, 0),
            (4, 7, 1, 3, 0),
            (5, 4, 2, 1, 3),
            (7, 3, 3, 3, 2),
            (3, 3, 3, 1, 1),
        ] {
            let what = format!("{height} × {width}, kernel {kernel}, stride {stride}, padding {padding}");
            let input = drawn((2, 3, height, width), 1);
            let (weight, bias) = (drawn((4, 3, kernel, kernel), 2), drawn(4, 3));
            let ours = layer(&weight, Some(&bias), stride, padding);
            let config = Conv2dConfig {
                stride,
                padding,
                ..Conv2dConfig::default()
            };
            let candles = candle_nn::Conv2d::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone()), config);
            let (found, expected) = (ours.forward(&input).unwrap(), candles.forward(&input).unwrap());
            assert_eq!(found.dims(), expected.dims(), "{what}");
            let distance = (found - expected)
                .unwrap()
                .abs()
                .unwrap()
                .max_all()
                .unwrap()
                .to_scalar::<f64>()
                .unwrap();
            assert!(distance < 1e-12, "{what}: {distance}");
            assert_gradients(&[&input, &weight, &bias], || ours.forward(&input));
        }
    }

    #[test]
    fn an_input_that_is_not_contiguous_is_taken_as_it_looks() {
        let input = drawn((2, 5, 4, 3), 1);
        let weight = drawn((2, 3, 3, 3), 2);
        let ours = layer(&weight, None, 1, 1);
        let turned = || input.permute((0, 3, 1, 2));
        let copied = turned().unwrap().contiguous().unwrap();
        let values = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(
            values(ours.forward(&turned().unwrap()).unwrap()),
            values(ours.forward(&copied).unwrap())
        );
        assert_gradients(&[&input, &weight], || ours.forward(&turned()?));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let builder = Builder::new(1);
        assert!(Conv2d::new(0, 4, 3, &builder.pp("none")).is_err());
        let conv = Conv2d::new(3, 4, 3, &builder.pp("conv")).unwrap();
        let refusal = |shape: &[usize]| {
            let input = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
            conv.forward(&input).unwrap_err().to_string()
        };
        assert!(refusal(&[1, 2, 5, 5]).contains("3 channels"));
        assert!(refusal(&[1, 3, 2, 5]).contains("3 × 3 pixels"));
        assert!(refusal(&[0, 3, 5, 5]).contains("at least one image"));
        assert!(refusal(&[3, 5, 5]).contains("(images, 3, height, width)"));
        let input = Tensor::zeros((1, 3, 5, 5), DType::F32, &Device::Cpu).unwrap();
        assert!(
            conv.clone()
                .stride(0)
                .forward(&input)
                .unwrap_err()
                .to_string()
                .contains("stride")
        );
        assert_eq!(conv.padding(2).stride(2).forward(&input).unwrap().dims(), [1, 4, 4, 4]);
        let names: Vec<_> = builder.into_variables().into_iter().map(|variable| variable.name).collect();
        assert_eq!(names, ["conv.weight", "conv.bias"]);
    }
}
