//! A fit of a small network in plain Rust: least squares by one linear unit with a running mean and variance of its input.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::*;
use crate::data::{DataFingerprint, DataHash, DatasetExt, SampleRandom, Sampler};
use crate::job::Job;
use crate::local;
use crate::model::{Probe, probe};
use crate::optim::{Adam, Lars, Sgd};
use crate::reference;

const INPUTS: usize = 3;

type Item = (Vec<f32>, f32);

/// y = 2 x₀ - x₁ + 3, with noise in x₂.
#[derive(Debug)]
struct Plane;

impl Dataset for Plane {
    type Item = Item;

    fn len(&self) -> u64 {
        200
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Item, DataError> {
        let at = index as f32;
        let x = [(at * 0.37).sin(), (at * 0.11).cos(), (at * 0.73).sin()];
        Ok((x.to_vec(), 2.0 * x[0] - x[1] + 3.0))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::new(vec![crate::data::DataPart {
            name: "plane".to_owned(),
            hash: DataHash::of(b"plane"),
        }])
        .unwrap())
    }
}

/// Weights, bias, running mean and variance of x₀.
#[derive(Clone, Debug)]
struct Linear(Arc<RwLock<Vec<Vec<f32>>>>);

impl Linear {
    fn new() -> Self {
        Self(Arc::new(RwLock::new(vec![
            vec![0.1; INPUTS],
            vec![0.0],
            vec![0.0],
            vec![1.0],
        ])))
    }

    fn errors<'a>(&self, items: &'a [Item]) -> Vec<(&'a Item, f32)> {
        let values = self.0.read().unwrap();
        let output = |x: &[f32]| x.iter().zip(&values[0]).map(|(x, w)| x * w).sum::<f32>() + values[1][0];
        items.iter().map(|item| (item, output(&item.0) - item.1)).collect()
    }
}

impl Network for Linear {
    type Item = Item;

    fn parameters(&self) -> Vec<Parameter> {
        let parameter = |name: &str, shape: &[usize], role| Parameter {
            name: name.to_owned(),
            shape: shape.to_vec(),
            role,
        };
        vec![
            parameter("weight", &[1, INPUTS], Role::Trained),
            parameter("bias", &[1], Role::Trained),
            parameter("running_mean", &[1], Role::RunningMean { momentum: 0.1 }),
            parameter("running_var", &[1], Role::RunningVariance { momentum: 0.1, mean: 2 }),
        ]
    }

    fn metrics(&self) -> Vec<String> {
        vec!["loss".to_owned()]
    }

    fn describe(&self) -> String {
        "squares".to_owned()
    }

    fn gradient(&self, _: &Shard, items: &[Item], out: &mut GradientWriter<'_>, sums: &mut [f64]) -> Result<(), ModelError> {
        let (mut weight, mut bias, mut means, mut squares) = ([0.0; INPUTS], 0.0, 0.0, 0.0);
        let running = self.0.read().unwrap()[2][0];
        for ((x, _), error) in self.errors(items) {
            weight.iter_mut().zip(x).for_each(|(weight, x)| *weight += 2.0 * error * x);
            bias += 2.0 * error;
            means += x[0] - running;
            squares += (x[0] - running).powi(2);
            sums[0] += f64::from(error * error);
        }
        out.write_f32(3, &[squares])?;
        out.write_f32(0, &weight)?;
        out.write_f32(1, &[bias])?;
        out.write_f32(2, &[means])?;
        Ok(())
    }

    fn measure(&self, items: &[Item], sums: &mut [f64]) -> Result<(), ModelError> {
        sums[0] += self
            .errors(items)
            .iter()
            .map(|(_, error)| f64::from(error * error))
            .sum::<f64>();
        Ok(())
    }

    fn values(&self) -> Box<dyn Values> {
        Box::new(self.clone())
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        change(&mut self.0.write().unwrap()[tensor]);
        Ok(())
    }
}

impl Values for Linear {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        see(&self.0.read().unwrap()[tensor]);
        Ok(())
    }
}

fn job() -> crate::job::JobBuilder {
    Job::builder("plane").seed(3).shards(4).train(&Plane, 16).unwrap().epochs(20)
}

fn builder(threads: usize) -> FitBuilder<Linear> {
    Fit::builder(Linear::new())
        .data(Loader::on_demand(Plane).ahead(1 << 16).threads(threads).unwrap())
        .held_out(Plane.select("the first", 0..7).unwrap())
        .measure_batch(3)
}

