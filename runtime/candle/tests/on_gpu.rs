//! A network of all layers on a GPU: the same bits again, nearly those of processors, and a fit that goes on from its saved state. On a machine without a GPU each
//! test says that it is skipped.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, Sequential, seq};
use sardana::data::{Array, DataError, DataFingerprint, Dataset, DatasetExt, Loader, SampleRandom, Sampler};
use sardana::device::DeviceChoice;
use sardana::fit::{Fit, Network};
use sardana::model::{Dtype, GradientBuffer, Layout, Sum, TensorSpec, Trainable, WriteMode, restore, save, state_hash};
use sardana::optim::{AdamW, Lars};
use sardana::{Job, JobSpec, Step, reference};
use sardana_candle::{
    AvgPool2d, BatchNorm2d, Builder, Conv2d, CrossEntropy, Dropout, GroupNorm, LayerNorm, Linear, MaxPool2d, Net, build_on,
};

const GPU: DeviceChoice = DeviceChoice::Cuda(None);

/// Images of 2 × 9 × 8 waves, of three classes.
#[derive(Debug)]
struct Waves;

impl Dataset for Waves {
    type Item = (Array<f32>, u32);

    fn len(&self) -> u64 {
        48
    }

    fn get(&self, index: u64, _: &SampleRandom) -> std::result::Result<Self::Item, DataError> {
        let values = (0..144).map(|at| ((index * 7 + at * 3) as f32 * 0.11).sin()).collect();
        Ok((Array::new(&[2, 9, 8], values)?, (index % 3) as u32))
    }

    fn fingerprint(&self) -> std::result::Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

/// All layers of this crate.
struct All {
    convolution: Conv2d,
    norm: BatchNorm2d,
    groups: GroupNorm,
    rest: Sequential,
    dropout: Dropout,
    scores: Linear,
}

impl All {
    fn new(builder: &Builder) -> Result<Self> {
        let convolution = Conv2d::new(2, 4, 3, &builder.pp("convolution"))?.stride(2).padding(1);
        // (4, 5, 4), (4, 3, 2), (4, 2, 1).
        let rest = seq()
            .add(MaxPool2d::new(3, 2).padding(1))
            .add(AvgPool2d::new(2, 1))
            .add_fn(|images| images.flatten_from(1))
            .add(LayerNorm::new(8, 1e-5, &builder.pp("layer"))?);
        Ok(Self {
            convolution: convolution.relu(),
            norm: BatchNorm2d::new(4, 1e-5, 0.1, &builder.pp("batch"))?,
            groups: GroupNorm::new(2, 4, 1e-5, &builder.pp("groups"))?,
            rest,
            dropout: Dropout::new(0.2, builder)?,
            scores: Linear::new(8, 3, &builder.pp("scores"))?,
        })
    }
}

impl ModuleT for All {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let maps = self.norm.forward_t(&self.convolution.forward(input)?, train)?;
        let values = self.rest.forward(&self.groups.forward(&maps)?)?;
        self.scores.forward(&self.dropout.forward_t(&values, train)?)
    }
}

type Network3 = Net<All, CrossEntropy, Array<f32>, u32>;

fn network(choice: DeviceChoice) -> Network3 {
    build_on(choice, 7, CrossEntropy::new().smoothing(0.1).top(2), All::new).unwrap()
}

fn is_skipped() -> bool {
    let absent = GPU.gpu().err();
    if let Some(why) = &absent {
        eprintln!("skipped: {why}");
    }
    absent.is_some()
}

fn spec() -> JobSpec {
    let job = Job::builder("waves").seed(5).shards(3).train(&Waves, 12).unwrap().epochs(3);
    job.build().unwrap().spec().clone()
}

/// The sum of a shard's gradients as it comes to the host, by tensor, and the sums of its metrics.
fn gradient(network: &Network3, step: u64) -> (Vec<Vec<f32>>, Vec<f64>) {
    let shard = Sampler::new(&spec()).unwrap().shard(Step::new(step), 1);
    let get = |&sample: &u64| Waves.get(sample, &SampleRandom::held_out(0, 0)).unwrap();
    let items: Vec<_> = shard.samples().iter().map(get).collect();
    let parameters = network.parameters();
    let of = parameters
        .iter()
        .map(|parameter| TensorSpec::new(&parameter.name, Dtype::F32, &parameter.shape));
    let layout = Layout::new(of.collect(), network.metrics().len()).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let (mut writer, mut sums) = (buffer.writer(&layout, WriteMode::Store), vec![0.0; network.metrics().len()]);
    network.gradient(&shard, &items, &mut writer, &mut sums).unwrap();
    if !writer.reports_later() {
        let reported = sums.iter().enumerate();
        reported.for_each(|(index, sum)| writer.auxiliary(index, *sum).unwrap());
    }
    writer.samples(items.len() as u64).unwrap();
    writer.finish().unwrap();
    buffer.lower().unwrap();
    let sum = Sum::from_buffer(shard.step(), buffer);
    let mean = sum.mean(&layout);
    (
        (0..parameters.len()).map(|tensor| mean.f32(tensor).unwrap()).collect(),
        mean.auxiliary(),
    )
}

