//! A whole ring in one process: gradients drawn by counter, trainers that hand them over, and a sequential sum to compare with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links;
use sardana_collectives::ring::{self, CompletedSum, RingConfig, RingError, RingInput, RingLinks, SummationConfig};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Owner, Owners, Part, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::far::{self, Far};

pub(crate) const GENERATION: Generation = Generation::new(Incarnation::new(3), 14);
pub(crate) const FIRST_STEP: Step = Step::new(40);

/// Far beyond what a test needs: a ring that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the ring does not hang")
}

/// Seven chunks of both dtypes, with gaps between tensors and one tensor without elements.
pub(crate) fn layout() -> Arc<Layout> {
    let tensors = vec![
        TensorSpec::new("embedding", Dtype::F32, &[500, 251]),
        TensorSpec::new("none", Dtype::F32, &[0, 3]),
        TensorSpec::new("scale", Dtype::F64, &[37_003]),
        TensorSpec::new("bias", Dtype::F32, &[]),
    ];
    Arc::new(Layout::new(tensors, 3).unwrap())
}

/// A gradient as plain numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gradient {
    pub(crate) tensors: Vec<Values>,
    pub(crate) auxiliary: Vec<f64>,
    pub(crate) samples: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// SplitMix64.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A number of either sign, and of a magnitude so different that the order of addition shows.
fn number(state: &mut u64) -> f64 {
    let word = random(state);
    let fraction = 1.0 + f64::from((word >> 32) as u32) / 4_294_967_296.0;
    let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
    sign * fraction * 2_f64.powi(i32::try_from(word >> 1 & 31).unwrap() - 16)
}

impl Gradient {
    /// The gradient of one shard of one step; shard 3 is empty and all negative zeros.
    pub(crate) fn draw(layout: &Layout, step: Step, shard: u32) -> Self {
        let mut state = step.get() << 32 | u64::from(shard);
        let mut next = || if shard == 3 { -0.0 } else { number(&mut state) };
        let tensors = layout.tensors().iter().map(|spec| {
            let elements = spec.elements().unwrap();
            match spec.dtype {
                Dtype::F32 => Values::F32((0..elements).map(|_| next() as f32).collect()),
                Dtype::F64 => Values::F64((0..elements).map(|_| next()).collect()),
                Dtype::U64 => panic!("a gradient has no counters"),
            }
        });
        Self {
            tensors: tensors.collect(),
            auxiliary: (0..layout.auxiliary()).map(|_| next()).collect(),
            samples: if shard == 3 { 0 } else { 2 + u64::from(shard % 5) },
        }
    }

    /// Adds `other`, element by element.
    pub(crate) fn plus(&mut self, other: &Self) {
        for pair in self.tensors.iter_mut().zip(&other.tensors) {
            match pair {
                (Values::F32(sum), Values::F32(shard)) => sum.iter_mut().zip(shard).for_each(|(sum, shard)| *sum += shard),
                (Values::F64(sum), Values::F64(shard)) => sum.iter_mut().zip(shard).for_each(|(sum, shard)| *sum += shard),
                (Values::F32(_), Values::F64(_)) | (Values::F64(_), Values::F32(_)) => panic!("one layout"),
            }
        }
        self.auxiliary
            .iter_mut()
            .zip(&other.auxiliary)
            .for_each(|(sum, shard)| *sum += shard);
        self.samples += other.samples;
    }

    /// Shard after shard, from 0: the law.
    pub(crate) fn sequential(layout: &Layout, step: Step, shards: u32) -> Self {
        let mut sum = Self::draw(layout, step, 0);
        (1..shards).for_each(|shard| sum.plus(&Self::draw(layout, step, shard)));
        sum
    }

    pub(crate) fn write(&self, layout: &Layout, buffer: &mut GradientBuffer, mode: WriteMode) {
        let mut writer = buffer.writer(layout, mode);
        // Backwards, since the order of tensors is free.
        for (index, values) in self.tensors.iter().enumerate().rev() {
            match values {
                Values::F32(values) => writer.write_f32(index, values).unwrap(),
                Values::F64(values) => writer.write_f64(index, values).unwrap(),
            }
        }
        for (index, value) in self.auxiliary.iter().enumerate() {
            writer.auxiliary(index, *value).unwrap();
        }
        writer.samples(self.samples).unwrap();
        writer.finish().unwrap();
    }

    pub(crate) fn buffer(&self, layout: &Layout) -> GradientBuffer {
        let mut buffer = GradientBuffer::in_pages(layout);
        self.write(layout, &mut buffer, WriteMode::Store);
        buffer
    }
}

pub(crate) fn visit(rank: u32, start: u32, end: u32) -> Visit {
    Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(start, end),
    }
}

