//! Finished sums that stay where the ranks of one host have them that have added them. A process of its own, since a process has few pages.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links::{LinkReceiver, LinkSender, SharedMemory};
use sardana_collectives::ring::{self, CompletedSum, RingConfig, RingInput, RingLinks};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::plan::{Owners, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Several chunks.
const VALUES: usize = 200_000;

const STEPS: u64 = 12;

/// Its sum one rank keeps to the end.
const KEPT: u64 = 3;

/// Of its sum nothing is borrowed.
const ALONE: u64 = 6;

/// Far beyond what a test needs: a ring that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

fn link() -> (LinkSender, LinkReceiver) {
    let (own, memory) = SharedMemory::create().unwrap();
    let other = SharedMemory::open(&memory).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    (
        LinkSender::shared_memory(own, here),
        LinkReceiver::shared_memory(other, there),
    )
}

fn layout() -> Arc<Layout> {
    let tensors = vec![
        TensorSpec::new("first", Dtype::F32, &[VALUES]),
        TensorSpec::new("second", Dtype::F64, &[40_001]),
    ];
    Arc::new(Layout::new(tensors, 2).unwrap())
}

fn visits(world: u32) -> Vec<Visit> {
    let visit = |rank| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::one(rank),
    };
    (0..world).map(visit).collect()
}

/// A value for which the order of addition shows.
fn value(step: u64, rank: u32, at: usize) -> f32 {
    let word = (step << 40 ^ u64::from(rank) << 32 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 40) as f32 * 2_f32.powi(rank as i32 * 7 - 20)
}

fn write(layout: &Layout, buffer: &mut GradientBuffer, step: u64, rank: u32) {
    let mut writer = buffer.writer(layout, WriteMode::Store);
    let first: Vec<f32> = (0..VALUES).map(|at| value(step, rank, at)).collect();
    let second: Vec<f64> = (0..40_001).map(|at| f64::from(value(step, rank, at)) / 3.0).collect();
    writer.write_f32(0, &first).unwrap();
    writer.write_f64(1, &second).unwrap();
    writer.auxiliary(1, 0.1 * f64::from(rank)).unwrap();
    writer.samples(2 + u64::from(rank)).unwrap();
    writer.finish().unwrap();
}

/// The law.
fn sequential(layout: &Layout, step: u64, world: u32) -> Vec<u8> {
    let mut sum = GradientBuffer::zeros(layout);
    write(layout, &mut sum, step, 0);
    let mut sum = sum.bytes().to_vec();
    for rank in 1..world {
        let mut next = GradientBuffer::zeros(layout);
        write(layout, &mut next, step, rank);
        sardana_collectives::reduce::add(layout, 0..layout.bytes(), &mut sum, next.bytes());
    }
    sum
}

/// One rank as its step driver has it: the newest sum stays until the next one is there, and its memory is used for the next but one.
struct Trainer {
    rank: u32,
    inbox: UnboundedSender<RingInput>,
    completed: UnboundedReceiver<CompletedSum>,
    rooms: Vec<GradientBuffer>,
    gradient: GradientBuffer,
    newest: Option<Sum>,
}

impl Trainer {
    fn step(&mut self, layout: &Layout, step: u64) {
        write(layout, &mut self.gradient, step, self.rank);
        let mut into = self.rooms.pop().unwrap_or_else(|| GradientBuffer::in_pages(layout));
        into.let_borrow(step != ALONE);
        let (step, shards) = (Step::new(step), ShardRange::one(self.rank));
        self.inbox.send(RingInput::Begin { step, into }).unwrap();
        let gradient = self.gradient.complete();
        self.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
    }

    /// The sum before the one that comes is returned, unless it is kept.
    async fn sum(&mut self) -> Option<Sum> {
        let sum = timeout(PATIENCE, self.completed.recv())
            .await
            .expect("the ring does not hang");
        let before = self.newest.replace(sum.expect("the ring goes on").sum)?;
        if self.rank == 0 && before.step() == Step::new(KEPT) {
            return Some(before);
        }
        self.rooms.push(before.into_buffer());
        None
    }
}

