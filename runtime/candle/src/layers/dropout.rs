//! Dropout whose masks depend on the seed, the step, the shard and the layer alone (Srivastava et al.: "Dropout: a simple way to
//! prevent neural networks from overfitting", 2014). candle's draws from a generator that cannot be seeded.

use std::iter::zip;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor, WithDType, bail};
use candle_nn::ModuleT;

use super::values::{Reading, Real, by_dtype, values};
use crate::{Builder, Pass};

const NAME: &str = "Dropout";

/// Sets each value to 0 with a fixed probability in training, and divides the others by the probability to be kept; otherwise does
/// nothing.
///
/// Of any shape and any type of real numbers. Each call in one pass draws another mask, one random word for each value; in training
/// it fails while no shard is under way.
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
    /// When it is not in that range, or too many layers draw random numbers.
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

    /// Which of so many values are kept.
    fn kept(&self, values: usize) -> Result<Vec<bool>> {
        let mut rng = self.pass.random(self.layer)?;
        // Of 2³² words, how many drop a value; less than all, since the probability is less than 1.
        let dropped_below = (f64::from(self.probability) * (1_u64 << 32) as f64) as u32;
        Ok((0..values).map(|_| rng.next_u32() >= dropped_below).collect())
    }
}

impl ModuleT for Dropout {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        if !train || self.probability == 0.0 {
            return Ok(input.clone());
        }
        let mask = Mask {
            kept: self.kept(input.elem_count())?,
            factor: 1.0 / (1.0 - f64::from(self.probability)),
        };
        let dtype = input.dtype();
        if !input.device().is_cpu() {
            return mask.composed(input);
        }
        if dtype == DType::F32 || dtype == DType::F64 {
            return input.contiguous()?.apply_op1(mask);
        }
        input.to_dtype(DType::F32)?.contiguous()?.apply_op1(mask)?.to_dtype(dtype)
    }
}

/// Multiplies values that are kept by a factor, and others by 0; and gradients likewise.
struct Mask {
    kept: Vec<bool>,
    factor: f64,
}

impl Mask {
    /// By operations of candle.
    fn composed(self, input: &Tensor) -> Result<Tensor> {
        let kept = self.kept.into_iter().map(u8::from).collect();
        let factors = Tensor::from_vec::<_, u8>(kept, input.shape(), input.device())?;
        input * factors.to_dtype(input.dtype())?.affine(self.factor, 0.0)?
    }

    fn masked<T: Real>(&self, values: &[T]) -> Vec<T> {
        let factors = [T::zero(), T::from_f64(self.factor)];
        zip(values, &self.kept)
            .map(|(&value, &kept)| value * factors[usize::from(kept)])
            .collect()
    }
}

