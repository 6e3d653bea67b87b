//! Each lie, in each plan, over each kind of link, on each hop and so by each rank.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::links::{self, LinkReceiver, LinkSender};
use sardana_collectives::ring::{RingConfig, RingError, RingLinks};
use sardana_protocol::messages::LinkKind;
use sardana_protocol::plan::{Hop, Plan};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Rank, ShardRange, Step};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::dance::{Dancer, FIRST_STEP, GENERATION, Gradient, config, patiently, retry, start, steady};
use crate::lies::Lie;
use crate::loopback::{Loopback, loopback};
use crate::relay::{Onwards, freeze, lie, pass};
use crate::way::Way;

const WORLD: u32 = 3;
const SHARDS: u32 = 5;

/// One of the first plan, and two of the steady one.
const STEPS: u64 = 3;

/// A lie is heard of by all within this.
const AT_ONCE: Duration = Duration::from_secs(20);

const KINDS: [LinkKind; 2] = [LinkKind::SharedMemory, LinkKind::Quic];

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
    fn new(way: Way) -> Self {
        // Three chunks: each rank owns one in a direct plan.
        let tensors = vec![
            TensorSpec::new("weight", Dtype::F32, &[70_000]),
            TensorSpec::new("bias", Dtype::F64, &[17]),
        ];
        let layout = Arc::new(Layout::new(tensors, 2).unwrap());
        let gradients = steps().map(|step| {
            let whole = |shard| Gradient::draw(&layout, step, shard).whole();
            (0..SHARDS).map(whole).collect()
        });
        let gradients: Vec<Vec<Gradient>> = gradients.collect();
        let sums = gradients.iter().map(|gradients| {
            let mut sum = gradients[0].clone();
            gradients[1..].iter().for_each(|gradient| sum.plus(gradient));
            sum.buffer(&layout)
        });
        Self {
            first: way.plan(WORLD, &retry(WORLD, SHARDS)),
            steady: way.plan(WORLD, &steady(WORLD, SHARDS)),
            sums: sums.collect(),
            gradients,
            layout,
        }
    }

    /// The hops of both plans, the first one's first.
    fn hops(&self) -> impl Iterator<Item = Hop> {
        self.first.hops().iter().chain(self.steady.hops()).copied()
    }

    /// Starts all ranks over links of this kind. That of one hop is cut open: its receiving end, and its other end, come back.
    async fn start(
        &self,
        (kind, cut): (LinkKind, usize),
        generation: Generation,
        loopback: &Loopback,
    ) -> (Vec<Dancer>, quinn::RecvStream, Onwards) {
        let mut pairs = Vec::new();
        let mut opened = None;
        for hop in 0..self.hops().count() {
            if hop == cut {
                let (here, from) = loopback.stream().await;
                let (to, there) = onwards(kind, loopback).await;
                opened = Some((from, to));
                pairs.push((LinkSender::quic(here), there));
            } else {
                pairs.push(link(kind, loopback).await);
            }
        }
        let mut pairs = pairs.into_iter();
        let links = RingLinks::of_all(&self.first, &self.steady, || pairs.next().unwrap());
        let dancers = (0..).zip(links);
        let config = |rank| RingConfig {
            generation,
            ..config(rank, &self.first, &self.steady, &self.layout)
        };
        let dancers = dancers.map(|(rank, links)| start(config(rank), links));
        let (from, to) = opened.unwrap();
        (dancers.collect(), from, to)
    }

    /// What a trainer's thread does until its ring ends. Every gradient is let go of as it was, and each sum is that of one machine.
    async fn train(&self, rank: u32, mut dancer: Dancer) -> Ended {
        let mut into = Some(GradientBuffer::zeros(&self.layout));
        let mut handed = Vec::new();
        let mut sums = 0;
        for (index, step) in steps().enumerate() {
            let plan = if step == FIRST_STEP { &self.first } else { &self.steady };
            for shard in plan
                .part(Rank::new(rank))
                .unwrap()
                .shards()
                .into_iter()
                .flat_map(ShardRange::iter)
            {
                let mut gradient = self.gradients[index][shard as usize].buffer(&self.layout);
                if dancer.inbox.is_closed() {
                    break;
                }
                dancer.piece(step, ShardRange::one(shard), &mut gradient);
                handed.push((index, shard, gradient));
            }
            if dancer.inbox.is_closed() {
                break;
            }
            dancer.begin(step, into.take().unwrap());
            let Some(done) = patiently(dancer.completed.recv()).await else {
                break;
            };
            assert!(done.sum.bytes() == self.sums[index].bytes(), "r{rank} {step} differs");
            into = Some(done.sum.into_buffer());
            sums += 1;
        }
        drop(dancer.inbox);
        let result = patiently(dancer.ring).await;
        for (index, shard, gradient) in handed {
            assert!(gradient.is_unread(), "r{rank} keeps shard {shard}");
            let before = self.gradients[index][shard as usize].buffer(&self.layout);
            assert!(gradient == before, "r{rank}: shard {shard} has changed");
        }
        Ended {
            // None: it was aborted.
            result: result
                .inspect_err(|error| assert!(error.is_cancelled(), "r{rank}: {error}"))
                .ok(),
            sums,
        }
    }

    /// Runs the next generation without a lie, with a link that is cut open all the same. Returns how many frames go over it.
    async fn undisturbed(&self, kind: LinkKind, cut: usize, loopback: &Loopback) -> u32 {
        let (dancers, from, to) = self.start((kind, cut), GENERATION.next(), loopback).await;
        let training = (0..).zip(dancers).map(|(rank, dancer)| self.train(rank, dancer));
        let (ended, frames) = tokio::join!(join_all(training), patiently(pass(from, to)));
        for ended in ended {
            assert!(matches!(ended.result, Some(Ok(()))), "{:?}", ended.result);
            assert_eq!(ended.sums, STEPS);
        }
        frames
    }

    /// Runs with a lie on one hop, after so many frames.
    async fn lied_to(&self, case: (LinkKind, usize, u32, Lie), loopback: &Loopback) {
        let (kind, cut, at, told) = case;
        let hop = self.hops().nth(cut).unwrap();
        let (dancers, from, to) = self.start((kind, cut), GENERATION, loopback).await;
        let (over, is_over) = oneshot::channel();
        let mut over = Some(over);
        let training = (0..).zip(dancers).map(|(rank, dancer)| {
            let over = if Rank::new(rank) == hop.to { over.take() } else { None };
            async move {
                let ended = self.train(rank, dancer).await;
                if let Some(over) = over {
                    over.send(()).unwrap();
                }
                ended
            }
        });
        let told_and_ended = async { tokio::join!(join_all(training), lie(from, to, (at, told), is_over)) };
        // Far beyond what it takes on a busy host, and before any connection would count as idle.
        let (ended, frame) = timeout(AT_ONCE, told_and_ended).await.expect("all end at once");
        for (rank, ended) in (0..).map(Rank::new).zip(ended) {
            assert!(ended.sums < STEPS, "{rank} has all sums");
            let Some(Err(RingError::Link {
                generation,
                step,
                hop: by,
                peer,
                source,
            })) = ended.result
            else {
                panic!("{rank} ends as {:?}", ended.result);
            };
            assert_eq!(generation, GENERATION);
            if rank == hop.to {
                assert_eq!((by, peer), (hop.id, hop.from), "{source}");
                assert!(told.is_named(&source, &frame), "{source}");
                assert!(step == frame.step || told.follows(), "{step}");
            }
        }
    }

    /// Runs until one hop has been silent from a frame on, and all ranks are told to halt.
    async fn frozen(&self, (kind, cut, at): (LinkKind, usize, u32), loopback: &Loopback) {
        let (dancers, from, to) = self.start((kind, cut), GENERATION, loopback).await;
        let rings: Vec<AbortHandle> = dancers.iter().map(|dancer| dancer.ring.abort_handle()).collect();
        let training = (0..).zip(dancers).map(|(rank, dancer)| self.train(rank, dancer));
        let freezing = async {
            let link = freeze(from, to, at).await;
            rings.iter().for_each(AbortHandle::abort);
            link
        };
        let (ended, frozen) = tokio::join!(join_all(training), patiently(freezing));
        for (rank, ended) in ended.into_iter().enumerate() {
            // One may have seen another's end before its own.
            let halted = matches!(ended.result, None | Some(Err(RingError::Link { .. })));
            assert!(halted && ended.sums < STEPS, "r{rank}: {:?}", ended.result);
        }
        drop(frozen);
    }
}

