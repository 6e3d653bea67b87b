//! Three ranks, step after step, by each plan and over each kind of link that allocates nothing itself.

use std::cell::RefCell;
use std::sync::Arc;

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::links::{self, LinkReceiver, LinkSender, Meter};
use sardana_collectives::ring::{self, CompletedSum, PlanLinks, RingConfig, RingInput, RingLinks};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::plan::{Hosts, Owners, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Counting;
use crate::loopback::loopback;

/// Ranks, and the shards of each.
const RANKS: u32 = 3;
const EACH: u32 = 2;

/// Steps of each.
const STEPS: usize = 60;

/// Steps before the measured ones: memory is made in them.
const FIRST: usize = 10;

/// Blocks of channels that are made later, since their ends run ahead of each other as they did not before. One in each step of one rank would be
/// more.
const LATE: u64 = 20;

/// Values of a gradient that a star sums, and of one that goes from rank to rank in several chunks.
const SMALL: usize = 10_000;
const LARGE: usize = 200_000;

/// Makes a link.
type Make<'a> = &'a dyn Fn() -> (LinkSender, LinkReceiver);

/// What is summed, and how.
struct Summing {
    plan: Plan,
    order: Order,
    compression: Compression,
    layout: Arc<Layout>,
}

impl Summing {
    /// By the fastest plan for gradients of so many values.
    fn fastest(order: Order, values: usize) -> Self {
        let tensors = vec![TensorSpec::new("all", Dtype::F32, &[values])];
        let layout = Arc::new(Layout::new(tensors, 1).unwrap());
        Self {
            plan: Plan::fastest(order, RANKS, &visits(), layout.bytes() as u64, Hosts::Mixed),
            order,
            compression: Compression::None,
            layout,
        }
    }

    /// Of what is sent in all steps, the finished sum goes to each rank but one as it is, whichever plan adds it in order.
    fn bytes_of_sums(&self) -> u64 {
        (STEPS * self.layout.bytes()) as u64 * u64::from(RANKS - 1)
    }

    fn config(&self, rank: Rank) -> RingConfig {
        let part = self.plan.part(rank).unwrap();
        RingConfig {
            generation: Generation::new(Incarnation::new(1), 1),
            rank,
            world_size: RANKS,
            order: self.order,
            compression: self.compression,
            shards: RANKS * EACH,
            step: Step::ZERO,
            first: part.clone(),
            steady: part.clone(),
            layout: Arc::clone(&self.layout),
            summation: None,
            probe: None,
        }
    }

    /// The links of all ranks, as `make` makes them.
    fn links(&self, make: Make<'_>) -> Vec<RingLinks> {
        let mut all: Vec<RingLinks> = (0..RANKS).map(|_| RingLinks::default()).collect();
        let slots: [fn(&mut RingLinks) -> &mut PlanLinks; 2] = [|links| &mut links.first, |links| &mut links.steady];
        for slot in slots {
            for hop in self.plan.hops() {
                let (sender, receiver) = make();
                slot(&mut all[hop.from.index()]).outgoing.insert(hop.id, sender);
                slot(&mut all[hop.to.index()]).incoming.insert(hop.id, receiver);
            }
        }
        all
    }

    /// How many blocks had been allocated when each step began, the first ones left out; and how many bytes were sent that were not copied.
    async fn allocated(&self, counting: &Counting, make: Make<'_>) -> (Vec<u64>, u64) {
        let mut rings = tokio::task::JoinSet::new();
        let mut trainers = Vec::new();
        let links = self.links(make);
        let senders = links.iter().flat_map(|links| [&links.first, &links.steady]);
        let meters: Vec<_> = senders
            .flat_map(|links| links.outgoing.values().map(|link| link.meter().clone()))
            .collect();
        for (visit, links) in visits().into_iter().zip(links) {
            let (inbox, inputs) = unbounded_channel();
            let (done, completed) = unbounded_channel();
            let completing = move |sum| {
                done.send(sum).expect("the test waits for each");
            };
            rings.spawn(ring::run(self.config(visit.rank), links, inputs, completing));
            trainers.push(Trainer {
                inbox,
                completed,
                room: Some(GradientBuffer::in_pages(&self.layout)),
                gradients: visit
                    .shards
                    .iter()
                    .map(|shard| (shard, GradientBuffer::in_pages(&self.layout)))
                    .collect(),
            });
        }
        let mut allocated = Vec::with_capacity(STEPS);
        for step in (0..).map(Step::new).take(STEPS) {
            allocated.push(counting.blocks());
            trainers.iter_mut().for_each(|trainer| trainer.begin(step));
            for trainer in &mut trainers {
                trainer.finish().await;
            }
        }
        drop(trainers);
        while let Some(ended) = rings.join_next().await {
            ended.unwrap().expect("the ring ends well");
        }
        let in_place = meters.iter().map(Meter::bytes_in_place).sum();
        (allocated.split_off(FIRST), in_place)
    }
}

/// As if all ranks were equally fast.
fn visits() -> Vec<Visit> {
    let visit = |rank| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(rank * EACH, (rank + 1) * EACH),
    };
    (0..RANKS).map(visit).collect()
}