/// Cuts 0..`shards` among `ranks` in this order; spares follow.
fn cut(ranks: &[u32], shards: u32, world: u32) -> Vec<Visit> {
    let parts = u32::try_from(ranks.len()).unwrap();
    let at = |index: u32| shards * index / parts;
    let busy = (0..).zip(ranks).map(|(index, rank)| visit(*rank, at(index), at(index + 1)));
    busy.chain(
        (parts.min(shards)..world)
            .filter(|rank| !ranks.contains(rank))
            .map(|rank| visit(rank, shards, shards)),
    )
    .collect()
}

/// Each rank once; what has no shard is a spare.
pub(crate) fn steady(world: u32, shards: u32) -> Vec<Visit> {
    cut(&(0..world.min(shards)).collect::<Vec<_>>(), shards, world)
}

/// As after deaths: ranks 0 and 1 come twice where there are shards enough.
pub(crate) fn retry(world: u32, shards: u32) -> Vec<Visit> {
    let mut ranks: Vec<u32> = (0..world.min(shards)).rev().collect();
    if ranks.len() >= 2 && shards as usize > ranks.len() {
        ranks.insert(1, 0);
    }
    if ranks.len() >= 4 && shards as usize > ranks.len() {
        ranks.push(1);
    }
    cut(&ranks, shards, world)
}

/// Makes a link for each hop of both plans.
pub(crate) fn in_process_links(first: &Plan, steady: &Plan) -> Vec<RingLinks> {
    RingLinks::of_all(first, steady, links::in_process)
}

pub(crate) fn config(rank: u32, first: &Plan, steady: &Plan, layout: &Arc<Layout>) -> RingConfig {
    let rank = Rank::new(rank);
    let part = |plan: &Plan| plan.part(rank).unwrap().clone();
    let runs = steady.parts().iter().flat_map(Part::shards);
    RingConfig {
        generation: GENERATION,
        rank,
        world_size: u32::try_from(first.parts().len()).unwrap(),
        order: part(first).order(),
        compression: Compression::None,
        shards: runs.map(ShardRange::end).max().unwrap(),
        step: FIRST_STEP,
        first: part(first),
        steady: part(steady),
        layout: Arc::clone(layout),
        summation: None,
        probe: None,
    }
}

/// Whether a rank's word closes the sums.
fn closes(plan: &Plan, rank: u32) -> bool {
    match plan.part(Rank::new(rank)).unwrap() {
        Part::Ordered(part) => part.sum_from.is_none(),
        Part::Ring(_) => rank as usize + 1 == plan.parts().len(),
        Part::Direct(part) => matches!(part.owners[0], Owner::Here(_)),
    }
}

/// One rank that runs, and the trainer's ends of it.
pub(crate) struct Dancer {
    pub(crate) inbox: UnboundedSender<RingInput>,
    pub(crate) completed: UnboundedReceiver<CompletedSum>,
    pub(crate) ring: JoinHandle<Result<(), RingError>>,
}

impl Dancer {
    /// Hands over the gradient of these shards.
    pub(crate) fn piece(&self, step: Step, shards: ShardRange, gradient: &mut GradientBuffer) {
        let gradient = gradient.complete();
        self.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
    }

    /// Begins a step, with room for its sum.
    pub(crate) fn begin(&self, step: Step, into: GradientBuffer) {
        self.inbox.send(RingInput::Begin { step, into }).unwrap();
    }
}

pub(crate) fn start(config: RingConfig, links: RingLinks) -> Dancer {
    let (inbox, inputs) = unbounded_channel();
    let (done, completed) = unbounded_channel();
    let ring = tokio::spawn(ring::run(config, links, inputs, move |sum| {
        // A test that stops listening has seen enough.
        let _ = done.send(sum);
    }));
    Dancer { inbox, completed, ring }
}

/// A ring under test.
pub(crate) struct Dance {
    pub(crate) layout: Arc<Layout>,
    /// As what f32 travel; as they are, but in the tests of it.
    pub(crate) compression: Compression,
    pub(crate) first: Plan,
    pub(crate) steady: Plan,
    /// Where the gradients of some shards lie; of none, but in the tests of it.
    pub(crate) far: Option<Far>,
    /// Each rank's other means of summing; of none, but in the tests of it.
    pub(crate) summations: Vec<SummationConfig>,
}

impl Dance {
    pub(crate) fn new(order: Order, world: u32, shards: u32) -> Self {
        Self {
            layout: layout(),
            compression: Compression::None,
            first: Plan::new(order, world, &retry(world, shards)),
            steady: Plan::new(order, world, &steady(world, shards)),
            far: None,
            summations: Vec::new(),
        }
    }

    /// Both plans are direct. The first one's closer may be another rank than the other's, and is visited more than once.
    pub(crate) fn direct(world: u32, shards: u32, owners: Owners) -> Self {
        Self {
            layout: layout(),
            compression: Compression::None,
            first: Plan::direct(world, &retry(world, shards), owners),
            steady: Plan::direct(world, &steady(world, shards), owners),
            far: None,
            summations: Vec::new(),
        }
    }

