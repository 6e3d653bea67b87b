//! Finished sums that stay where the ranks of one host have them that have added them. A process of its own, since a process has few pages.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links::shared_memory_in_process;
use sardana_collectives::ring::{self, CompletedSum, RingConfig, RingInput, RingLinks};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::plan::{Owners, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

/// Several chunks.
const VALUES: usize = 200_000;

const STEPS: u64 = 12;

/// Its sum one rank keeps to the end.
const KEPT: u64 = 3;

/// Of its sum nothing is borrowed.
const ALONE: u64 = 6;

/// Generations of rings that break, and whole steps of each. More than a link remembers pages.
const GENERATIONS: u64 = 9;
const EACH: u64 = 10;

/// Far beyond what a test needs: a ring that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

fn layout() -> Arc<Layout> {
    let tensors = vec![
        TensorSpec::new("first", Dtype::F32, &[VALUES]),
        TensorSpec::new("second", Dtype::F64, &[40_001]),
        TensorSpec::new("third", Dtype::F32, &[3]),
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
    writer.write_f32(2, &first[..3]).unwrap();
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

/// The right bytes of each step's sum.
fn all_sums(layout: &Layout, steps: u64, world: u32) -> Vec<Vec<u8>> {
    (0..steps).map(|step| sequential(layout, step, world)).collect()
}

/// One rank as its step driver has it: the newest sum stays until the next one is there, or longer, and its memory is used again after that.
struct Trainer {
    rank: u32,
    layout: Arc<Layout>,
    rooms: Vec<GradientBuffer>,
    gradient: GradientBuffer,
    /// The oldest first.
    held: VecDeque<Sum>,
    ring: Option<Ends>,
}

/// Of the ring of one generation.
struct Ends {
    inbox: UnboundedSender<RingInput>,
    completed: UnboundedReceiver<CompletedSum>,
}

impl Trainer {
    fn all(layout: &Arc<Layout>, world: u32) -> Vec<Self> {
        let trainer = |rank| Self {
            rank,
            layout: Arc::clone(layout),
            rooms: Vec::new(),
            gradient: GradientBuffer::in_pages(layout),
            held: VecDeque::new(),
            ring: None,
        };
        (0..world).map(trainer).collect()
    }

    fn step(&mut self, step: u64) {
        write(&self.layout, &mut self.gradient, step, self.rank);
        let room = self.rooms.pop();
        let mut into = room.unwrap_or_else(|| GradientBuffer::in_pages(&self.layout));
        into.let_borrow(step != ALONE);
        let (step, shards) = (Step::new(step), ShardRange::one(self.rank));
        let inbox = &self.ring.as_ref().unwrap().inbox;
        inbox.send(RingInput::Begin { step, into }).unwrap();
        let gradient = self.gradient.complete();
        inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
    }

    async fn sum(&mut self) -> &Sum {
        let coming = self.ring.as_mut().unwrap().completed.recv();
        let sum = timeout(PATIENCE, coming).await.expect("the ring does not hang");
        self.held.push_back(sum.expect("the ring goes on").sum);
        self.held.back().unwrap()
    }

    /// Returns all but so many of the newest, which are what they were as long as they are held.
    fn give_back(&mut self, but: usize, sums: &[Vec<u8>]) {
        while self.held.len() > but {
            let sum = self.held.pop_front().unwrap();
            let step = usize::try_from(sum.step().get()).unwrap();
            let runs: Vec<&[u8]> = sum.runs(0..self.layout.bytes()).collect();
            assert!(runs.concat() == sums[step], "rank {}, step {step}", self.rank);
            self.rooms.push(sum.into_buffer());
        }
    }
}

/// Makes a generation's links and rings.
fn link_all(plan: &Plan, trainers: &mut [Trainer], step: u64) -> JoinSet<()> {
    let mut rings = JoinSet::new();
    let world = u32::try_from(trainers.len()).unwrap();
    for (trainer, links) in trainers
        .iter_mut()
        .zip(RingLinks::of_all(plan, plan, || shared_memory_in_process().unwrap()))
    {
        let part = plan.part(Rank::new(trainer.rank)).unwrap();
        let config = RingConfig {
            generation: Generation::new(Incarnation::new(1), step + 1),
            rank: Rank::new(trainer.rank),
            world_size: world,
            order: Order::Exact,
            compression: Compression::None,
            shards: world,
            step: Step::new(step),
            first: part.clone(),
            steady: part.clone(),
            layout: Arc::clone(&trainer.layout),
            summation: None,
            probe: None,
        };
        let ((inbox, inputs), (done, completed)) = (unbounded_channel(), unbounded_channel());
        // The receiver of a ring that is aborted may be gone.
        let summed = move |sum| drop(done.send(sum));
        rings.spawn(async { ring::run(config, links, inputs, summed).await.expect("the ring ends well") });
        trainer.ring = Some(Ends { inbox, completed });
    }
    rings
}

async fn ended(trainers: &mut [Trainer], mut rings: JoinSet<()>) {
    trainers.iter_mut().for_each(|trainer| trainer.ring = None);
    while let Some(ended) = rings.join_next().await {
        ended.unwrap();
    }
}

/// Whatever is read of it in parts.
fn reads_as_one_that_lies_here(layout: &Layout, sum: &Sum, bytes: &[u8]) {
    let here = Sum::from_bytes(sum.step(), layout, bytes.to_vec()).unwrap();
    let [mean, expected] = [sum, &here].map(|sum| sum.mean(layout));
    let first = expected.f32(0).unwrap();
    assert!(mean.f32(0).unwrap() == first && mean.f64(1).unwrap() == expected.f64(1).unwrap());
    for (tensor, elements) in [(0, VALUES), (2, 3)] {
        let mut runs = [&mean, &expected].map(|mean| {
            let (mut runs, mut values) = (Vec::new(), vec![f32::NAN; elements]);
            let copy = |at: usize, run: &mut [f32]| {
                runs.push((at, run.len()));
                values[at..at + run.len()].copy_from_slice(run);
            };
            mean.runs_f32(tensor, copy).unwrap();
            (runs, values)
        });
        assert!(runs[0] == runs[1], "also where runs begin");
        assert!(std::mem::take(&mut runs[0].1) == expected.f32(tensor).unwrap());
    }
    assert_eq!((mean.samples(), mean.auxiliary()), (expected.samples(), expected.auxiliary()));
}

/// Each rank's sums are right, and ranks that borrow do so from few places: owners use theirs again, but for what is kept.
async fn sums_are_borrowed(plan: &Plan, world: u32, borrowers: &[u32]) {
    let layout = layout();
    let sums = all_sums(&layout, STEPS, world);
    let mut trainers = Trainer::all(&layout, world);
    let rings = link_all(plan, &mut trainers, 0);
    let (mut kept, mut places) = (None, vec![BTreeSet::new(); world as usize]);
    for step in 0..STEPS {
        trainers.iter_mut().for_each(|trainer| trainer.step(step));
        for trainer in &mut trainers {
            let (rank, expected) = (trainer.rank, &sums[usize::try_from(step).unwrap()]);
            let sum = trainer.sum().await;
            reads_as_one_that_lies_here(&layout, sum, expected);
            let borrows = step != ALONE && borrowers.contains(&rank);
            assert_eq!(sum.is_borrowed(), borrows, "rank {rank} of {world}, step {step}");
            if borrows {
                let place = sum.runs(0..1).next().unwrap().as_ptr().addr();
                places[rank as usize].insert(place);
            }
            if rank == 0 && step == KEPT + 1 {
                kept = trainer.held.pop_front();
            }
            trainer.give_back(1, &sums);
        }
    }
    ended(&mut trainers, rings).await;
    drop(trainers);
    let kept = kept.expect("rank 0 keeps one");
    let expected = &sums[usize::try_from(KEPT).unwrap()];
    assert!(
        kept.bytes() == expected,
        "it is what it was, though its owners have gone on and ended"
    );
    assert!(kept == kept.clone());
    assert_eq!(kept.into_buffer().length(), expected.len());
    for rank in borrowers {
        // Two in turn, and one or two more since one that was kept could not be written again.
        let found = places[*rank as usize].len();
        assert!(found <= 4, "rank {rank} of {world}: {found} places");
    }
}

/// A process has few pages: these tests take turns.
static TURN: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_sums_stay_where_they_were_added() {
    let _turn = TURN.lock().await;
    // The last one that the sum comes to passes it to none.
    for world in [2, 3] {
        sums_are_borrowed(&Plan::new(Order::Exact, world, &visits(world)), world, &[0]).await;
    }
    for world in [2, 3] {
        let all: Vec<u32> = (0..world).collect();
        sums_are_borrowed(&Plan::direct(world, &visits(world), Owners::All), world, &all).await;
    }
    sums_are_borrowed(&Plan::direct(3, &visits(3), Owners::Closer), 3, &[0, 1]).await;
}

/// Trains as fast as it can, and holds some sums longer than others.
async fn train(mut trainer: Trainer, steps: Range<u64>, sums: Arc<Vec<Vec<u8>>>) -> Trainer {
    for step in steps {
        trainer.step(step);
        trainer.sum().await;
        let held = (step * 7 + u64::from(trainer.rank) * 5) % 3;
        trainer.give_back(usize::try_from(held).unwrap(), &sums);
    }
    trainer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_that_hold_sums_longer_than_others_also_when_rings_break_see_what_they_were() {
    let _turn = TURN.lock().await;
    let (layout, world) = (layout(), 3);
    let sums = Arc::new(all_sums(&layout, GENERATIONS * (EACH + 1), world));
    let mut trainers = Trainer::all(&layout, world);
    for generation in 0..GENERATIONS {
        let plan = match generation % 3 {
            0 => Plan::direct(world, &visits(world), Owners::All),
            1 => Plan::new(Order::Exact, world, &visits(world)),
            _ => Plan::direct(world, &visits(world), Owners::Closer),
        };
        let begin = generation * (EACH + 1);
        let mut rings = link_all(&plan, &mut trainers, begin);
        let mut training = JoinSet::new();
        for trainer in trainers.drain(..) {
            training.spawn(train(trainer, begin..begin + EACH, Arc::clone(&sums)));
        }
        trainers = training.join_all().await;
        trainers.sort_by_key(|trainer| trainer.rank);
        // Somewhere in one more step it breaks: some may have its sum, and some not.
        trainers.iter_mut().for_each(|trainer| trainer.step(begin + EACH));
        for _ in 0..generation * 5 {
            yield_now().await;
        }
        rings.abort_all();
        while rings.join_next().await.is_some() {}
        for trainer in &mut trainers {
            while let Ok(sum) = trainer.ring.as_mut().unwrap().completed.try_recv() {
                trainer.held.push_back(sum.sum);
            }
        }
    }
    trainers.iter_mut().for_each(|trainer| trainer.give_back(0, &sums));
}