/// What a trainer's thread hands over, without the training.
struct Trainer {
    inbox: UnboundedSender<RingInput>,
    completed: UnboundedReceiver<CompletedSum>,
    room: Option<GradientBuffer>,
    gradients: Vec<(u32, GradientBuffer)>,
}

impl Trainer {
    fn begin(&mut self, step: Step) {
        let into = self.room.take().unwrap();
        self.inbox.send(RingInput::Begin { step, into }).unwrap();
        for (shard, gradient) in &mut self.gradients {
            let (shards, gradient) = (ShardRange::one(*shard), gradient.complete());
            self.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
        }
    }

    async fn finish(&mut self) {
        let done = self.completed.recv().await.expect("the ring goes on");
        self.room = Some(done.sum.into_buffer());
    }
}

#[cfg(target_os = "linux")]
fn shared_memory() -> (LinkSender, LinkReceiver) {
    links::shared_memory_in_process().unwrap()
}

#[test]
fn a_step_of_each_plan_allocates_nothing() {
    let counting = Counting::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let chain = Summing::fastest(Order::Exact, LARGE);
    let star = Summing::fastest(Order::Exact, SMALL);
    assert_eq!(star.plan, Plan::direct(RANKS, &visits(), Owners::Closer));
    assert_ne!(chain.plan, star.plan);
    let direct = Summing {
        plan: Plan::direct(RANKS, &visits(), Owners::All),
        ..Summing::fastest(Order::Exact, LARGE)
    };
    let fast = Summing::fastest(Order::Fast, LARGE);
    let halves = Summing {
        compression: Compression::Bf16,
        ..Summing::fastest(Order::Fast, LARGE)
    };
    let mut kinds: Vec<(&str, Make<'_>)> = vec![("in process", &links::in_process)];
    #[cfg(target_os = "linux")]
    kinds.push(("shared memory", &shared_memory));
    for (plan, summing) in [
        ("chain", chain),
        ("star", star),
        ("direct", direct),
        ("fast", fast),
        ("halves", halves),
    ] {
        for &(kind, make) in &kinds {
            let (allocated, in_place) = runtime.block_on(summing.allocated(&counting, make));
            let found = allocated[allocated.len() - 1] - allocated[0];
            println!("{plan} {kind}: {found} blocks");
            assert!(found <= LATE, "{plan} {kind}: {found} blocks in {} steps", allocated.len());
            let sums = summing.bytes_of_sums();
            match (kind, summing.order) {
                ("shared memory", Order::Exact) => assert!(in_place >= sums, "{plan} {kind}: {in_place} bytes in place"),
                (_, Order::Exact | Order::Fast) => assert_eq!(in_place, 0, "{plan} {kind}"),
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn sums_go_over_quic_from_where_they_lie() {
    let counting = Counting::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let summing = Summing::fastest(Order::Exact, LARGE);
        let (loopback, mut links) = (loopback().await, Vec::new());
        for _ in 0..2 * summing.plan.hops().len() {
            links.push(loopback.link().await);
        }
        let links = RefCell::new(links);
        let (_, in_place) = summing.allocated(&counting, &|| links.borrow_mut().pop().unwrap()).await;
        // Here a sum's memory is used again at once, perhaps before it is acknowledged: then it moves, and a process has few pages.
        let least = summing.bytes_of_sums() / 2;
        assert!(in_place > least, "{in_place} of {least} bytes");
    });
}
