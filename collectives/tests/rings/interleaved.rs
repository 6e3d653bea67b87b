//! BITS-1 and aborts, in whatever order the ranks go on. All ranks are in one thread, and a seed draws which of those that can go on does so next, what its trainer hands over when,
//! and at which moment one of them is aborted.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::{self, CompletedSum, RingError, RingInput};
use sardana_protocol::plan::Plan;
use sardana_protocol::words::{ShardRange, Step};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::dance::{FIRST_STEP, Gradient, config, in_process_links};
use crate::draw::Draw;
use crate::way::Way;

/// Each number of ranks comes so often.
const ROUNDS: u64 = 4;
const MOST_RANKS: u32 = 33;

/// The first plan's one step, and two of the steady one.
const STEPS: u64 = 3;

/// So many elements all shards of a step have together, at most.
const ELEMENTS: usize = 1_500_000;

/// More turns than any of these rings takes: one that goes round for ever fails.
const PATIENCE: u64 = 5_000_000;

struct Job {
    layout: Arc<Layout>,
    first: Plan,
    steady: Plan,
    /// Of each step, shard by shard.
    gradients: Vec<Vec<Gradient>>,
    /// Of each step: their sequential sum.
    sums: Vec<GradientBuffer>,
}

impl Job {
    fn draw(draw: &mut Draw, way: Way, world: u32) -> Self {
        let shards = draw.number(world, 8 * world);
        let layout = draw.layout(ELEMENTS / 4 / shards as usize);
        let mut plan = || {
            // From many spares to several visits of each rank.
            let longest = if draw.number(0, 2) == 0 {
                shards
            } else {
                shards.div_ceil(world)
            };
            way.plan(world, &draw.visits(world, shards, longest))
        };
        let (first, steady) = (plan(), plan());
        let gradient = |step, shard| match Gradient::draw(&layout, step, shard) {
            // These add up to the same in any order.
            gradient if way == Way::Fast => gradient.whole(),
            gradient => gradient,
        };
        let of_step = |step| (0..shards).map(|shard| gradient(step, shard)).collect();
        let gradients: Vec<Vec<Gradient>> = steps().map(of_step).collect();
        let sum = |gradients: &Vec<Gradient>| {
            let mut sum = gradients[0].clone();
            gradients[1..].iter().for_each(|gradient| sum.plus(gradient));
            sum.buffer(&layout)
        };
        let sums = gradients.iter().map(sum).collect();
        Self {
            layout,
            first,
            steady,
            gradients,
            sums,
        }
    }

    fn plan(&self, step: Step) -> &Plan {
        if step == FIRST_STEP { &self.first } else { &self.steady }
    }
}

fn steps() -> impl Iterator<Item = Step> {
    (FIRST_STEP.get()..).map(Step::new).take(STEPS as usize)
}

fn index(step: Step) -> usize {
    (step.get() - FIRST_STEP.get()) as usize
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Running = Pin<Box<dyn Future<Output = Result<(), RingError>>>>;

/// A rank and its trainer.
struct Member {
    /// None once it has ended, or is aborted.
    ring: Option<Running>,
    woken: Arc<Woken>,
    ended: Option<Result<(), RingError>>,
    inbox: Option<UnboundedSender<RingInput>>,
    completed: Rc<RefCell<VecDeque<CompletedSum>>>,
    /// What the trainer is about to say.
    saying: Vec<RingInput>,
    /// The steps whose sums it has, each with the bits of sequential addition.
    has: usize,
    /// All that it has handed over, or is about to.
    handed: Vec<(Step, u32, GradientBuffer)>,
}

/// A ring whose ranks take turns as a seed draws.
struct Turns<'a> {
    job: &'a Job,
    draw: Draw,
    members: Vec<Member>,
    /// Which rank goes first where several can go on. None: each turn is drawn by itself.
    urgency: Option<Vec<u32>>,
    taken: u64,
}

