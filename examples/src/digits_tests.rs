//! Tests of the digits job: the gradient against finite differences, the accuracy, and the same bits along several ways.

use sardana::data::{Sampler, Shard};
use sardana::model::{GradientWriter, Mean, TensorSpec, Trainable, probe, restore, save, state_hash};
use sardana::reference::{advance, train};

use sardana::Step;

use super::*;

fn short(steps: u64) -> JobSpec {
    JobSpec {
        steps: Step::new(steps),
        ..spec()
    }
}

/// The loss of the network with these parameters, in f64 and without candle.
fn plain_loss(parameters: &[Vec<f64>], images: &Images, samples: &[u64]) -> f64 {
    let layer = |input: &[f64], number: usize| -> Vec<f64> {
        let (weights, bias) = (&parameters[2 * number], &parameters[2 * number + 1]);
        let outputs = bias.len();
        let product = |output| input.iter().enumerate().map(move |(i, x)| x * weights[i * outputs + output]);
        (0..outputs)
            .map(|output| bias[output] + product(output).sum::<f64>())
            .collect()
    };
    let relu = |values: Vec<f64>| -> Vec<f64> { values.into_iter().map(|value| value.max(0.0)).collect() };
    let loss = |&sample: &u64| {
        let sample = sample as usize;
        let pixels = &images.pixels[sample * PIXELS..][..PIXELS];
        let pixels: Vec<f64> = pixels.iter().copied().map(f64::from).collect();
        let scores = layer(&relu(layer(&relu(layer(&pixels, 0)), 1)), 2);
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        total.ln() - scores[images.labels[sample] as usize]
    };
    samples.iter().map(loss).sum()
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let spec = spec();
    let mut model = Digits::new(&spec).unwrap();
    // Away from the start, where biases are zero.
    advance(&spec, &mut model, Step::ZERO..Step::new(5)).unwrap();
    let shard = Sampler::new(&spec).unwrap().shard(Step::new(5), 3);
    let (gradients, sums) = model.backward(&shard).unwrap();
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let parameters: Vec<Vec<f64>> = model
        .variables()
        .iter()
        .map(|v| flat(v).into_iter().map(f64::from).collect())
        .collect();

    let images = &model.objective().training;
    let loss = plain_loss(&parameters, images, shard.samples());
    assert!((sums[0] - loss).abs() < 1e-4 * loss, "{} {loss}", sums[0]);
    let mut compared = 0;
    for (tensor, variable) in model.variables().iter().enumerate() {
        let gradient = flat(gradients.get(variable).unwrap());
        // The steepest places, and some others.
        let mut places: Vec<usize> = (0..gradient.len()).collect();
        places.sort_by(|&a, &b| gradient[b].abs().total_cmp(&gradient[a].abs()));
        for &place in places.iter().take(3).chain(places.iter().step_by(1 + places.len() / 3)) {
            let moved = |by: f64| {
                let mut moved = parameters.clone();
                moved[tensor][place] += by;
                plain_loss(&moved, images, shard.samples())
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = f64::from(gradient[place]);
            assert!(
                (slope - found).abs() < 1e-3 * slope.abs() + 1e-4,
                "tensor {tensor} at {place}: {slope} {found}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 30);
}

#[test]
fn thirty_epochs_reach_97_percent() {
    let spec = spec();
    assert_eq!(spec.steps, Step::new(690));
    let mut model = Digits::new(&spec).unwrap();
    assert_eq!(
        (model.objective().training.len(), model.objective().held_out.len()),
        (1_437, 360)
    );
    let reference = train(&spec, &mut model).unwrap();
    let [(name, accuracy)] = reference.results.as_slice() else {
        panic!("{:?}", reference.results);
    };
    assert_eq!(name, "accuracy");
    assert!(*accuracy >= 0.97, "{accuracy}");
    let (first, last) = (&reference.reports[0], &reference.reports[689]);
    // Nothing is known at first: -ln(1/10) for each sample, and something more for random weights.
    let mean = first.sums[0] / first.samples as f64;
    assert!((1.5..4.0).contains(&mean), "{mean}");
    assert!(last.sums[0] < 0.1 * first.sums[0] && last.sums[1] <= last.samples as f64);
}

#[test]
fn a_run_continued_from_a_saved_state_ends_in_the_same_bits() {
    let spec = short(30);
    let undisturbed = train(&spec, &mut Digits::new(&spec).unwrap()).unwrap();
    let mut first = Digits::new(&spec).unwrap();
    advance(&spec, &mut first, Step::ZERO..Step::new(13)).unwrap();
    let mut second = Digits::new(&spec).unwrap();
    restore(&mut second, &save(&first).unwrap()).unwrap();
    advance(&spec, &mut second, Step::new(13)..spec.steps).unwrap();
    assert_eq!(state_hash(&second, spec.steps).unwrap(), undisturbed.hash);
}

/// Writes its tensors last to first.
struct Backwards(Digits);

impl Trainable for Backwards {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.0.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.0.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        out.samples(shard.samples().len() as u64)?;
        let (gradients, sums) = self.0.backward(shard)?;
        for (index, &sum) in sums.iter().enumerate().rev() {
            out.auxiliary(index, sum)?;
        }
        for tensor in (0..self.0.gradients().len()).rev() {
            self.0.write(&gradients, tensor, out)?;
        }
        Ok(())
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.0.apply(step, mean)
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.0.visit(visitor)
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.0.load(tensor, bytes)
    }
}

#[test]
fn the_order_in_which_tensors_are_written_does_not_matter() {
    let spec = short(10);
    let forwards = train(&spec, &mut Digits::new(&spec).unwrap()).unwrap();
    let backwards = train(&spec, &mut Backwards(Digits::new(&spec).unwrap())).unwrap();
    assert_eq!((forwards.hash, forwards.reports), (backwards.hash, backwards.reports));
}

#[test]
fn the_model_keeps_its_promises() {
    let spec = spec();
    let sampler = Sampler::new(&spec).unwrap();
    let found = probe(&mut Digits::new(&spec).unwrap(), &sampler).unwrap();
    assert_eq!(found, probe(&mut Digits::new(&spec).unwrap(), &sampler).unwrap());
    let other = JobSpec { seed: 43, ..spec };
    assert_ne!(
        found.state_zero,
        probe(&mut Digits::new(&other).unwrap(), &sampler).unwrap().state_zero
    );
}

#[test]
fn malformed_images_are_refused_with_their_line() {
    let refusal = |spec: &JobSpec, text: &str| format!("{:#}", Digits::with_images(spec, text, "d.csv").unwrap_err());
    let row = |pixel: &str, label: &str| format!("{}{pixel},{label}\n", "0,".repeat(63));
    let good = row("16", "9");
    assert_eq!(
        refusal(&spec(), &format!("{good}{}", row("17", "9"))),
        "d.csv, line 2: expected a pixel from 0 to 16 in field 64, found 17"
    );
    assert_eq!(
        refusal(&spec(), &format!("{good}{}", row("1", "10"))),
        "d.csv, line 2: expected a digit from 0 to 9 in field 65, found 10"
    );
    assert!(refusal(&spec(), "1,2,3\n").starts_with("d.csv, line 1: expected 65 numbers separated by commas, found 3"));
    assert_eq!(
        refusal(&spec(), &good.repeat(10)),
        "d.csv: expected 1437 images to train on, as the job says, found 8; set the job's `samples` to 8"
    );
    let missing = Digits::from_file(&spec(), Path::new("/no/such/digits.csv")).unwrap_err();
    assert!(missing.to_string().contains("/no/such/digits.csv"), "{missing}");
}
