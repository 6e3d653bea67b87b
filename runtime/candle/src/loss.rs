//! Losses, summed over samples, and what is counted beside them.

use candle_core::{D, DType, Result, Tensor, bail};

/// A loss between what a network puts out and what its samples say.
pub trait Loss {
    /// The loss summed (not averaged) over the samples of a batch, a scalar through which gradients flow.
    ///
    /// # Errors
    /// When the output does not fit the target.
    fn sum(&self, output: &Tensor, target: &Tensor) -> Result<Tensor>;

    /// Names of what else is summed over samples, such as `accuracy`.
    fn metrics(&self) -> Vec<String>;

    /// Adds what else is summed to `sums`, as many as there are names. No gradient flows through it. Output and target are in the host's memory, wherever they
    /// were computed.
    ///
    /// # Errors
    /// When the output does not fit the target.
    fn measure(&self, output: &Tensor, target: &Tensor, sums: &mut [f64]) -> Result<()>;

    /// What it is, with its constants: compared between workers.
    fn describe(&self) -> String;
}

/// Cross-entropy of the softmax of scores, for samples of one class each: output (n, classes) in any float type, target (n) of u32. For
/// sequences: output (n, places, classes), target (n, places); a sample's loss is then the mean over its places.
///
/// Beside it `accuracy` is summed: 1 for each sample (or place's part of one) whose highest score is its class's; the first of equals
/// counts. With [`Self::top`] also `top5`, or another number: whether its class is among that many highest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    smoothing: f64,
    top: Option<usize>,
}

impl CrossEntropy {
    /// Without smoothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this part of each class's probability away and spreads it evenly over all classes (Szegedy et al.: "Rethinking the Inception
    /// architecture", 2016); from 0 to below 1.
    #[must_use]
    pub fn smoothing(self, smoothing: f64) -> Self {
        Self { smoothing, ..self }
    }

    /// Also counts how often the class is among the `most` highest scores.
    #[must_use]
    pub fn top(self, most: usize) -> Self {
        Self { top: Some(most), ..self }
    }
}

/// Scores as rows, their classes, and how many rows one sample has.
fn rows(output: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor, usize)> {
    let (scores, classes) = (output.dims(), target.dims());
    let fits = scores.len() >= 2 && scores[..scores.len() - 1] == *classes;
    if !fits || target.dtype() != DType::U32 {
        bail!(
            "expected scores of shape (n, classes) and u32 classes of shape (n), or (n, places, classes) and (n, places); found {scores:?} \
             and {:?} {classes:?}",
            target.dtype()
        );
    }
    let (samples, count) = (classes[0], classes.iter().product::<usize>());
    let places = count / samples.max(1);
    Ok((
        output.reshape((count, scores[scores.len() - 1]))?,
        target.reshape(count)?,
        places,
    ))
}

impl Loss for CrossEntropy {
    fn sum(&self, output: &Tensor, target: &Tensor) -> Result<Tensor> {
        let (scores, classes, places) = rows(output, target)?;
        if !(0.0..1.0).contains(&self.smoothing) {
            bail!("expected smoothing from 0 to below 1, found {}", self.smoothing);
        }
        // log Σ exp(scores) - score. Subtracting the highest changes nothing but keeps exp finite, so no gradient goes through it.
        let scores = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
        let total = scores.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let own = scores.gather(&classes.unsqueeze(1)?, D::Minus1)?;
        let own = if self.smoothing == 0.0 {
            own
        } else {
            let all = scores.mean_keepdim(D::Minus1)?;
            ((own * (1.0 - self.smoothing))? + (all * self.smoothing)?)?
        };
        let sum = (total - own)?.sum_all()?;
        if places == 1 { Ok(sum) } else { sum / places as f64 }
    }

    fn metrics(&self) -> Vec<String> {
        let accuracy = ["accuracy".to_owned()];
        accuracy
            .into_iter()
            .chain(self.top.map(|most| format!("top{most}")))
            .collect()
    }

    fn measure(&self, output: &Tensor, target: &Tensor, sums: &mut [f64]) -> Result<()> {
        let (scores, classes, places) = rows(output, target)?;
        let (scores, classes) = (scores.to_dtype(DType::F32)?.to_vec2::<f32>()?, classes.to_vec1::<u32>()?);
        let most = [Some(1), self.top].into_iter().flatten();
        for (sum, most) in sums.iter_mut().zip(most) {
            let hits = scores
                .iter()
                .zip(&classes)
                .filter(|(row, class)| is_among(row, **class as usize, most))
                .count();
            *sum += hits as f64 / places as f64;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("cross-entropy(smoothing {}, top {:?})", self.smoothing, self.top)
    }
}

/// Whether fewer than `most` scores come before that of `class`: higher ones, and equal ones of lower classes.
fn is_among(row: &[f32], class: usize, most: usize) -> bool {
    let Some(own) = row.get(class) else { return false };
    let before = |(other, score): &(usize, &f32)| *score > own || (*score == own && *other < class);
    !own.is_nan() && row.iter().enumerate().filter(before).count() < most
}

/// The squared error, for targets that are numbers: output and target of one shape (n, …). A sample's loss is the mean over its numbers.
/// Beside it `absolute` is summed: the mean absolute error of each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SquaredError;

impl SquaredError {
    fn difference(output: &Tensor, target: &Tensor) -> Result<(Tensor, f64)> {
        // One number a sample may come without a dimension of its own.
        let target = match (output.dims(), target.dims()) {
            (&[n, 1], &[m]) if n == m => target.unsqueeze(1)?,
            _ => target.clone(),
        };
        if output.dims() != target.dims() || output.rank() == 0 {
            bail!(
                "expected output and target of one shape, found {:?} and {:?}",
                output.dims(),
                target.dims()
            );
        }
        let each = output.elem_count() / output.dims()[0].max(1);
        Ok(((output - target.to_dtype(output.dtype())?)?, each as f64))
    }
}

impl Loss for SquaredError {
    fn sum(&self, output: &Tensor, target: &Tensor) -> Result<Tensor> {
        let (difference, each) = Self::difference(output, target)?;
        difference.sqr()?.sum_all()? / each
    }

