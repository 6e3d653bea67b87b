//! The convolutional network with which MNIST is usually begun: the one of Keras' and PyTorch's first examples.

use candle_core::{Module, Result, Tensor};
use candle_nn::ModuleT;
use sardana_candle::{Builder, Conv2d, Dropout, Linear, MaxPool2d};

/// For grey images of 28 × 28: convolutions of 3 × 3 to 32 and 64 channels, pooling by 2, dropout by a quarter, a dense layer of 128 with
/// dropout by a half, and scores of 10 classes: 1,199,882 parameters.
#[derive(Clone, Debug)]
pub struct Cnn {
    first: Conv2d,
    second: Conv2d,
    pool: MaxPool2d,
    thin: Dropout,
    dense: Linear,
    thinner: Dropout,
    scores: Linear,
}

impl Cnn {
    /// The network.
    ///
    /// # Errors
    /// When candle cannot hold a tensor.
    pub fn new(builder: &Builder) -> Result<Self> {
        Ok(Self {
            first: Conv2d::new(1, 32, 3, &builder.pp("conv1"))?.relu(),
            second: Conv2d::new(32, 64, 3, &builder.pp("conv2"))?.relu(),
            pool: MaxPool2d::new(2, 2),
            thin: Dropout::new(0.25, builder)?,
            dense: Linear::new(64 * 12 * 12, 128, &builder.pp("dense"))?,
            thinner: Dropout::new(0.5, builder)?,
            scores: Linear::new(128, 10, &builder.pp("scores"))?,
        })
    }
}

impl ModuleT for Cnn {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let maps = self.first.forward(input)?;
        let maps = self.second.forward(&maps)?;
        let maps = self.thin.forward_t(&self.pool.forward(&maps)?, train)?;
        let values = self.dense.forward(&maps.flatten_from(1)?)?.relu()?;
        self.scores.forward(&self.thinner.forward_t(&values, train)?)
    }
}