fn start(plan: &Plan, layout: &Arc<Layout>, world: u32) -> (Vec<Trainer>, tokio::task::JoinSet<()>) {
    let (mut rings, mut trainers) = (tokio::task::JoinSet::new(), Vec::new());
    for (rank, links) in (0..world).zip(RingLinks::of_all(plan, plan, link)) {
        let part = plan.part(Rank::new(rank)).unwrap();
        let config = RingConfig {
            generation: Generation::new(Incarnation::new(1), 1),
            rank: Rank::new(rank),
            world_size: world,
            order: Order::Exact,
            compression: Compression::None,
            shards: world,
            step: Step::ZERO,
            first: part.clone(),
            steady: part.clone(),
            layout: Arc::clone(layout),
            summation: None,
            probe: None,
        };
        let ((inbox, inputs), (done, completed)) = (unbounded_channel(), unbounded_channel());
        let summed = move |sum| done.send(sum).expect("the test waits for each");
        rings.spawn(async { ring::run(config, links, inputs, summed).await.expect("the ring ends well") });
        trainers.push(Trainer {
            rank,
            inbox,
            completed,
            rooms: vec![GradientBuffer::in_pages(layout)],
            gradient: GradientBuffer::in_pages(layout),
            newest: None,
        });
    }
    (trainers, rings)
}

/// Whatever is read of it in parts.
fn reads_as_one_that_lies_here(layout: &Layout, sum: &Sum, bytes: &[u8]) {
    let here = Sum::from_bytes(sum.step(), layout, bytes.to_vec()).unwrap();
    let [mean, expected] = [sum, &here].map(|sum| sum.mean(layout));
    let first = expected.f32(0).unwrap();
    assert!(mean.f32(0).unwrap() == first && mean.f64(1).unwrap() == expected.f64(1).unwrap());
    let mut in_runs = vec![f32::NAN; VALUES];
    let copy = |at, run: &mut [f32]| in_runs[at..at + run.len()].copy_from_slice(run);
    mean.runs_f32(0, copy).unwrap();
    assert!(in_runs == first);
    assert_eq!((mean.samples(), mean.auxiliary()), (expected.samples(), expected.auxiliary()));
}

/// Each rank's sums are right, and ranks that borrow do so from few places: owners use theirs again, but for what is kept.
async fn sums_are_borrowed(plan: &Plan, world: u32, borrowers: &[u32]) {
    let layout = layout();
    let (mut trainers, mut rings) = start(plan, &layout, world);
    let (mut kept, mut places) = (None, vec![BTreeSet::new(); world as usize]);
    for step in 0..STEPS {
        trainers.iter_mut().for_each(|trainer| trainer.step(&layout, step));
        let expected = sequential(&layout, step, world);
        for trainer in &mut trainers {
            kept = trainer.sum().await.or(kept);
            let sum = trainer.newest.as_ref().unwrap();
            let runs: Vec<&[u8]> = sum.runs(0..layout.bytes()).collect();
            assert!(runs.concat() == expected, "rank {} of {world}, step {step}", trainer.rank);
            let borrows = step != ALONE && borrowers.contains(&trainer.rank);
            assert_eq!(runs.len() > 1, borrows, "rank {} of {world}, step {step}", trainer.rank);
            if borrows {
                places[trainer.rank as usize].extend(runs.iter().map(|run| run.as_ptr().addr()));
            }
            reads_as_one_that_lies_here(&layout, sum, &expected);
        }
    }
    drop(trainers);
    while let Some(ended) = rings.join_next().await {
        ended.unwrap();
    }
    let kept = kept.expect("rank 0 keeps one");
    let expected = sequential(&layout, KEPT, world);
    assert!(
        kept.bytes() == expected,
        "it is what it was, though its owners have gone on and ended"
    );
    assert!(kept == kept.clone());
    assert_eq!(kept.into_buffer().length(), expected.len());
    for rank in borrowers {
        // Two in turn, and two more since one that was kept could not be written again.
        let most = 4 * layout.chunks() as usize;
        let found = places[*rank as usize].len();
        assert!(
            found <= most,
            "rank {rank} of {world}: {found} places, expected {most} at most"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_sums_stay_where_they_were_added() {
    // The last one that the sum comes to passes it to none.
    for world in [2, 3] {
        sums_are_borrowed(&Plan::new(Order::Exact, world, &visits(world)), world, &[0]).await;
    }
    for world in [2, 3] {
        let all: Vec<u32> = (0..world).collect();
        sums_are_borrowed(&Plan::direct(world, &visits(world), Owners::All), world, &all).await;
    }
    let others: Vec<u32> = (0..2).collect();
    sums_are_borrowed(&Plan::direct(3, &visits(3), Owners::Closer), 3, &others).await;
}
