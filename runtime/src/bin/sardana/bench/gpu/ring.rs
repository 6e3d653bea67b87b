//! How long a step takes of two workers whose gradients lie on the GPU: the ring that workers run, over links as fast as memory.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links;
use sardana_collectives::ring::{self, RingConfig, RingInput, RingLinks};
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::{MeanOnDevice, OnDeviceError, SumRoom, WriteOnDevice};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Part, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::times::quantile;
use super::measured::Measured;
use super::row::{Beside, Row};

/// So many workers, each with one shard.
const WORKERS: u32 = 2;

/// So many steps are measured, of which the median counts; one more goes before them.
const TIMES: usize = 3;

/// The part of copies of the same bytes, one after the other, that is aimed at.
const GOAL: f64 = 0.7;

/// Steps with gradients of so many elements, until each worker has the sum on the GPU. A copy up and one down of as many elements, from and to pinned memory, take
/// `copies` seconds together.
pub(super) fn summed(device: &Device, elements: usize, copies: f64) -> Measured<Row> {
    let shards = (0..WORKERS).map(|rank| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(rank, rank + 1),
    });
    let plan = Plan::new(Order::Exact, WORKERS, &shards.collect::<Vec<_>>());
    device.keep_gradients_within(u64::MAX - 1);
    let mut workers = Vec::new();
    for (rank, part) in (0..WORKERS).zip(plan.parts()) {
        workers.push(Worker::new(device, elements, rank, part)?);
    }
    device.synchronize()?;
    let copied = || {
        let traffic = device.traffic();
        traffic.up + traffic.down
    };
    step(&mut workers, &plan)?;
    let (before, mut seconds) = (copied(), Vec::with_capacity(TIMES));
    for _ in 0..TIMES {
        let began = Instant::now();
        step(&mut workers, &plan)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    let once_both_ways = (2 * elements * size_of::<f32>()) as f64;
    Ok(Row {
        what: "ring of two workers",
        bytes: (copied() - before) / TIMES as u64,
        seconds: quantile(&mut seconds, 0.5),
        beside: Some(Beside {
            what: "copies up and down",
            rate: once_both_ways / copies,
            goal: GOAL,
        }),
    })
}

/// Each on a thread of its own.
fn step(workers: &mut [Worker], plan: &Plan) -> Measured<()> {
    thread::scope(|scope| {
        let step = |(worker, links): (_, RingLinks)| scope.spawn(move || Worker::step(worker, links));
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(RingLinks::of_all(plan, plan, links::in_process))
            .map(step)
            .collect();
        let mut ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("a step does not panic"));
        ends.try_for_each(|end| end)
    })
}

struct Worker {
    device: Device,
    config: RingConfig,
    gradient: GradientBuffer,
    /// Where the next sum comes, if one has come before.
    into: Option<GradientBuffer>,
    /// Where it is for an update.
    room: SumRoom,
}

impl Worker {
    fn new(device: &Device, elements: usize, rank: u32, part: &Part) -> Measured<Self> {
        let spec = TensorSpec::new("gradient", Dtype::F32, &[elements]);
        let layout = Layout::new(vec![spec], 0).expect("a gradient of one tensor that a GPU holds has a layout");
        let mut gradient = GradientBuffer::zeros(&layout);
        written(&mut gradient, &layout, device, elements)?;
        let config = RingConfig {
            generation: Generation::new(Incarnation::new(1), 1),
            rank: Rank::new(rank),
            world_size: WORKERS,
            order: Order::Exact,
            compression: Compression::None,
            shards: WORKERS,
            step: Step::ZERO,
            first: part.clone(),
            steady: part.clone(),
            layout: Arc::new(layout),
            summation: None,
            probe: None,
        };
        Ok(Self {
            device: device.clone(),
            gradient,
            into: None,
            room: SumRoom::new(device)?,
            config,
        })
    }

    fn step(&mut self, links: RingLinks) -> Measured<()> {
        let inbox = self.told();
        let mut sum = None;
        let ring = ring::run(self.config.clone(), links, inbox, |done| sum = Some(done.sum));
        let runtime = runtime::Builder::new_current_thread().build();
        runtime
            .expect("a thread without timers or sockets runs tasks")
            .block_on(ring)?;
        let sum = sum.expect("a ring that has ended has told its sum");
        sum.mean(&self.config.layout).device_sum(&mut self.room)?;
        self.device.synchronize()?;
        self.into = Some(sum.into_buffer());
        Ok(())
    }

    /// What the ring is told of one step.
    fn told(&mut self) -> UnboundedReceiver<RingInput> {
        let (inputs, inbox) = unbounded_channel();
        let into = self.into.take();
        let into = into.unwrap_or_else(|| GradientBuffer::zeros(&self.config.layout));
        let (step, shard) = (Step::ZERO, self.config.rank.get());
        let all = [
            RingInput::Begin { step, into },
            RingInput::Piece {
                step,
                shards: ShardRange::new(shard, shard + 1),
                gradient: self.gradient.complete(),
            },
            RingInput::CloseWith(Trailer::Stop),
        ];
        for input in all {
            // The inbox is here.
            let _ = inputs.send(input);
        }
        inbox
    }
}

/// A gradient of zeros that stays on the GPU.
fn written(gradient: &mut GradientBuffer, layout: &Layout, device: &Device, elements: usize) -> Result<(), OnDeviceError> {
    let values = DeviceTensor::<f32>::zeros(device, Stream::Compute, elements)?;
    let mut writer = gradient.writer(layout, WriteMode::Store);
    writer.write_device(0, &values.view())?;
    writer.samples(1)?;
    writer.finish()?;
    Ok(())
}
