//! Layer normalisation (Ba, Kiros and Hinton: "Layer normalization", 2016).

use candle_core::{Module, Result, Tensor};

use super::standard::{Groups, normalised};
use super::{Affine, check_channels, checked_eps};
use crate::Builder;

const NAME: &str = "LayerNorm";

/// Normalises the values along the last dimension by themselves, then scales and shifts each: what candle's layer of that name
/// does, which has no gradient. What becomes of a sample depends on no other one.
///
/// Of (…, size) in f32; calling it fails for another size, or without any value.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    eps: f64,
    affine: Affine,
}

impl LayerNorm {
    /// Of `size` values; `eps` is added to variances (1e-5 is usual). Its tensors are `weight` and `bias`, of shape (size), 1 and 0
    /// at first.
    ///
    /// # Errors
    /// When `eps` is not above 0, or a tensor's name is taken.
    pub fn new(size: usize, eps: f64, builder: &Builder) -> Result<Self> {
        Ok(Self {
            eps: checked_eps(NAME, eps)?,
            affine: Affine::new(size, builder)?,
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let size = self.affine.channels();
        // A scalar has no last dimension: it is refused as one that lacks the first.
        let last = input.rank().saturating_sub(1);
        check_channels(NAME, input, last, size)?;
        let groups = Groups {
            groups: input.elem_count() / size,
            inner: size,
        };
        let standard = normalised(input, groups, self.eps)?;
        self.affine.apply(&standard, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{assert_gradients, drawn};

    fn of(weight: &Tensor, bias: &Tensor) -> LayerNorm {
        let affine = Affine {
            weight: weight.clone(),
            bias: bias.clone(),
        };
        LayerNorm { eps: 1e-5, affine }
    }

    #[test]
    fn the_gradients_are_right() {
        for dims in [vec![9], vec![3, 9], vec![2, 3, 9]] {
            let (input, weight, bias) = (drawn(dims, 1), drawn(9, 2), drawn(9, 3));
            let norm = of(&weight, &bias);
            assert_gradients(&[&input, &weight, &bias], || norm.forward(&input));
        }
        let (input, weight, bias) = (drawn((4, 3), 1), drawn(4, 2), drawn(4, 3));
        let norm = of(&weight, &bias);
        assert_gradients(&[&input, &weight, &bias], || norm.forward(&input.t()?));
    }

    #[test]
    fn values_are_candles() {
        let (input, weight, bias) = (drawn((2, 5, 12), 1), drawn(12, 2), drawn(12, 3));
        let ours = of(&weight, &bias).forward(&input).unwrap();
        let candles = candle_nn::ops::layer_norm_slow(&input, &weight, &bias, 1e-5).unwrap();
        let distance = (ours - candles)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap();
        // candle holds its `eps` in an f32.
        assert!(distance < 1e-11, "{distance}");
    }

    #[test]
    fn another_size_is_refused_with_what_was_expected_and_found() {
        let norm = LayerNorm::new(4, 1e-5, &Builder::new(1)).unwrap();
        let refusal = norm.forward(&drawn((2, 3), 1)).unwrap_err().to_string();
        assert!(
            refusal.contains("LayerNorm: expected 4 channels at dimension 1, found [2, 3]"),
            "{refusal}"
        );
        assert!(norm.forward(&drawn((), 1)).is_err());
    }
}