    pub(crate) fn plan(&self, step: Step) -> &Plan {
        if step == FIRST_STEP { &self.first } else { &self.steady }
    }

    /// The gradients that `rank` hands over: shard by shard in even steps, else runs of them where the order allows.
    pub(crate) fn pieces(&self, rank: u32, step: Step) -> Vec<(ShardRange, GradientBuffer)> {
        let runs = self.plan(step).part(Rank::new(rank)).unwrap().shards();
        let mut pieces = BTreeMap::new();
        for run in runs {
            let together = step.get() % 2 == 1 && (run.start() == 0 || self.steady.parts()[0].order() == Order::Fast);
            // In a prefix of three the last shard stays apart.
            let joined = if together { run.len().min(2) } else { 1 };
            let head = ShardRange::new(run.start(), run.start() + joined);
            let tail = (head.end()..run.end()).map(ShardRange::one);
            for shards in std::iter::once(head).chain(tail) {
                let mut buffer = GradientBuffer::in_pages(&self.layout);
                let far = self.far.as_ref().filter(|far| (far.keeps)(shards.start()));
                let memory = far.map(|far| far.memory(&self.layout));
                for shard in shards.iter() {
                    let mode = if shard == shards.start() {
                        WriteMode::Store
                    } else {
                        WriteMode::Add
                    };
                    let gradient = Gradient::draw(&self.layout, step, shard);
                    match &memory {
                        Some(memory) => memory.keep(&gradient, &self.layout, &mut buffer, mode),
                        None => gradient.write(&self.layout, &mut buffer, mode),
                    }
                }
                pieces.insert(shards.start(), (shards, buffer));
            }
        }
        // The last first: they may come in any order.
        pieces.into_values().rev().collect()
    }

    /// Runs `steps` steps over `links` and returns what every rank got, step by step. With `stop` the last one's closer is told
    /// to stop.
    pub(crate) async fn run(&self, links: Vec<RingLinks>, steps: u64, stop: bool) -> Vec<Vec<(Vec<u8>, Trailer)>> {
        let steps: Vec<Step> = (0..steps).map(|step| Step::new(FIRST_STEP.get() + step)).collect();
        let mut trainers = Vec::new();
        for (rank, links) in (0..).zip(links) {
            let config = RingConfig {
                compression: self.compression,
                summation: self.summations.get(rank as usize).cloned(),
                ..config(rank, &self.first, &self.steady, &self.layout)
            };
            let dancer = start(config, links);
            let pieces = steps.iter().map(|&step| self.pieces(rank, step)).collect();
            let last = steps.last().copied().filter(|&step| stop && closes(self.plan(step), rank));
            trainers.push(tokio::spawn(train(
                Arc::clone(&self.layout),
                dancer,
                steps.clone(),
                pieces,
                last,
            )));
        }
        let mut sums = Vec::new();
        for trainer in trainers {
            sums.push(patiently(trainer).await.unwrap());
        }
        (0..steps.len())
            .map(|step| sums.iter().map(|sums| sums[step].clone()).collect())
            .collect()
    }
}

type Pieces = Vec<(ShardRange, GradientBuffer)>;

/// What a trainer's thread does, without the training.
async fn train(
    layout: Arc<Layout>,
    mut dancer: Dancer,
    steps: Vec<Step>,
    pieces: Vec<Pieces>,
    stop_at: Option<Step>,
) -> Vec<(Vec<u8>, Trailer)> {
    let mut sums = Vec::new();
    let mut into = Some(GradientBuffer::in_pages(&layout));
    for (step, mut pieces) in steps.into_iter().zip(pieces) {
        let room = into.take().unwrap();
        let mut hand_over = || {
            pieces
                .iter_mut()
                .for_each(|(shards, gradient)| dancer.piece(step, *shards, gradient))
        };
        if stop_at == Some(step) {
            dancer.inbox.send(RingInput::CloseWith(Trailer::Stop)).unwrap();
        }
        if step.get() % 2 == 0 {
            hand_over();
            dancer.begin(step, room);
        } else {
            dancer.begin(step, room);
            hand_over();
        }
        let Some(done) = dancer.completed.recv().await else {
            panic!("the ring of {step} ended: {:?}", dancer.ring.await);
        };
        assert_eq!((done.generation, done.step, done.sum.step()), (GENERATION, step, step));
        for (shards, gradient) in &pieces {
            assert!(
                gradient.is_unread(),
                "shards {shards} of {step} are let go before the sum is delivered"
            );
        }
        if let Some(there) = done.sum.resident(&layout) {
            far::compare(there, &done.sum, &layout);
        }
        sums.push((done.sum.bytes().to_vec(), done.trailer));
        into = Some(done.sum.into_buffer());
    }
    if stop_at.is_none() && sums.last().is_some_and(|(_, trailer)| *trailer == Trailer::Continue) {
        drop(dancer.inbox);
    }
    dancer.ring.await.unwrap().expect("the ring ends well");
    sums
}
