//! Residual networks for small images (He, Zhang, Ren, Sun: "Deep residual learning for image recognition", 2016, section 4.2).

use candle_core::{Module, Result, Tensor, bail};
use candle_nn::{Linear, ModuleT, linear};
use sardana_candle::{BatchNorm2d, Builder, Conv2d};

const EPSILON: f64 = 1e-5;
const MOMENTUM: f64 = 0.1;

/// How deep and wide a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Layers with weights: 20, 32, 44, 56 or 110, or any other 6 n + 2.
    pub depth: usize,
    /// Channels of the first third; the second and the last have twice and four times as many. 16 in the paper.
    pub width: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Classes.
    pub classes: usize,
}

/// A residual network: a convolution, three times n blocks of two convolutions with a way past them, the mean over each map, and scores.
/// Ways past a change of size take every second pixel and add channels of zeros, as in the paper (its option A).
#[derive(Clone, Debug)]
pub struct ResNet {
    stem: Conv2d,
    norm: BatchNorm2d,
    blocks: Vec<Block>,
    scores: Linear,
}

#[derive(Clone, Debug)]
struct Block {
    first: Conv2d,
    first_norm: BatchNorm2d,
    second: Conv2d,
    second_norm: BatchNorm2d,
    stride: usize,
}

fn convolution(from: usize, to: usize, stride: usize, builder: &Builder) -> Result<Conv2d> {
    Ok(Conv2d::without_bias(from, to, 3, builder)?.stride(stride).padding(1))
}

impl ResNet {
    /// The network.
    ///
    /// # Errors
    /// When there is none of that depth, or candle cannot hold a tensor.
    pub fn new(builder: &Builder, shape: Shape) -> Result<Self> {
        let Shape {
            depth,
            width,
            channels,
            classes,
        } = shape;
        if depth < 8 || (depth - 2) % 6 != 0 || width == 0 {
            bail!(
                "expected a residual network of 6 n + 2 layers, such as 20, and of some width; found {depth} layers of width {width}"
            );
        }
        let (mut blocks, mut from) = (Vec::new(), width);
        for third in 0..3 {
            let to = width << third;
            for number in 0..(depth - 2) / 6 {
                let stride = if third > 0 && number == 0 { 2 } else { 1 };
                blocks.push(Block::new(
                    from,
                    to,
                    stride,
                    &builder.pp(format!("block{}", blocks.len() + 1)),
                )?);
                from = to;
            }
        }
        Ok(Self {
            stem: convolution(channels, width, 1, &builder.pp("stem"))?,
            norm: BatchNorm2d::new(width, EPSILON, MOMENTUM, &builder.pp("stem_norm"))?,
            blocks,
            scores: linear(from, classes, builder.pp("scores").vb())?,
        })
    }
}

impl Block {
    fn new(from: usize, to: usize, stride: usize, builder: &Builder) -> Result<Self> {
        Ok(Self {
            first: convolution(from, to, stride, &builder.pp("conv1"))?,
            first_norm: BatchNorm2d::new(to, EPSILON, MOMENTUM, &builder.pp("norm1"))?,
            second: convolution(to, to, 1, &builder.pp("conv2"))?,
            second_norm: BatchNorm2d::new(to, EPSILON, MOMENTUM, &builder.pp("norm2"))?,
            stride,
        })
    }

    /// The way past the block.
    fn past(&self, input: &Tensor, channels: usize) -> Result<Tensor> {
        let mut past = input.clone();
        if self.stride > 1 {
            for dimension in [2, 3] {
                let size = past.dim(dimension)?;
                let every: Vec<u32> = (0..size).step_by(self.stride).map(|at| at as u32).collect();
                let every = Tensor::new(every, input.device())?;
                past = past.index_select(&every, dimension)?;
            }
        }
        let missing = channels - past.dim(1)?;
        past.pad_with_zeros(1, missing / 2, missing - missing / 2)
    }
}

impl ModuleT for Block {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let maps = self.first_norm.forward_t(&self.first.forward(input)?, train)?.relu()?;
        let maps = self.second_norm.forward_t(&self.second.forward(&maps)?, train)?;
        (&maps + self.past(input, maps.dim(1)?)?)?.relu()
    }
}

impl ModuleT for ResNet {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let mut maps = self.norm.forward_t(&self.stem.forward(input)?, train)?.relu()?;
        for block in &self.blocks {
            maps = block.forward_t(&maps, train)?;
        }
        self.scores.forward(&maps.mean((2, 3))?)
    }
}
