//! Tests of the digits job: the gradient against finite differences, the accuracy, and the same bits along several ways.

use sardana::data::Sampler;
use sardana::device::DeviceChoice;
use sardana::model::{GradientBuffer, Layout, Sum, TensorSpec, Trainable, WriteMode, probe, restore, save, state_hash};
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
        let rows = weights.chunks(input.len()).zip(bias);
        rows.map(|(row, bias)| bias + row.iter().zip(input).map(|(w, x)| w * x).sum::<f64>())
            .collect()
    };
    let relu = |values: Vec<f64>| -> Vec<f64> { values.into_iter().map(|value| value.max(0.0)).collect() };
    let loss = |&sample: &u64| {
        let (pixels, label) = images.image(sample).unwrap();
        let pixels: Vec<f64> = pixels.iter().copied().map(f64::from).collect();
        let scores = layer(&relu(layer(&relu(layer(&pixels, 0)), 1)), 2);
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        total.ln() - scores[label as usize]
    };
    samples.iter().map(loss).sum()
}

/// The network's parameters, in the order of its gradients.
fn parameters(model: &Model) -> Vec<Vec<f64>> {
    let names: Vec<_> = model.gradients().into_iter().map(|spec| spec.name).collect();
    let mut parameters = vec![Vec::new(); names.len()];
    let visitor = &mut |spec: &TensorSpec, bytes: &[u8]| {
        if let Some(at) = names.iter().position(|name| *name == spec.name) {
            let (values, _) = bytes.as_chunks::<4>();
            parameters[at] = values.iter().map(|value| f64::from(f32::from_le_bytes(*value))).collect();
        }
    };
    model.visit(visitor).unwrap();
    parameters
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let spec = spec();
    let mut model = model(&spec).unwrap();
    // Away from the start.
    advance(&spec, &mut model, Step::ZERO..Step::new(5)).unwrap();
    let shard = Sampler::new(&spec).unwrap().shard(Step::new(5), 3);
    let layout = Layout::new(model.gradients(), model.auxiliary().len()).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    model.gradient(&shard, &mut writer).unwrap();
    writer.finish().unwrap();
    let sum = Sum::from_buffer(shard.step(), buffer);
    let (mean, n) = (sum.mean(&layout), shard.samples().len() as f64);

    let (parameters, images) = (parameters(&model), Digits::built_in().training);
    let loss = plain_loss(&parameters, &images, shard.samples());
    let found = mean.auxiliary()[0];
    assert!((found - loss).abs() < 1e-4 * loss, "{found} {loss}");
    let mut compared = 0;
    for tensor in 0..parameters.len() {
        let gradient = mean.f32(tensor).unwrap();
        // The steepest places, and some others.
        let mut places: Vec<usize> = (0..gradient.len()).collect();
        places.sort_by(|&a, &b| gradient[b].abs().total_cmp(&gradient[a].abs()));
        for &place in places.iter().take(3).chain(places.iter().step_by(1 + places.len() / 3)) {
            let moved = |by: f64| {
                let mut moved = parameters.clone();
                moved[tensor][place] += by;
                plain_loss(&moved, &images, shard.samples())
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = f64::from(gradient[place]) * n;
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
    let digits = Digits::built_in();
    assert_eq!((digits.training.len(), digits.held_out.len()), (1_437, 360));
    let reference = train(&spec, &mut digits.model(&spec, DeviceChoice::Cpu).unwrap()).unwrap();
    let [_, (name, accuracy)] = reference.results.as_slice() else {
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
    let undisturbed = train(&spec, &mut model(&spec).unwrap()).unwrap();
    let mut first = model(&spec).unwrap();
    advance(&spec, &mut first, Step::ZERO..Step::new(13)).unwrap();
    let mut second = model(&spec).unwrap();
    restore(&mut second, &save(&first).unwrap()).unwrap();
    advance(&spec, &mut second, Step::new(13)..spec.steps).unwrap();
    assert_eq!(state_hash(&second, spec.steps).unwrap(), undisturbed.hash);
}

#[test]
fn the_model_keeps_its_promises() {
    let spec = spec();
    let sampler = Sampler::new(&spec).unwrap();
    let found = probe(&mut model(&spec).unwrap(), &sampler).unwrap();
    assert_eq!(found, probe(&mut model(&spec).unwrap(), &sampler).unwrap());
    let other = JobSpec { seed: 43, ..spec };
    assert_ne!(
        found.state_zero,
        probe(&mut model(&other).unwrap(), &sampler).unwrap().state_zero
    );
}

#[test]
fn malformed_images_are_refused_with_their_line() {
    let refusal = |text: &str| format!("{:#}", Digits::parse(text, "d.csv").unwrap_err());
    let row = |pixel: &str, label: &str| format!("{}{pixel},{label}\n", "0,".repeat(63));
    let good = row("16", "9");
    assert_eq!(
        refusal(&format!("{good}{}", row("17", "9"))),
        "d.csv, line 2: expected a pixel from 0 to 16 in field 64, found 17"
    );
    assert_eq!(
        refusal(&format!("{good}{}", row("1", "10"))),
        "d.csv, line 2: expected a digit from 0 to 9 in field 65, found 10"
    );
    assert!(refusal("1,2,3\n").starts_with("d.csv, line 1: expected 65 numbers separated by commas, found 3"));
    let few = Digits::parse(&good.repeat(10), "d.csv").unwrap();
    let other = few.job().unwrap().build();
    assert!(other.is_err(), "a batch of 64 of 8 images");
    let error = few.model(&spec(), DeviceChoice::Cpu).unwrap_err().to_string();
    assert!(error.contains("expected 1437") && error.contains("found 8"), "{error}");
    let missing = format!("{:#}", Digits::read(Path::new("/no/such/digits.csv")).unwrap_err());
    assert!(missing.contains("/no/such/digits.csv"), "{missing}");
}

#[test]
fn other_images_are_another_job() {
    let job = |digits: &Digits| digits.job().unwrap().build().unwrap().spec().clone();
    let own = Digits::built_in();
    let mut other = own.clone();
    other.training.labels[700] ^= 1;
    let (own, other) = (job(&own), job(&other));
    assert_ne!(own.data.hash(), other.data.hash());
    let (part, _) = own.data.difference(&other.data).unwrap();
    assert_eq!(part.unwrap().name, "the labels");
}
