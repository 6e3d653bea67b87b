//! A network with layers that draw, tell and may be unused.

use candle_core::Module;
use candle_nn::{Linear, linear};
use sardana::data::{Array, Sampler};
use sardana::job::Job;
use sardana::model::Dtype;
use sardana::model::{GradientBuffer, Layout as GradientLayout, Step, Sum, TensorSpec, WriteMode};

use super::*;
use crate::{BatchNorm2d, CrossEntropy, Dropout};

type Items = Vec<(Array<f32>, u32)>;

/// A dense layer, dropout, normalisation, and a layer that may not be used.
struct Three {
    dense: Linear,
    norm: BatchNorm2d,
    dropout: Dropout,
    extra: Linear,
    uses_extra: bool,
}

impl ModuleT for Three {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let values = self.norm.forward_t(&self.dense.forward(input)?, train)?;
        let values = self.dropout.forward_t(&values, train)?;
        if self.uses_extra {
            self.extra.forward(&values)
        } else {
            Ok(values)
        }
    }
}

fn net(uses_extra: bool, may_be_unused: bool) -> Net<Three, CrossEntropy, Array<f32>, u32> {
    let module = |builder: &Builder| {
        let part = if may_be_unused {
            builder.may_be_unused()
        } else {
            builder.clone()
        };
        Ok(Three {
            dense: linear(4, 3, builder.pp("dense").vb())?,
            norm: BatchNorm2d::new(3, 1e-5, 0.1, &builder.pp("norm"))?,
            dropout: Dropout::new(0.25, builder)?,
            extra: linear(3, 3, part.pp("extra").vb())?,
            uses_extra,
        })
    };
    build(7, CrossEntropy::new(), module).unwrap()
}

fn shard(step: u64, index: u32) -> Shard {
    let spec = Job::builder("net")
        .shards(4)
        .data(64, 32)
        .steps(9)
        .build()
        .unwrap()
        .spec()
        .clone();
    Sampler::new(&spec).unwrap().shard(Step::new(step), index)
}

fn items(shard: &Shard) -> Items {
    let item = |&sample: &u64| {
        (
            Array::row((0..4).map(|at| ((sample * 5 + at) as f32 * 0.7).sin()).collect()),
            (sample % 3) as u32,
        )
    };
    shard.samples().iter().map(item).collect()
}

fn layout(net: &impl Network) -> GradientLayout {
    let spec = |parameter: &Parameter| TensorSpec::new(&parameter.name, Dtype::F32, &parameter.shape);
    GradientLayout::new(net.parameters().iter().map(spec).collect(), 0).unwrap()
}

fn gradient(
    net: &Net<Three, CrossEntropy, Array<f32>, u32>,
    shard: &Shard,
) -> std::result::Result<(Sum, Vec<f64>), ModelError> {
    let layout = layout(net);
    let mut buffer = GradientBuffer::zeros(&layout);
    let (mut writer, items, mut sums) = (buffer.writer(&layout, WriteMode::Store), items(shard), vec![0.0; 2]);
    net.gradient(shard, &items, &mut writer, &mut sums)?;
    writer.samples(items.len() as u64)?;
    writer.finish()?;
    Ok((Sum::from_buffer(shard.step(), buffer), sums))
}

#[test]
fn a_gradient_depends_on_the_state_and_the_shard_alone() {
    let net = net(true, false);
    let first = gradient(&net, &shard(0, 1)).unwrap();
    // Whatever was computed in between.
    gradient(&net, &shard(0, 2)).unwrap();
    net.measure(&items(&shard(1, 0)), &mut [0.0; 2]).unwrap();
    assert_eq!(gradient(&net, &shard(0, 1)).unwrap(), first);
    assert_ne!(gradient(&net, &shard(1, 1)).unwrap().0.bytes(), first.0.bytes());
}