impl<'a> Turns<'a> {
    fn new(job: &'a Job, seed: u64) -> Self {
        let mut draw = Draw(seed);
        let links = in_process_links(&job.first, &job.steady);
        let members = (0..).zip(links).map(|(rank, links)| {
            let (inbox, inputs) = unbounded_channel();
            let completed = Rc::new(RefCell::new(VecDeque::new()));
            let told = Rc::clone(&completed);
            let config = config(rank, &job.first, &job.steady, &job.layout);
            Member {
                ring: Some(Box::pin(ring::run(config, links, inputs, move |sum| {
                    told.borrow_mut().push_back(sum)
                }))),
                woken: Arc::new(Woken(AtomicBool::new(true))),
                ended: None,
                inbox: Some(inbox),
                completed,
                saying: Vec::new(),
                has: 0,
                handed: Vec::new(),
            }
        });
        let members: Vec<Member> = members.collect();
        // As if some processes were slow, for long.
        let urgency = (draw.number(0, 1) == 0).then(|| members.iter().map(|_| draw.number(0, 1_000)).collect());
        let mut turns = Self {
            job,
            draw,
            members,
            urgency,
            taken: 0,
        };
        for rank in 0..turns.members.len() {
            turns.begin(rank, FIRST_STEP, GradientBuffer::zeros(&job.layout));
        }
        turns
    }

    /// The trainer of `rank` is about to begin a step and to hand its gradients over, in any order.
    fn begin(&mut self, rank: usize, step: Step, into: GradientBuffer) {
        let member = &mut self.members[rank];
        member.saying.push(RingInput::Begin { step, into });
        let runs = self.job.plan(step).parts()[rank].shards();
        for shard in runs.into_iter().flat_map(ShardRange::iter) {
            let mut buffer = self.job.gradients[index(step)][shard as usize].buffer(&self.job.layout);
            let gradient = buffer.complete();
            let shards = ShardRange::one(shard);
            member.saying.push(RingInput::Piece { step, shards, gradient });
            member.handed.push((step, shard, buffer));
        }
    }

    /// One turn of one rank, or of its trainer. False when none can go on.
    fn take(&mut self) -> bool {
        let can = |member: &Member| {
            !member.saying.is_empty()
                || !member.completed.borrow().is_empty()
                || member.ring.is_some() && member.woken.0.load(Ordering::Relaxed)
        };
        let ranks: Vec<usize> = (0..self.members.len()).filter(|&rank| can(&self.members[rank])).collect();
        let Some(last) = ranks.len().checked_sub(1) else {
            return false;
        };
        self.taken += 1;
        assert!(self.taken < PATIENCE, "the ring goes round for ever");
        let drawn = ranks[self.draw.number(0, last as u32) as usize];
        let rank = match &mut self.urgency {
            None => drawn,
            Some(urgency) => {
                if self.draw.number(0, 99) == 0 {
                    urgency[drawn] = self.draw.number(0, 1_000);
                }
                ranks.into_iter().max_by_key(|&rank| urgency[rank]).unwrap_or(drawn)
            }
        };
        if self.draw.number(0, 2) > 0 {
            self.go_on(rank);
        } else {
            self.train(rank);
        }
        true
    }

    /// The rank goes on, if it can.
    fn go_on(&mut self, rank: usize) {
        let member = &mut self.members[rank];
        let Some(ring) = member.ring.as_mut().filter(|_| member.woken.0.swap(false, Ordering::Relaxed)) else {
            return;
        };
        let waker = Waker::from(Arc::clone(&member.woken));
        if let Poll::Ready(ended) = ring.as_mut().poll(&mut Context::from_waker(&waker)) {
            member.ended = Some(ended);
            member.ring = None;
        }
    }