fn bits(tensors: &[Vec<f32>]) -> Vec<u32> {
    tensors.iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn a_gradient_has_the_same_bits_again_and_nearly_those_of_processors() {
    if is_skipped() {
        return;
    }
    let (there, here) = (network(GPU), network(DeviceChoice::Cpu));
    assert!(there.candle_device().is_cuda() && there.gpu().is_some() && here.gpu().is_none());
    eprintln!("{}", Network::device(&there));
    let (first, sums) = gradient(&there, 0);
    gradient(&there, 1);
    let (again, sums_again) = gradient(&there, 0);
    assert_eq!((bits(&again), sums_again), (bits(&first), sums.clone()));
    let (elsewhere, _) = gradient(&network(GPU), 0);
    assert_eq!(bits(&elsewhere), bits(&first), "another network on the same GPU");
    let (expected, expected_sums) = gradient(&here, 0);
    for (parameter, (found, expected)) in there.parameters().iter().zip(first.iter().zip(&expected)) {
        let largest = expected.iter().fold(1e-3_f32, |largest, value| largest.max(value.abs()));
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-4 * largest,
                "{}: {found} {expected}",
                parameter.name
            );
        }
    }
    assert!(
        (sums[0] - expected_sums[0]).abs() < 1e-4 * expected_sums[0],
        "{sums:?} {expected_sums:?}"
    );
    assert_eq!(sums[1..], expected_sums[1..]);
}

#[test]
fn what_samples_take_on_their_way_counts_as_memory_that_it_must_have() {
    if is_skipped() {
        return;
    }
    let without = network(GPU).device_memory(1_000).unwrap();
    let with = network(GPU).sample_memory(4_096);
    let more = with.device_memory(1_000).unwrap();
    assert_eq!(more.needed - without.needed, 4_096_000);
    assert_eq!(with.device_memory(usize::MAX).unwrap().needed, u64::MAX);
}

#[cfg(feature = "nccl")]
#[test]
fn sums_by_nccl_are_offered_where_they_are_asked_for() {
    if is_skipped() {
        return;
    }
    assert!(network(GPU).summation().is_none());
    let asked = network(GPU).summed_where_they_lie().unwrap();
    assert_eq!(asked.summation().unwrap().name(), "NCCL");
}

#[test]
fn values_are_changed_where_they_lie_and_seen_by_another_thread() {
    if is_skipped() {
        return;
    }
    let mut network = network(GPU);
    let count = network.parameters()[0].shape.iter().product();
    network
        .change(0, &mut |values| {
            values.iter_mut().enumerate().for_each(|(at, value)| *value = at as f32)
        })
        .unwrap();
    let expected: Vec<f32> = (0..count).map(|at| at as f32).collect();
    let values = network.values();
    let seen = std::thread::spawn(move || {
        let mut seen = Vec::new();
        values.see(0, &mut |values| seen.extend_from_slice(values)).unwrap();
        seen
    });
    assert_eq!(seen.join().unwrap(), expected);
}

fn fit(choice: DeviceChoice, updates_there: bool) -> Fit<Network3> {
    let fit = Fit::builder(network(choice))
        .data(Loader::on_demand(Waves))
        .held_out(Waves.select("the first", 0..9).unwrap())
        .decay(0.01)
        .clip_norm(1.0);
    let fit = if updates_there {
        fit.optimizer(AdamW::new(), 0.01)
    } else {
        fit.optimizer(Lars::new(), 0.01)
    };
    fit.build(&spec()).unwrap()
}

#[test]
fn a_fit_ends_with_the_same_bits_again_whether_or_not_it_was_saved_and_nearly_where_it_ends_on_processors() {
    if is_skipped() {
        return;
    }
    let (spec, half) = (spec(), Step::new(5));
    for updates_there in [true, false] {
        let whole = reference::train(&spec, &mut fit(GPU, updates_there)).unwrap();
        let mut first = fit(GPU, updates_there);
        reference::advance(&spec, &mut first, Step::ZERO..half).unwrap();
        let saved = save(&first).unwrap();
        drop(first);
        let mut second = fit(GPU, updates_there);
        restore(&mut second, &saved).unwrap();
        assert_eq!(save(&second).unwrap(), saved);
        reference::advance(&spec, &mut second, half..spec.steps).unwrap();
        assert_eq!(state_hash(&second, spec.steps).unwrap(), whole.hash);
        assert_eq!(second.evaluate().unwrap(), whole.results);
        let here = reference::train(&spec, &mut fit(DeviceChoice::Cpu, updates_there)).unwrap();
        let (found, expected) = (whole.results[0].1, here.results[0].1);
        assert!((found - expected).abs() < 1e-2 * expected, "{found} {expected}");
    }
}