    fn metrics(&self) -> Vec<String> {
        vec!["absolute".to_owned()]
    }

    fn measure(&self, output: &Tensor, target: &Tensor, sums: &mut [f64]) -> Result<()> {
        let (difference, each) = Self::difference(output, target)?;
        sums[0] += difference.abs()?.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()? / each;
        Ok(())
    }

    fn describe(&self) -> String {
        "squared error".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
        Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
    }

    fn number(tensor: &Tensor) -> f64 {
        tensor.to_scalar::<f64>().unwrap()
    }

    #[test]
    fn cross_entropy_is_summed_over_samples() {
        let scores = tensor(&[1.0, 2.0, 3.0, 1000.0, 0.0, -1000.0], &[2, 3]);
        let classes = Tensor::new(&[2_u32, 1], &Device::Cpu).unwrap();
        let loss = CrossEntropy::new();
        let first = (1_f64.exp() + 2_f64.exp() + 3_f64.exp()).ln() - 3.0;
        assert!((number(&loss.sum(&scores, &classes).unwrap()) - first - 1000.0).abs() < 1e-9);
        let smooth = number(&loss.clone().smoothing(0.3).sum(&scores, &classes).unwrap());
        let other = (first + 3.0) - (0.7 * 3.0 + 0.3 * 2.0) + 1000.0 - 0.0;
        assert!((smooth - other).abs() < 1e-9, "{smooth} {other}");
        assert!(loss.clone().smoothing(1.0).sum(&scores, &classes).is_err());
        let mut sums = [0.0; 2];
        loss.top(2).measure(&scores, &classes, &mut sums).unwrap();
        assert_eq!(sums, [1.0, 2.0]);
    }

    #[test]
    fn a_sequence_counts_as_one_sample() {
        let scores = tensor(&[2.0, 0.0, 0.0, 0.0], &[1, 2, 2]);
        let classes = Tensor::new(&[[0_u32, 1]], &Device::Cpu).unwrap();
        let expected = (((2_f64.exp() + 1.0).ln() - 2.0) + 2_f64.ln()) / 2.0;
        let loss = CrossEntropy::new();
        assert!((number(&loss.sum(&scores, &classes).unwrap()) - expected).abs() < 1e-12);
        let mut sums = [0.0];
        loss.measure(&scores, &classes, &mut sums).unwrap();
        assert_eq!(sums, [0.5], "of equal scores the first counts");
    }

    #[test]
    fn the_gradient_is_the_softmax_less_the_class() {
        let scores = Var::from_tensor(&tensor(&[0.3, -1.0, 2.0], &[1, 3])).unwrap();
        let classes = Tensor::new(&[1_u32], &Device::Cpu).unwrap();
        let loss = CrossEntropy::new().sum(&scores, &classes).unwrap();
        let gradient = loss.backward().unwrap().get(&scores).unwrap().to_vec2::<f64>().unwrap();
        let total: f64 = [0.3_f64, -1.0, 2.0].iter().map(|score| score.exp()).sum();
        for (at, score) in [0.3_f64, -1.0, 2.0].iter().enumerate() {
            let expected = score.exp() / total - if at == 1 { 1.0 } else { 0.0 };
            assert!((gradient[0][at] - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_shape() {
        let scores = tensor(&[0.0; 6], &[2, 3]);
        let floats = tensor(&[0.0; 2], &[2]);
        let error = CrossEntropy::new().sum(&scores, &floats).unwrap_err().to_string();
        assert!(error.contains("[2, 3]") && error.contains("F64"), "{error}");
        let three = Tensor::new(&[0_u32, 1, 2], &Device::Cpu).unwrap();
        assert!(CrossEntropy::new().sum(&scores, &three).is_err());
        assert!(SquaredError.sum(&scores, &floats).is_err());
    }

    #[test]
    fn a_squared_error_is_the_mean_over_a_samples_numbers() {
        let (output, target) = (tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2]), tensor(&[0.0, 0.0, 3.0, 2.0], &[2, 2]));
        assert_eq!(number(&SquaredError.sum(&output, &target).unwrap()), 5.0 / 2.0 + 4.0 / 2.0);
        let mut sums = [0.0];
        SquaredError.measure(&output, &target, &mut sums).unwrap();
        assert_eq!(sums, [1.5 + 1.0]);
        let (column, row) = (tensor(&[1.0, 2.0], &[2, 1]), tensor(&[0.0, 0.0], &[2]));
        assert_eq!(number(&SquaredError.sum(&column, &row).unwrap()), 5.0);
    }
}