#[test]
fn what_layers_tell_is_summed_over_samples() {
    let net = net(true, false);
    let (sum, _) = gradient(&net, &shard(0, 0)).unwrap();
    let (layout, parameters) = (layout(&net), net.parameters());
    let at = parameters
        .iter()
        .position(|parameter| parameter.name == "norm.running_mean")
        .unwrap();
    assert!(matches!(parameters[at].role, Role::RunningMean { .. }));
    assert_eq!(parameters[at + 1].role, Role::RunningVariance { momentum: 0.1, mean: at });
    // The mean over the shard, which is all that this sum has: the running mean is 0.
    let (input, _) = Net::<Three, CrossEntropy, Array<f32>, u32>::tensors(&items(&shard(0, 0))).unwrap();
    let dense = net.module().dense.forward(&input).unwrap();
    let expected = dense.mean(0).unwrap().to_vec1::<f32>().unwrap();
    let found = sum.mean(&layout).f32(at).unwrap();
    assert!(
        found
            .iter()
            .zip(&expected)
            .all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{found:?} {expected:?}"
    );
}

#[test]
fn a_tensor_without_a_gradient_is_an_error_unless_it_may_be_unused() {
    let refusal = gradient(&net(false, false), &shard(0, 0)).unwrap_err().to_string();
    assert!(
        refusal.contains("`extra.weight`") && refusal.contains("softmax_last_dim"),
        "{refusal}"
    );
    let net = net(false, true);
    let (sum, _) = gradient(&net, &shard(0, 0)).unwrap();
    let at = net
        .parameters()
        .iter()
        .position(|parameter| parameter.name == "extra.weight")
        .unwrap();
    assert_eq!(sum.mean(&layout(&net)).f32(at).unwrap(), [0.0; 9]);
}

#[test]
fn values_are_changed_where_they_lie_and_seen_by_another_thread() {
    let mut net = net(true, false);
    let before = net.module().dense.weight().clone();
    net.change(0, &mut |values| values.fill(2.5)).unwrap();
    assert_eq!(before.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [2.5; 12]);
    let values = net.values();
    let seen = std::thread::spawn(move || {
        let mut seen = Vec::new();
        values.see(0, &mut |values| seen.extend_from_slice(values)).unwrap();
        seen
    });
    assert_eq!(seen.join().unwrap(), [2.5; 12]);
    assert_eq!(net.trained_values(), 12 + 3 + 6 + 12);
}

#[test]
fn a_network_that_asks_for_nothing_is_refused() {
    let empty = build::<_, _, Array<f32>, u32>(1, CrossEntropy::new(), |_| Ok(candle_nn::seq()));
    assert!(empty.unwrap_err().to_string().contains("found none"));
}

#[test]
fn samples_of_different_shapes_are_refused_with_both() {
    let all = [Array::row(vec![0.0_f32; 3]), Array::row(vec![0.0; 4])];
    let error = Array::stack(all.iter()).unwrap_err().to_string();
    assert!(error.contains("[3]") && error.contains("[4]"), "{error}");
    let images = [sardana::data::Image::new(1, 1, 2, vec![0, 255]).unwrap()];
    let stacked = sardana::data::Image::stack(images.iter()).unwrap();
    assert_eq!(stacked.dims(), [1, 1, 1, 2]);
    assert_eq!(stacked.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [0.0, 1.0]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_gpus_a_choice_of_them_is_refused_and_any_other_computes_the_same_on_processors() {
    let on = |choice| build_on(choice, 7, CrossEntropy::new(), |builder| linear(4, 3, builder.vb()));
    let refusal = on(DeviceChoice::Cuda(None))
        .map(|_: Net<Linear, CrossEntropy, Array<f32>, u32>| ())
        .unwrap_err()
        .to_string();
    assert!(
        refusal.starts_with("expected ") && refusal.contains("--device cpu"),
        "{refusal}"
    );
    for choice in [DeviceChoice::Auto, DeviceChoice::Cpu] {
        let net: Net<Linear, CrossEntropy, Array<f32>, u32> = on(choice).unwrap();
        assert!(net.candle_device().is_cpu());
        assert_eq!((net.device(), net.device_memory(100)), ("cpu".to_owned(), None));
        let net = net.sample_memory(1 << 40);
        assert_eq!(net.device_memory(100), None);
        let refusal = net.summed_where_they_lie().unwrap_err().to_string();
        assert!(refusal.contains("for sums by NCCL; found cpu"), "{refusal}");
    }
}
