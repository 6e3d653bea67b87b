//! Group normalisation (Wu and He: "Group normalization", 2018).

use candle_core::{Module, Result, Tensor, bail};

use super::standard::{Groups, normalised};
use super::{Affine, check_channels, checked_eps};
use crate::Builder;

const NAME: &str = "GroupNorm";

/// Normalises groups of channels of each sample by themselves: what becomes of a sample depends on no other one, so neither on K
/// nor on the batch. Then scales and shifts each channel.
///
/// Of (samples, channels, …) in f32; calling it fails for another number of channels, or without any value.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    groups: usize,
    eps: f64,
    affine: Affine,
}

impl GroupNorm {
    /// Of `channels` channels in `groups` groups of equally many; `eps` is added to variances (1e-5 is usual). Its tensors are
    /// `weight` and `bias`, of shape (channels), 1 and 0 at first.
    ///
    /// # Errors
    /// When the groups do not divide the channels, `eps` is not above 0, or a tensor's name is taken.
    pub fn new(groups: usize, channels: usize, eps: f64, builder: &Builder) -> Result<Self> {
        if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
            bail!("{NAME}: expected a number of groups that divides {channels} channels, found {groups}");
        }
        Ok(Self {
            groups,
            eps: checked_eps(NAME, eps)?,
            affine: Affine::new(channels, builder)?,
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        check_channels(NAME, input, 1, self.affine.channels())?;
        let groups = input.dim(0)? * self.groups;
        let groups = Groups {
            groups,
            inner: input.elem_count() / groups,
        };
        let standard = normalised(input, groups, self.eps)?;
        self.affine.apply(&standard, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{assert_gradients, drawn};

    fn of(groups: usize, weight: &Tensor, bias: &Tensor) -> GroupNorm {
        let affine = Affine {
            weight: weight.clone(),
            bias: bias.clone(),
        };
        GroupNorm {
            groups,
            eps: 1e-5,
            affine,
        }
    }

    #[test]
    fn the_gradients_are_right() {
        for (groups, dims) in [
            (1, vec![2, 4, 3, 2]),
            (2, vec![2, 4, 3, 2]),
            (4, vec![3, 4, 5]),
            (2, vec![3, 4]),
        ] {
            let (input, weight, bias) = (drawn(dims, 1), drawn(4, 2), drawn(4, 3));
            let norm = of(groups, &weight, &bias);
            assert_gradients(&[&input, &weight, &bias], || norm.forward(&input));
        }
    }

    #[test]
    fn values_are_candles() {
        let (input, weight, bias) = (drawn((2, 6, 3, 5), 1), drawn(6, 2), drawn(6, 3));
        for groups in [1, 2, 3, 6] {
            let ours = of(groups, &weight, &bias).forward(&input).unwrap();
            let candles = candle_nn::GroupNorm::new(weight.as_tensor().clone(), bias.as_tensor().clone(), 6, groups, 1e-5);
            let candles = candles.unwrap().forward(&input).unwrap();
            let distance = (ours - candles)
                .unwrap()
                .abs()
                .unwrap()
                .max_all()
                .unwrap()
                .to_scalar::<f64>()
                .unwrap();
            assert!(distance < 1e-13, "{groups} groups: {distance}");
        }
    }

    #[test]
    fn a_sample_has_the_same_bits_in_every_batch() {
        let builder = Builder::new(1);
        let norm = GroupNorm::new(2, 4, 1e-5, &builder).unwrap();
        let batch = drawn((3, 4, 5, 5), 1).to_dtype(candle_core::DType::F32).unwrap();
        let bits = |output: Tensor| output.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let together = norm.forward(&batch).unwrap();
        for sample in 0..3 {
            let alone = norm.forward(&batch.narrow(0, sample, 1).unwrap()).unwrap();
            assert_eq!(bits(alone), bits(together.narrow(0, sample, 1).unwrap()));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_was_expected_and_found() {
        let builder = Builder::new(1);
        let refusal = GroupNorm::new(3, 4, 1e-5, &builder).unwrap_err().to_string();
        assert!(refusal.contains("divides 4 channels, found 3"), "{refusal}");
        let refusal = GroupNorm::new(2, 4, 0.0, &builder).unwrap_err().to_string();
        assert!(refusal.contains("`eps` above 0, found 0"), "{refusal}");
        let norm = GroupNorm::new(2, 4, 1e-5, &builder).unwrap();
        let refusal = norm.forward(&drawn((2, 3, 4), 1)).unwrap_err().to_string();
        assert!(
            refusal.contains("expected 4 channels at dimension 1, found [2, 3, 4]"),
            "{refusal}"
        );
        let refusal = norm.forward(&drawn((0, 4, 4), 1)).unwrap_err().to_string();
        assert!(refusal.contains("at least one value, found [0, 4, 4]"), "{refusal}");
    }
}
