//! Dropout whose masks depend on the seed, the step, the shard and the layer alone (Srivastava et al.: "Dropout: a simple way to prevent
//! neural networks from overfitting", 2014). candle's draws from a generator that cannot be seeded.

use candle_core::{Result, Tensor, bail};
use candle_nn::ModuleT;

use crate::{Builder, Pass};

/// Sets each value to 0 with a fixed probability in training, and divides the others by the probability to be kept; otherwise does nothing.
#[derive(Clone, Debug)]
pub struct Dropout {
    probability: f32,
    layer: u32,
    pass: Pass,
}

impl Dropout {
    /// Drops values with this probability, from 0 to less than 1.
    ///
    /// # Errors
    /// When it is not in that range.
    pub fn new(probability: f32, builder: &Builder) -> Result<Self> {
        if !(0.0..1.0).contains(&probability) {
            bail!("expected a dropout probability from 0 to less than 1, found {probability}");
        }
        Ok(Self {
            probability,
            layer: builder.drawing_layer()?,
            pass: builder.pass(),
        })
    }
}

impl ModuleT for Dropout {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        if !train || self.probability == 0.0 {
            return Ok(input.clone());
        }
        let mut rng = self.pass.random(self.layer)?;
        let kept = 1.0 / (1.0 - self.probability);
        let mask: Vec<f32> = (0..input.elem_count())
            .map(|_| if rng.uniform_f32() < self.probability { 0.0 } else { kept })
            .collect();
        input * Tensor::from_vec(mask, input.shape(), input.device())?.to_dtype(input.dtype())?
    }
}