impl CustomOp1 for Mask {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let masked =
            by_dtype!(storage.dtype(), NAME, T => T::to_cpu_storage_owned(self.masked::<T>(values(storage, layout)?)));
        Ok((masked, layout.shape().clone()))
    }

    fn bwd(&self, input: &Tensor, _masked: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let gradient = Reading::of(&gradient);
        let masked = by_dtype!(input.dtype(), NAME, T => {
            Tensor::from_vec(self.masked::<T>(gradient.values()?), input.shape(), input.device())?
        });
        Ok(Some(masked))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use sardana::data::Shard;

    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};
    use crate::pass::tests::shard;

    fn masked(dropout: &Dropout) -> Vec<f32> {
        let ones = Tensor::ones((4, 25), DType::F32, &Device::Cpu).unwrap();
        dropout
            .forward_t(&ones, true)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1()
            .unwrap()
    }

    #[test]
    fn masks_depend_on_the_seed_the_step_the_shard_the_layer_and_the_call() {
        let builder = Builder::new(1);
        let (first, second) = (Dropout::new(0.5, &builder).unwrap(), Dropout::new(0.5, &builder).unwrap());
        let mut masks = Vec::new();
        for shard in [shard(1, 0, 0), shard(2, 0, 0), shard(1, 1, 0), shard(1, 0, 1)] {
            builder.pass().begin(&shard);
            masks.extend([masked(&first), masked(&first), masked(&second), masked(&second)]);
            builder.pass().end().unwrap();
        }
        for (nth, mask) in masks.iter().enumerate() {
            assert!(!masks[..nth].contains(mask), "mask {nth} has been drawn before");
        }
    }

    #[test]
    fn masks_depend_on_nothing_else() {
        let masks = |builder: &Builder, dropout: &Dropout, shard: &Shard| {
            builder.pass().begin(shard);
            let masks = [masked(dropout), masked(dropout)];
            builder.pass().end().unwrap();
            masks
        };
        let builder = Builder::new(1);
        let dropout = Dropout::new(0.5, &builder).unwrap();
        let expected = masks(&builder, &dropout, &shard(1, 3, 1));
        // The same pass begun again, also after another one that was left in its middle.
        builder.pass().begin(&shard(1, 0, 0));
        masked(&dropout);
        assert_eq!(masks(&builder, &dropout, &shard(1, 3, 1)), expected);
        // Another worker, whose network has drawn nothing yet, and a copy of the layer.
        let elsewhere = Builder::new(1);
        let copy = Dropout::new(0.5, &elsewhere).unwrap().clone();
        assert_eq!(masks(&elsewhere, &copy, &shard(1, 3, 1)), expected);
        // Neither the values, the shape nor the type change which values are dropped.
        builder.pass().begin(&shard(1, 3, 1));
        let other = drawn((5, 20), 1);
        let output = dropout
            .forward_t(&other, true)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap();
        let dropped: Vec<bool> = output.iter().map(|&value| value == 0.0).collect();
        assert_eq!(dropped, expected[0].iter().map(|&value| value == 0.0).collect::<Vec<_>>());
    }

    #[test]
    fn a_part_as_large_as_asked_is_dropped_and_the_mean_is_kept() {
        let builder = Builder::new(1);
        let n = 40_000;
        for probability in [0.1, 0.5, 0.9] {
            let dropout = Dropout::new(probability, &builder).unwrap();
            builder.pass().begin(&shard(1, 0, 0));
            let input = Tensor::full(3.0_f64, n, &Device::Cpu).unwrap();
            let output = dropout.forward_t(&input, true).unwrap().to_vec1::<f64>().unwrap();
            let probability = f64::from(probability);
            let kept = 3.0 / (1.0 - probability);
            assert!(output.iter().all(|&value| value == 0.0 || (value - kept).abs() < 1e-12));
            let dropped = output.iter().filter(|&&value| value == 0.0).count() as f64 / n as f64;
            // Within five standard errors.
            let error = (probability * (1.0 - probability) / n as f64).sqrt();
            assert!((dropped - probability).abs() < 5.0 * error, "{dropped} of {probability}");
            let mean = output.iter().sum::<f64>() / n as f64;
            assert!((mean - 3.0).abs() < 5.0 * kept * error, "{mean}");
        }
    }

    #[test]
    fn evaluation_is_the_identity_and_needs_no_shard() {
        let builder = Builder::new(1);
        let input = drawn((3, 4), 1);
        let values = |output: &Tensor| output.to_vec2::<f64>().unwrap();
        let dropout = Dropout::new(0.5, &builder).unwrap();
        assert_eq!(values(&dropout.forward_t(&input, false).unwrap()), values(&input));
        let refusal = dropout.forward_t(&input, true).unwrap_err().to_string();
        assert!(refusal.contains("only in training"), "{refusal}");
        // So is a layer that drops nothing.
        let nothing = Dropout::new(0.0, &builder).unwrap();
        assert_eq!(values(&nothing.forward_t(&input, true).unwrap()), values(&input));
    }

    #[test]
    fn the_gradient_passes_where_values_do() {
        let builder = Builder::new(1);
        let dropout = Dropout::new(0.3, &builder).unwrap();
        let input = drawn((4, 6), 1);
        assert_gradients(&[&input], || {
            builder.pass().begin(&shard(1, 0, 0));
            dropout.forward_t(&input, true)
        });
        let mask = || Mask {
            kept: (0..24).map(|at| at % 3 > 0).collect(),
            factor: 1.5,
        };
        assert_gradients(&[&input], || mask().composed(&input));
        let (composed, ours) = (mask().composed(&input).unwrap(), input.apply_op1(mask()).unwrap());
        assert_eq!(farthest(&composed, &ours), 0.0);
    }

    #[test]
    fn a_probability_out_of_range_is_refused() {
        for probability in [-0.1, 1.0, f32::NAN] {
            let refusal = Dropout::new(probability, &Builder::new(1)).unwrap_err().to_string();
            assert!(refusal.contains(&format!("found {probability}")), "{refusal}");
        }
    }
}
