//! Batch normalisation over the samples of one shard (Ioffe and Szegedy: "Batch normalization", 2015; Hoffer, Hubara and Soudry:
//! "Train longer, generalize better", 2017, whose ghost batches these are).

use candle_core::{DType, Result, Tensor};
use candle_nn::ModuleT;

use super::standard::{Groups, composed, standardised};
use super::{Affine, check_channels, checked_eps};
use crate::{Builder, Pass, Running};

const NAME: &str = "BatchNorm2d";

/// Normalises each channel over the samples of a shard and their pixels, then scales and shifts it; when evaluated, by the running
/// mean and variance. Of (samples, channels, height, width) in f32, or (samples, channels) or any other (samples, channels, …).
///
/// - The number of shards K fixes how many samples are normalised together, whatever the number of workers: a batch of 128 in 8
///   shards is normalised in ghost batches of 16. So K reaches the accuracy: moments of a few samples are noisy. A shard of one
///   sample without pixels is normalised to 0, and teaches the layers before nothing.
/// - Where K must not matter, or shards are small, take [`GroupNorm`](crate::GroupNorm), which looks at one sample at a time.
/// - There is no normalisation over the whole batch: each such layer would have all workers wait for each other, forward and
///   backward.
/// - The running mean and variance follow those of the whole batch, from what its shards tell. The variance is
///   the biased one. They move with the update, never while a network computes.
///
/// Calling it fails for another number of channels, without any value, and in training while no shard is under way.
#[derive(Clone, Debug)]
pub struct BatchNorm2d {
    eps: f64,
    affine: Affine,
    running: Running,
    pass: Pass,
}

impl BatchNorm2d {
    /// Of `channels` channels. `eps` is added to variances (1e-5 is usual). With each update the running tensors go `momentum` of
    /// the way to the batch's (0.1 is usual). Its tensors are `weight`, `bias`, `running_mean` and `running_var`, of shape
    /// (channels); 1, 0, 0 and 1 at first.
    ///
    /// # Errors
    /// When `eps` is not above 0, `momentum` not from 0 to 1, or a tensor's name is taken.
    pub fn new(channels: usize, eps: f64, momentum: f64, builder: &Builder) -> Result<Self> {
        Ok(Self {
            eps: checked_eps(NAME, eps)?,
            affine: Affine::new(channels, builder)?,
            running: builder.running(channels, momentum)?,
            pass: builder.pass(),
        })
    }

    /// A channel of all samples is one group.
    fn groups(&self, input: &Tensor) -> Groups {
        Groups {
            groups: self.affine.channels(),
            inner: input.dims()[2..].iter().product(),
        }
    }

    /// By loops, on processors.
    fn by_the_shard(&self, input: &Tensor) -> Result<Tensor> {
        let groups = self.groups(input);
        let (standard, moments) = standardised(input, groups, self.eps)?;
        // Distances from the running mean, so that a variance which is small beside the mean is not rounded away.
        let running = self.running.mean.detach().to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let each = moments
            .iter()
            .zip(running)
            .map(|(moments, running)| (moments.mean - running, moments.variance));
        let (means, squares) = each
            .map(|(mean, variance)| (mean as f32, (variance + mean * mean) as f32))
            .unzip();
        self.pass.tell(self.running.means, means)?;
        self.pass.tell(self.running.squares, squares)?;
        self.affine.apply(&standard, 1)
    }

    /// The same by operations of candle.
    fn composed(&self, input: &Tensor) -> Result<Tensor> {
        let groups = self.groups(input);
        let mut shape = vec![1; input.rank()];
        shape[1] = groups.groups;
        // For the same reason; normalised they are the same.
        let distances = input.broadcast_sub(&self.running.mean.detach().to_dtype(input.dtype())?.reshape(shape)?)?;
        let (standard, [means, variances]) = composed(&distances, groups, self.eps)?;
        let squares = (variances + means.sqr()?)?;
        self.pass.tell_computed(self.running.means, &means)?;
        self.pass.tell_computed(self.running.squares, &squares)?;
        self.affine.apply(&standard, 1)
    }

