//! Dense layers with rectifiers between them.

use candle_core::{Module, Result, Tensor};
use candle_nn::ModuleT;
use sardana_candle::{Builder, Linear};

/// Dense layers with rectifiers between them: from inputs of any shape, each taken as a row, to scores.
#[derive(Clone, Debug)]
pub struct Dense {
    layers: Vec<Linear>,
}

impl Dense {
    /// As many layers as there are sizes but one, such as 784-128-60-10.
    ///
    /// # Errors
    /// When candle cannot hold a tensor.
    pub fn new(builder: &Builder, sizes: &[usize]) -> Result<Self> {
        let layer = |(number, sizes): (usize, &[usize])| {
            let name = format!("layer{}", number + 1);
            Linear::new(sizes[0], sizes[1], &builder.pp(name))
        };
        Ok(Self {
            layers: sizes.windows(2).enumerate().map(layer).collect::<Result<_>>()?,
        })
    }
}

impl ModuleT for Dense {
    fn forward_t(&self, input: &Tensor, _train: bool) -> Result<Tensor> {
        let mut values = input.flatten_from(1)?;
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 {
                values = values.relu()?;
            }
            values = layer.forward(&values)?;
        }
        Ok(values)
    }
}