fn fit(spec: &JobSpec, threads: usize) -> Result<Fit<Linear>, ModelError> {
    let schedule = Schedule::constant(0.05).warm_up(10);
    let fit = builder(threads)
        .optimizer(Sgd::nesterov(0.9), schedule)
        .decay(1e-4)
        .clip_norm(2.0);
    Ok(fit.build(spec)?)
}

/// The tensors of the state, as numbers.
fn state(fit: &Fit<Linear>) -> BTreeMap<String, Vec<f32>> {
    let mut tensors = BTreeMap::new();
    fit.visit(&mut |spec, bytes| {
        let (values, _) = bytes.as_chunks::<4>();
        tensors.insert(
            spec.name.clone(),
            values.iter().map(|value| f32::from_le_bytes(*value)).collect(),
        );
    })
    .unwrap();
    tensors
}

#[test]
fn it_learns_and_keeps_the_promises_of_a_model() {
    let spec = job().build().unwrap().spec().clone();
    let mut fit = fit(&spec, 2).unwrap();
    let Probe { state_zero, after } = probe(&mut fit, &Sampler::new(&spec).unwrap()).unwrap();
    assert_ne!(state_zero, after);
    let reference = reference::train(&spec, &mut fit).unwrap();
    let loss = reference.results[0].1;
    assert!(loss < 1e-3, "loss {loss}");
    let state = state(&fit);
    let names: Vec<_> = state.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "bias",
            "bias.momentum",
            "fit.updates",
            "running_mean",
            "running_var",
            "weight",
            "weight.momentum"
        ]
    );
    assert_eq!(fit.updates(), spec.steps.get());
    // sin over many periods: mean 0, variance a half.
    assert!(
        state["running_mean"][0].abs() < 0.1 && (state["running_var"][0] - 0.5).abs() < 0.1,
        "{state:?}"
    );
}

#[test]
fn workers_and_threads_do_not_reach_the_bits() {
    let spec = job().build().unwrap().spec().clone();
    let expected = reference::train(&spec, &mut fit(&spec, 0).unwrap()).unwrap();
    for (workers, threads) in [(1, 1), (2, 3), (3, 0)] {
        let trained = local::train(&spec, workers, |spec| fit(spec, threads)).unwrap();
        assert_eq!(trained.hash, expected.hash, "{workers} workers, {threads} threads each");
        assert_eq!(trained.results, expected.results);
    }
}

/// One update by hand, in f64.
#[test]
fn an_update_is_clipped_decays_and_follows_the_schedule() {
    let spec = job().shards(1).build().unwrap().spec().clone();
    let mut fit = builder(0)
        .optimizer(Sgd::new(), Schedule::constant(0.5).warm_up(10))
        .decay(0.01)
        .clip_norm(0.25)
        .build(&spec)
        .unwrap();
    let (shard, before) = (Sampler::new(&spec).unwrap().shard(Step::ZERO, 0), state(&fit));
    let mut items = Vec::new();
    fit.training.of(&shard, &mut items).unwrap();
    let n = items.len() as f64;
    let (mut gradient, mut bias) = ([0.0_f64; INPUTS], 0.0);
    for ((x, _), error) in fit.network.errors(&items) {
        for (gradient, x) in gradient.iter_mut().zip(x) {
            *gradient += 2.0 * f64::from(error) * f64::from(*x) / n;
        }
        bias += 2.0 * f64::from(error) / n;
    }
    let norm = (gradient.iter().map(|g| g * g).sum::<f64>() + bias * bias).sqrt();
    assert!(norm > 0.25, "the gradient is long enough to be clipped: {norm}");
    let factor = 0.25 / norm;
    let steps = crate::data::Sampler::new(&spec).unwrap();
    assert_eq!(steps.samples(Step::ZERO), items.len() as u64);
    reference::advance(&spec, &mut fit, Step::ZERO..Step::new(1)).unwrap();
    let after = state(&fit);
    let rate = 0.5 / 10.0;
    for (at, g) in gradient.iter().enumerate() {
        let w = f64::from(before["weight"][at]);
        let expected = w - rate * (g * factor + 0.01 * w);
        assert!((f64::from(after["weight"][at]) - expected).abs() < 1e-6);
    }
    let expected = f64::from(before["bias"][0]) - rate * bias * factor;
    assert!((f64::from(after["bias"][0]) - expected).abs() < 1e-6, "a bias does not decay");
}

#[test]
fn a_gradient_that_is_not_a_number_shows() {
    let spec = job().build().unwrap().spec().clone();
    let mut fit = fit(&spec, 0).unwrap();
    fit.network.0.write().unwrap()[1][0] = f32::NAN;
    reference::advance(&spec, &mut fit, Step::ZERO..Step::new(1)).unwrap();
    assert!(state(&fit)["weight"].iter().all(|value| value.is_nan()));
}