struct Ended {
    result: Option<Result<(), RingError>>,
    sums: u64,
}

fn steps() -> impl Iterator<Item = Step> {
    (FIRST_STEP.get()..).map(Step::new).take(STEPS as usize)
}

async fn link(kind: LinkKind, loopback: &Loopback) -> (LinkSender, LinkReceiver) {
    match kind {
        LinkKind::SharedMemory => links::shared_memory_in_process().unwrap(),
        LinkKind::Quic => loopback.link().await,
        LinkKind::InProcess => panic!("no worker has such a link"),
    }
}

/// A link into which anything can be written.
async fn onwards(kind: LinkKind, loopback: &Loopback) -> (Onwards, LinkReceiver) {
    if kind == LinkKind::Quic {
        let (sender, receiver) = loopback.stream().await;
        return (Onwards::Stream(sender, false), LinkReceiver::quic(receiver));
    }
    let (sender, receiver) = link(kind, loopback).await;
    (Onwards::Link(sender), receiver)
}

/// Descriptors, and mappings of memory that has one.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("memfd:")).count())
}

/// Waits until no more is held than before: memory is given back by another thread.
async fn until_let_go(before: (usize, usize)) {
    let waiting = async {
        loop {
            let now = held();
            if now.0 <= before.0 && now.1 <= before.1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let waited = timeout(AT_ONCE, waiting).await;
    assert!(waited.is_ok(), "{before:?} were held before, now {:?}", held());
}

#[tokio::test]
async fn whoever_lies_is_named_all_others_end_and_the_next_generation_sums_exactly() {
    let loopback = loopback().await;
    let mut told = BTreeMap::<Lie, u32>::new();
    for way in Way::ALL {
        let job = Job::new(way);
        for kind in KINDS {
            let before = held();
            let hops = job.hops().count();
            let mut frames = Vec::new();
            for cut in 0..hops {
                frames.push(job.undisturbed(kind, cut, &loopback).await);
            }
            for (cut, frames) in frames.into_iter().enumerate() {
                // Of the steady plan, within its first step.
                let frames = if cut < job.first.hops().len() { frames } else { frames / 2 };
                assert!(frames > 0, "{way:?} {kind:?} hop {cut}: nothing goes over it");
                for (number, lie) in Lie::ALL.into_iter().enumerate() {
                    // After the last frame of the first plan its receiver reads no more.
                    let last = frames - 1 - u32::from(lie.follows()).min(frames - 1);
                    let at = [0, last / 2, last][(number + cut) % 3];
                    if lie.follows() && frames == 1 {
                        continue;
                    }
                    println!("{way:?} {kind:?} hop {cut}: {lie:?} after {at} of {frames} frames");
                    job.lied_to((kind, cut, at, lie), &loopback).await;
                    *told.entry(lie).or_default() += 1;
                }
                job.frozen((kind, cut, frames / 2), &loopback).await;
                job.undisturbed(kind, cut, &loopback).await;
            }
            until_let_go(before).await;
        }
    }
    println!("{told:?}");
    assert!(
        told.len() == Lie::ALL.len() && told.values().all(|&times| times >= 60),
        "each lie is told: {told:?}"
    );
}
