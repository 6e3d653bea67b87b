//! Ranks of one process that each have a GPU, and rings of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links;
use sardana_collectives::ring::{
    self, CompletedSum, RingConfig, RingError, RingInput, RingLinks, SummationConfig, SummationNote,
};
use sardana_collectives::summation::{
    Communicator, DEVICE_BYTES, Gathering, MEETING_BYTES, Summand, Summation, SummationError,
};
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::WriteOnDevice;
use sardana_cuda::summation::SumsByNccl;
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::plan::{Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) const FIRST: Step = Step::new(7);

pub(super) fn layout(dtype: Dtype) -> Arc<Layout> {
    let tensors = vec![
        TensorSpec::new("none", dtype, &[0]),
        TensorSpec::new("a", dtype, &[301]),
        TensorSpec::new("b", dtype, &[5, 205]),
    ];
    Arc::new(Layout::new(tensors, 2).unwrap())
}

/// What a shard's gradient has at each place: whole numbers, whose sums have no roundings.
pub(super) fn value(step: Step, shard: u32, at: usize) -> f32 {
    (at % 11) as f32 - 3.0 * shard as f32 + step.get() as f32
}

/// Writes a shard's gradient on a device, or on the host.
pub(super) fn write(
    layout: &Layout,
    (step, shard): (Step, u32),
    device: Option<&Device>,
    buffer: &mut GradientBuffer,
    mode: WriteMode,
) {
    let mut writer = buffer.writer(layout, mode);
    for (tensor, spec) in layout.tensors().iter().enumerate() {
        let values = (0..spec.elements().unwrap()).map(|at| value(step, shard, at));
        match (spec.dtype, device) {
            (Dtype::F32, Some(device)) => {
                let values = DeviceTensor::from_slice(device, Stream::Compute, &values.collect::<Vec<_>>()).unwrap();
                writer.write_device(tensor, &values.view()).unwrap();
            }
            (Dtype::F64, Some(device)) => {
                let values: Vec<f64> = values.map(f64::from).collect();
                let values = DeviceTensor::from_slice(device, Stream::Compute, &values).unwrap();
                writer.write_device(tensor, &values.view()).unwrap();
            }
            (Dtype::F32, None) => writer.write_f32(tensor, &values.collect::<Vec<_>>()).unwrap(),
            (Dtype::F64, None) => writer.write_f64(tensor, &values.map(f64::from).collect::<Vec<_>>()).unwrap(),
            (Dtype::U64, _) => panic!("a gradient has no counters"),
        }
    }
    writer.auxiliary(0, f64::from(shard)).unwrap();
    writer.auxiliary(1, 0.5).unwrap();
    writer.samples(10 + u64::from(shard)).unwrap();
    writer.finish().unwrap();
}

/// The sum of these shards, by a plain loop on the host.
pub(super) fn expected(layout: &Layout, step: Step, shards: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut sum = GradientBuffer::zeros(layout);
    for shard in shards {
        write(layout, (step, shard), None, &mut sum, WriteMode::Add);
    }
    sum.bytes().to_vec()
}

/// NCCL, that tells when a sum was asked for.
#[derive(Debug)]
pub(super) struct Watched {
    nccl: Arc<SumsByNccl>,
    pub(super) asked: watch::Sender<u64>,
    /// It dies before it asks for a sum.
    pub(super) dies: AtomicBool,
}

#[derive(Debug)]
struct WatchedCommunicator {
    own: Box<dyn Communicator>,
    asked: watch::Sender<u64>,
    dies: bool,
    /// What it would have asked for.
    kept: Option<Summand>,
}

impl Summation for Watched {
    fn name(&self) -> &'static str {
        self.nccl.name()
    }

    fn device(&self, layout: &Layout) -> Result<[u8; DEVICE_BYTES], SummationError> {
        self.nccl.device(layout)
    }

    fn meet(&self) -> Result<[u8; MEETING_BYTES], SummationError> {
        self.nccl.meet()
    }

    fn begin(&self, gathering: Gathering) -> Box<dyn Communicator> {
        Box::new(WatchedCommunicator {
            own: self.nccl.begin(gathering),
            asked: self.asked.clone(),
            dies: self.dies.load(Ordering::Relaxed),
            kept: None,
        })
    }
}