    /// Its trainer takes a sum, or else says one thing.
    fn train(&mut self, rank: usize) {
        let member = &mut self.members[rank];
        let completed = member.completed.borrow_mut().pop_front();
        if let Some(completed) = completed {
            let step = completed.step;
            assert_eq!(index(step), member.has, "r{rank} has each sum once, in order");
            assert!(
                completed.sum.bytes() == self.job.sums[member.has].bytes(),
                "{step} r{rank} differs from sequential addition"
            );
            let read = member
                .handed
                .iter()
                .find(|(of, _, gradient)| *of == step && !gradient.is_unread());
            assert!(read.is_none(), "a gradient is let go before its sum is delivered");
            member.has += 1;
            if (member.has as u64) < STEPS {
                self.begin(rank, step.next(), completed.sum.into_buffer());
            }
        } else if let Some(last) = member.saying.len().checked_sub(1) {
            let said = member.saying.swap_remove(self.draw.number(0, last as u32) as usize);
            // A ring that has ended hears nothing.
            let _ = member.inbox.as_ref().map(|inbox| inbox.send(said));
        }
    }

    fn until_none_can_go_on(&mut self) {
        while self.take() {}
    }

    /// No trainer has anything more to say.
    fn close(&mut self) {
        self.members.iter_mut().for_each(|member| member.inbox = None);
        self.until_none_can_go_on();
    }

    fn all_gradients_are_as_they_were(&self) {
        for (rank, member) in self.members.iter().enumerate() {
            for (step, shard, gradient) in &member.handed {
                assert!(gradient.is_unread(), "shard {shard} of {step} is still read, of r{rank}");
                let drawn = &self.job.gradients[index(*step)][*shard as usize];
                assert!(
                    gradient.bytes() == drawn.buffer(&self.job.layout).bytes(),
                    "shard {shard} of {step} has changed, of r{rank}"
                );
            }
        }
    }
}

#[test]
fn any_interleaving_gives_the_bits_of_sequential_addition_and_an_abort_anywhere_leaves_gradients_alone() {
    let mut broken = BTreeMap::<Way, u32>::new();
    for seed in 0..ROUNDS * u64::from(MOST_RANKS) {
        let world = 1 + (seed % u64::from(MOST_RANKS)) as u32;
        let way = Way::ALL[(seed / u64::from(MOST_RANKS)) as usize % Way::ALL.len()];
        let mut draw = Draw(seed);
        let job = Job::draw(&mut draw, way, world);

        let mut turns = Turns::new(&job, seed);
        turns.until_none_can_go_on();
        assert!(
            turns.members.iter().all(|member| member.has as u64 == STEPS),
            "seed {seed}, {way:?}, N={world}: none can go on, and not all ranks have all sums"
        );
        turns.close();
        for (rank, member) in turns.members.iter().enumerate() {
            assert!(
                matches!(member.ended, Some(Ok(()))),
                "seed {seed}, {way:?}: r{rank}: {:?}",
                member.ended
            );
        }
        turns.all_gradients_are_as_they_were();

        let (moment, aborted) = (draw.number(0, turns.taken as u32), draw.number(0, world - 1) as usize);
        let mut turns = Turns::new(&job, seed);
        for _ in 0..moment {
            turns.take();
        }
        turns.members[aborted].ring = None;
        turns.members[aborted].inbox = None;
        turns.until_none_can_go_on();
        let others = || turns.members.iter().enumerate().filter(|(rank, _)| *rank != aborted);
        let done = |member: &Member| member.has as u64 == STEPS || member.ended.is_some();
        assert!(
            others().all(|(_, member)| done(member)),
            "seed {seed}, {way:?}, N={world}: a rank waits for ever, r{aborted} aborted"
        );
        turns.close();
        let mut failed = 0;
        for (rank, member) in turns.members.iter().enumerate().filter(|(rank, _)| *rank != aborted) {
            match &member.ended {
                Some(Ok(())) => {}
                Some(Err(RingError::Link { .. })) => failed += 1,
                other => panic!("seed {seed}, {way:?}, N={world}: r{rank}, r{aborted} aborted: {other:?}"),
            }
        }
        turns.all_gradients_are_as_they_were();
        *broken.entry(way).or_default() += u32::from(failed > 0);
    }
    for way in Way::ALL {
        assert!(
            broken.get(&way).is_some_and(|&jobs| jobs >= MOST_RANKS / 2),
            "broken off: {broken:?}"
        );
    }
}