    /// As one scale and one shift, which are small to compute.
    fn by_running(&self, input: &Tensor) -> Result<Tensor> {
        // No gradient flows into what is not trained.
        let (mean, variance) = (self.running.mean.detach(), self.running.variance.detach());
        let weight = self.affine.weight.div(&(variance + self.eps)?.sqrt()?)?;
        let bias = (&self.affine.bias - (mean * &weight)?)?;
        Affine { weight, bias }.apply(input, 1)
    }
}

impl ModuleT for BatchNorm2d {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        check_channels(NAME, input, 1, self.affine.channels())?;
        match (train, input.device().is_cpu()) {
            (true, true) => self.by_the_shard(input),
            (true, false) => self.composed(input),
            (false, _) => self.by_running(input),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::checked::{assert_gradients, drawn, farthest};
    use crate::pass::tests::shard;

    /// One in f64, whose running tensors are not what they are at first.
    fn of(weight: &Tensor, bias: &Tensor) -> BatchNorm2d {
        let channels = weight.elem_count();
        let builder = Builder::new(1);
        let running = builder.running(channels, 0.1).unwrap();
        BatchNorm2d {
            eps: 1e-5,
            affine: Affine {
                weight: weight.clone(),
                bias: bias.clone(),
            },
            running: Running {
                mean: drawn(channels, 8).as_tensor().clone(),
                variance: drawn(channels, 9).sqr().unwrap(),
                ..running
            },
            pass: builder.pass(),
        }
    }

    #[test]
    fn the_gradients_are_right_in_training() {
        for dims in [vec![2, 3, 2, 4], vec![5, 3], vec![2, 3, 9]] {
            let (input, weight, bias) = (drawn(dims, 1), drawn(3, 2), drawn(3, 3));
            let norm = of(&weight, &bias);
            norm.pass.begin(&shard(1, 0, 0));
            assert_gradients(&[&input, &weight, &bias], || norm.forward_t(&input, true));
            assert_gradients(&[&input, &weight, &bias], || norm.composed(&input));
            let (ours, composed) = (norm.forward_t(&input, true).unwrap(), norm.composed(&input).unwrap());
            assert!(farthest(&ours, &composed) < 1e-13);
        }
    }

    #[test]
    fn the_gradients_are_right_when_evaluated_and_the_running_tensors_have_none() {
        let (input, weight, bias) = (drawn((2, 3, 2, 4), 1), drawn(3, 2), drawn(3, 3));
        let mut norm = of(&weight, &bias);
        assert_gradients(&[&input, &weight, &bias], || norm.forward_t(&input, false));
        let (mean, variance) = (drawn(3, 4), Var::ones(3, DType::F64, &Device::Cpu).unwrap());
        norm.running.mean = mean.as_tensor().clone();
        norm.running.variance = variance.as_tensor().clone();
        let gradients = norm.forward_t(&input, false).unwrap().sum_all().unwrap().backward().unwrap();
        assert!(gradients.get(&mean).is_none() && gradients.get(&variance).is_none());
    }

    #[test]
    fn values_are_candles_in_training_and_when_evaluated() {
        let (input, weight, bias) = (drawn((4, 3, 5, 2), 1), drawn(3, 2), drawn(3, 3));
        let norm = of(&weight, &bias);
        let candles = candle_nn::BatchNorm::new(
            3,
            norm.running.mean.clone(),
            norm.running.variance.clone(),
            weight.as_tensor().clone(),
            bias.as_tensor().clone(),
            1e-5,
        )
        .unwrap();
        let expected = candles.forward_t(&input, false).unwrap();
        assert!(farthest(&norm.forward_t(&input, false).unwrap(), &expected) < 1e-12);
        norm.pass.begin(&shard(1, 0, 0));
        let expected = candles.forward_train(&input).unwrap();
        assert!(farthest(&norm.forward_t(&input, true).unwrap(), &expected) < 1e-12);
    }

    #[test]
    fn a_shard_tells_its_means_and_mean_squares() {
        let builder = Builder::new(1);
        let norm = BatchNorm2d::new(2, 1e-5, 0.1, &builder).unwrap();
        let values = [1.0_f32, 3.0, -2.0, -2.0, 5.0, 7.0, 0.0, 2.0];
        let input = Tensor::from_slice(&values, (2, 2, 1, 2), &Device::Cpu).unwrap();
        for by in [BatchNorm2d::by_the_shard, BatchNorm2d::composed] {
            builder.pass().begin(&shard(1, 0, 0));
            let output = by(&norm, &input).unwrap();
            assert_eq!(output.dims(), [2, 2, 1, 2]);
            let told = builder.pass().end().unwrap();
            assert_eq!(
                told,
                [(norm.running.means, vec![4.0, -0.5]), (norm.running.squares, vec![21.0, 3.0])]
            );
        }
        // Neither telling nor evaluating has moved anything.
        norm.forward_t(&input, false).unwrap();
        assert_eq!(norm.running.mean.to_vec1::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(norm.running.variance.to_vec1::<f32>().unwrap(), [1.0, 1.0]);
    }

    /// In f32 the squares of such numbers have steps of 8.
    #[test]
    fn a_variance_that_is_small_beside_the_mean_is_told_exactly() {
        let builder = Builder::new(1);
        let mut norm = BatchNorm2d::new(1, 1e-5, 0.1, &builder).unwrap();
        norm.running.mean = Tensor::new(&[9_999.0_f32], &Device::Cpu).unwrap();
        let input = Tensor::new(&[[9_999.0_f32], [10_001.0]], &Device::Cpu).unwrap();
        for by in [BatchNorm2d::by_the_shard, BatchNorm2d::composed] {
            builder.pass().begin(&shard(1, 0, 0));
            by(&norm, &input).unwrap();
            let told = builder.pass().end().unwrap();
            // Distances 0 and 2 from the running mean.
            assert_eq!(told, [(norm.running.means, vec![1.0]), (norm.running.squares, vec![2.0])]);
        }
    }

    #[test]
    fn its_tensors_have_the_names_that_others_give_them() {
        let builder = Builder::new(1);
        BatchNorm2d::new(2, 1e-5, 0.1, &builder.pp("stem").pp("norm")).unwrap();
        let names: Vec<String> = builder.into_variables().into_iter().map(|variable| variable.name).collect();
        let expected = ["weight", "bias", "running_mean", "running_var"].map(|name| format!("stem.norm.{name}"));
        assert_eq!(names, expected);
    }

    #[test]
    fn an_evaluated_network_cannot_train_it_and_evaluation_follows_the_running_tensors() {
        let builder = Builder::new(1);
        let norm = BatchNorm2d::new(1, 1e-5, 0.1, &builder).unwrap();
        let input = Tensor::new(&[[3.0_f32], [5.0]], &Device::Cpu).unwrap();
        let refusal = norm.forward_t(&input, true).unwrap_err().to_string();
        assert!(refusal.contains("found the network evaluated"), "{refusal}");
        let variables = builder.into_variables();
        let mean = variables.iter().find(|variable| variable.name == "running_mean").unwrap();
        mean.value.set(&Tensor::new(&[4.0_f32], &Device::Cpu).unwrap()).unwrap();
        let output = norm
            .forward_t(&input, false)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>()
            .unwrap();
        assert!((output[0] + 1.0).abs() < 1e-4 && (output[1] - 1.0).abs() < 1e-4, "{output:?}");
    }

    #[test]
    fn a_shard_of_one_value_is_normalised_to_its_shift() {
        let builder = Builder::new(1);
        let norm = BatchNorm2d::new(3, 1e-5, 0.1, &builder).unwrap();
        builder.pass().begin(&shard(1, 0, 0));
        let input = Tensor::new(&[[3.0_f32, 5.0, -1.0]], &Device::Cpu).unwrap();
        assert_eq!(norm.forward_t(&input, true).unwrap().to_vec2::<f32>().unwrap(), [[0.0; 3]]);
        let refusal = norm.forward_t(&input.t().unwrap(), true).unwrap_err().to_string();
        assert!(
            refusal.contains("expected 3 channels at dimension 1, found [3, 1]"),
            "{refusal}"
        );
    }
}