impl Communicator for WatchedCommunicator {
    fn sum(&mut self, summand: Summand) {
        if self.dies {
            self.kept = Some(summand);
            return;
        }
        self.own.sum(summand);
        self.asked.send_modify(|asked| *asked += 1);
    }
}

/// A worker's GPU, and what it has in all generations.
pub(super) struct Worker {
    pub(super) device: Device,
    pub(super) means: Arc<Watched>,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    pub(super) fn on(ordinal: usize) -> Self {
        let device = Device::open(ordinal).unwrap();
        let nccl = SumsByNccl::new(&device);
        Self {
            device,
            means: Arc::new(Watched {
                nccl,
                asked: watch::Sender::default(),
                dies: AtomicBool::new(false),
            }),
            notes: Arc::default(),
        }
    }

    fn config(&self) -> SummationConfig {
        let notes = Arc::clone(&self.notes);
        let note = move |note: &SummationNote| notes.lock().unwrap().push(note.to_string());
        SummationConfig::new(Arc::clone(&self.means) as _, note)
    }

    pub(super) fn said(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }
}

/// A rank's ring in one generation.
pub(super) struct Seat {
    pub(super) inbox: UnboundedSender<RingInput>,
    completed: UnboundedReceiver<CompletedSum>,
    pub(super) ring: JoinHandle<Result<(), RingError>>,
}

impl Seat {
    pub(super) fn piece(&self, step: Step, shards: ShardRange, gradient: &mut GradientBuffer) {
        let gradient = gradient.complete();
        self.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
    }

    pub(super) async fn sum(&mut self) -> Sum {
        self.completed.recv().await.expect("the ring goes on").sum
    }
}

/// Begins a generation, of which each rank has so many shards.
pub(super) fn generation(workers: &[&Worker], shards: &[u32], layout: &Arc<Layout>) -> Vec<Seat> {
    let mut end = 0;
    let visits: Vec<Visit> = (0..)
        .zip(shards)
        .map(|(rank, count)| {
            end += count;
            let shards = ShardRange::new(end - count, end);
            let rank = Rank::new(rank);
            Visit { rank, shards }
        })
        .collect();
    let plan = Plan::new(Order::Fast, shards.len() as u32, &visits);
    let links = RingLinks::of_all(&plan, &plan, links::in_process);
    let seat = |((worker, visit), links): ((&&Worker, &Visit), RingLinks)| {
        let part = plan.part(visit.rank).unwrap().clone();
        let config = RingConfig {
            generation: Generation::new(Incarnation::new(1), 1),
            rank: visit.rank,
            world_size: visits.len() as u32,
            order: Order::Fast,
            compression: Compression::None,
            summation: Some(worker.config()),
            shards: end,
            step: FIRST,
            first: part.clone(),
            steady: part,
            layout: Arc::clone(layout),
            probe: None,
        };
        let (inbox, inputs) = unbounded_channel();
        let (done, completed) = unbounded_channel();
        let into = GradientBuffer::zeros(layout);
        inbox.send(RingInput::Begin { step: FIRST, into }).unwrap();
        let ring = tokio::spawn(ring::run(config, links, inputs, move |sum| {
            // A test that stops listening has seen enough.
            let _ = done.send(sum);
        }));
        Seat { inbox, completed, ring }
    };
    workers.iter().zip(&visits).zip(links).map(seat).collect()
}

pub(super) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// Ends a generation in good order.
pub(super) async fn end(seats: Vec<Seat>) {
    for Seat { inbox, ring, .. } in seats {
        drop(inbox);
        ring.await.unwrap().unwrap();
    }
}
