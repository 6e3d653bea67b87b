//! The README's network: `cargo run --release --bin network` in a folder with MNIST's files in `mnist/`.

use std::path::Path;

use candle_nn::{Activation, linear, seq};
use sardana::data::formats::{Part, mnist::Mnist};
use sardana::data::{Array, DataError, Dataset, DatasetExt, Loader};
use sardana::device::DeviceChoice;
use sardana::{Job, fit::Fit, optim::Sgd, schedule::Schedule};
use sardana_candle::{CrossEntropy, build_on};

fn images(part: Part) -> Result<impl Dataset<Item = (Array<f32>, u32)>, DataError> {
    let images = Mnist::open(Path::new("mnist"), part)?;
    Ok(images.map("mean 0, deviation 1", |(image, label), _rng| {
        Ok((image.normalise(&[0.1307], &[0.3081])?, label))
    }))
}

fn main() -> anyhow::Result<()> {
    let device = DeviceChoice::of_arguments()?; // `--device auto|cpu|cuda|cuda:N`
    let job = Job::builder("mnist").train(&images(Part::Train)?, 128)?;
    let job = job.epochs(10).workers(4).device(device).build()?;
    let summary = sardana::train(&job, |spec| {
        let network = build_on(device, spec.seed, CrossEntropy::new(), |builder| {
            let layers = seq().add_fn(|images| images.flatten_from(1));
            let layers = layers.add(linear(784, 128, builder.pp("hidden").vb())?);
            Ok(layers.add(Activation::Relu).add(linear(128, 10, builder.pp("scores").vb())?))
        })?;
        let steps = spec.steps.get();
        let fit = Fit::builder(network)
            .data(Loader::new(images(Part::Train)?)?)
            .held_out(images(Part::Test)?)
            .optimizer(Sgd::nesterov(0.9), Schedule::cosine(0.1, 0.0, steps).warm_up(steps / 10))
            .decay(1e-4);
        Ok(fit.build(spec)?)
    })?;
    println!("{:?}, state {}", summary.results, summary.hash);
    Ok(())
}