#[test]
fn each_wrong_setting_is_named() {
    let spec = job().build().unwrap().spec().clone();
    let refused = |builder: FitBuilder<Linear>| builder.build(&spec).unwrap_err();
    let good = || builder(0).optimizer(Adam::new(), 0.1);
    assert!(good().build(&spec).is_ok());
    assert!(matches!(refused(Fit::builder(Linear::new())), FitError::NoData));
    assert!(matches!(refused(builder(0)), FitError::NoOptimizer));
    assert!(matches!(
        refused(builder(0).optimizer(Adam::new(), f64::NAN)),
        FitError::Schedule(_)
    ));
    let adam = Adam::new().epsilon(-1.0);
    assert!(matches!(refused(builder(0).optimizer(adam, 0.1)), FitError::Optimizer(_)));
    assert!(matches!(refused(good().clip_norm(0.0)), FitError::ClipNorm(_)));
    assert!(matches!(refused(good().decay(1.0)), FitError::Decay(_)));
    let other = JobSpec {
        samples: 100,
        ..spec.clone()
    };
    let error = good().build(&other).unwrap_err().to_string();
    assert!(error.contains("expected 100") && error.contains("found 200"), "{error}");
    let nothing = Plane.select("nothing", []).unwrap();
    assert!(matches!(refused(good().held_out(nothing)), FitError::NothingHeldOut));
    // The job was described without the transform.
    let other = Loader::on_demand(Plane.map("twice", |item: Item, _| Ok(item)));
    let error = refused(good().data(other)).to_string();
    assert!(
        error.contains("expected nothing more, found the transform `twice`"),
        "{error}"
    );
}

/// With one slot, and an update on devices that has two.
#[derive(Debug)]
struct Confused;

impl Optimizer for Confused {
    fn slots(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn describe(&self) -> String {
        "confused".to_owned()
    }

    fn check(&self) -> Result<(), crate::optim::OptimError> {
        Ok(())
    }

    fn device_update(&self) -> Option<crate::optim::DeviceUpdate> {
        Adam::new().device_update()
    }

    fn update(&self, _: &crate::optim::Update, _: &mut [f32], _: &[f32], _: &mut [&mut [f32]]) {}
}

#[test]
fn an_optimizer_has_as_many_slots_on_devices_as_on_the_host() {
    let spec = job().build().unwrap().spec().clone();
    let refused = builder(0).optimizer(Confused, 0.1).build(&spec).unwrap_err();
    assert!(
        matches!(refused, FitError::DeviceSlots { expected: 2, found: 1 }),
        "{refused}"
    );
}

#[test]
fn what_decides_the_bits_is_told() {
    let spec = job().build().unwrap().spec().clone();
    let told = |builder: FitBuilder<Linear>| builder.build(&spec).unwrap().describe();
    let plain = told(builder(0).optimizer(Lars::new(), 0.1));
    assert!(
        plain.contains("lars") && plain.contains("0.1") && plain.contains("squares"),
        "{plain}"
    );
    assert_ne!(told(builder(0).optimizer(Lars::new(), 0.2)), plain);
    assert_ne!(told(builder(0).optimizer(Lars::new(), 0.1).decay(0.1)), plain);
    assert_ne!(told(builder(0).optimizer(Lars::new(), 0.1).clip_norm(1.0)), plain);
    let all = told(builder(0).optimizer(Lars::new(), 0.1).decays(|_| true));
    assert_ne!(all, plain);
    let held_out = told(
        builder(0)
            .optimizer(Lars::new(), 0.1)
            .held_out(Plane.select("others", 7..14).unwrap()),
    );
    assert_ne!(held_out, plain, "results are told by all");
}

#[test]
fn a_tensor_of_another_network_is_not_taken() {
    let spec = job().build().unwrap().spec().clone();
    let mut fit = fit(&spec, 0).unwrap();
    let mut load = |name: &str, bytes: &[u8]| {
        let spec = TensorSpec::new(name, sardana_protocol::state::Dtype::F32, &[1]);
        fit.load(&spec, bytes).map_err(|error| error.to_string())
    };
    assert_eq!(load("bias", &1.5_f32.to_le_bytes()), Ok(()));
    assert!(load("bias", &[0; 3]).unwrap_err().contains("expected 4 bytes, found 3"));
    assert!(load("other", &[0; 4]).unwrap_err().contains("other"));
    assert_eq!(state(&fit)["bias"], [1.5]);
}
