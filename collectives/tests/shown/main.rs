//! Running sums whose parts the next rank of the host reads where they have passed memory elsewhere. A process of its own, since a process has few pages.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sardana_collectives::gradient::{
    Computing, GradientBuffer, Lowering, Passing, Resident, ResidentError, Slot, WriteMode,
};
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::{LOWERED_BYTES, PASSING_AT_ONCE};
use sardana_collectives::links::{Meter, shared_memory_in_process};
use sardana_collectives::pages::{InPlace, Pages};
use sardana_collectives::reduce;
use sardana_collectives::ring::{self, RingConfig, RingInput, RingLinks};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::plan::{Part, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Twelve parts, and what lies behind them.
const VALUES: usize = 3_000_000;
const RANKS: u32 = 2;
const STEPS: u64 = 4;

/// Far beyond what a test needs: a ring that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// A rank's memory elsewhere, and what parts pass it in.
#[derive(Debug)]
struct There {
    layout: Arc<Layout>,
    bytes: Mutex<Vec<u8>>,
    free: Arc<Mutex<Vec<Arc<Pages>>>>,
    made: Arc<Mutex<BTreeSet<usize>>>,
}

#[derive(Debug)]
struct InPages {
    /// Until its end.
    pages: Option<Arc<Pages>>,
    free: Arc<Mutex<Vec<Arc<Pages>>>>,
}

impl Slot for InPages {
    #[expect(unsafe_code, reason = "pages are written by their address")]
    fn bytes(&mut self) -> Result<&mut [u8], ResidentError> {
        let pages = self.pages.as_mut().unwrap();
        assert!(!pages.are_read(), "the other end may still be reading it");
        // SAFETY: they are mapped as long as this value has them, and nothing reads them.
        Ok(unsafe { slice::from_raw_parts_mut(pages.start(), pages.bytes()) })
    }

    #[expect(unsafe_code, reason = "pages are read by their address")]
    fn in_place(&mut self) -> Result<InPlace<'_>, ResidentError> {
        let pages = self.pages.as_ref().unwrap();
        // SAFETY: they are mapped as long as this value has them, and nothing writes them.
        let bytes = unsafe { slice::from_raw_parts(pages.start(), pages.bytes()) };
        Ok(InPlace::new(bytes, Some(pages)))
    }
}

impl Drop for InPages {
    fn drop(&mut self) {
        self.free.lock().unwrap().extend(self.pages.take());
    }
}

impl Resident for There {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        None
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        lowering.fail(ResidentError::new("nothing comes from there but sums"));
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        true
    }

    fn slot(&self) -> Result<Box<dyn Slot>, ResidentError> {
        let mut free = self.free.lock().unwrap();
        let unread = free.iter_mut().rposition(|pages| !pages.are_read());
        let used = unread.map(|at| free.remove(at));
        let pages = used.unwrap_or_else(|| Arc::new(Pages::create(LOWERED_BYTES).unwrap()));
        self.made.lock().unwrap().insert(pages.start().addr());
        Ok(Box::new(InPages {
            pages: Some(pages),
            free: Arc::clone(&self.free),
        }))
    }

    fn pass(self: Arc<Self>, others: &[Arc<dyn Resident>], mut passing: Passing) {
        assert!(others.is_empty(), "a rank has one gradient");
        tokio::spawn(async move {
            let range = passing.range();
            for _ in 0..range.start / 1_000 % 7 {
                yield_now().await;
            }
            let begins = passing.begins();
            let sum = &mut passing.slot().bytes().unwrap()[..range.len()];
            let running = (!begins).then(|| sum.to_vec());
            let own = self.bytes.lock().unwrap()[range.clone()].to_vec();
            let mut terms: Vec<&[u8]> = running.iter().chain([&own]).map(Vec::as_slice).collect();
            reduce::sum_into(&self.layout, range, sum, &mut terms);
            passing.finish();
        });
    }

    fn add_zeros(&self, _: Dtype, _: std::ops::Range<usize>) -> Result<(), ResidentError> {
        Err(ResidentError::new("nothing is joined there"))
    }
}

/// A value for which the order of addition shows.
fn value(step: u64, rank: u32, at: usize) -> f32 {
    let word = (step << 40 ^ u64::from(rank) << 32 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 40) as f32 * 2_f32.powi(rank as i32 * 7 - 20)
}

fn values(step: u64, rank: u32) -> Vec<f32> {
    (0..VALUES).map(|at| value(step, rank, at)).collect()
}

/// The law.
fn expected(step: u64) -> Vec<u8> {
    let mut sum = values(step, 0);
    for rank in 1..RANKS {
        sum.iter_mut().zip(values(step, rank)).for_each(|(sum, value)| *sum += value);
    }
    sum.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Step after step of one rank. How many slots it has made.
async fn train(rank: u32, config: RingConfig, links: RingLinks) -> usize {
    let layout = Arc::clone(&config.layout);
    let there = Arc::new(There {
        layout: Arc::clone(&layout),
        bytes: Mutex::new(vec![0; layout.bytes()]),
        free: Arc::default(),
        made: Arc::default(),
    });
    let ((inbox, inputs), (done, mut completed)) = (unbounded_channel(), unbounded_channel());
    let ring = tokio::spawn(ring::run(config, links, inputs, move |sum| done.send(sum).unwrap()));
    let (mut gradient, mut room) = (GradientBuffer::zeros(&layout), Some(GradientBuffer::zeros(&layout)));
    for step in 0..STEPS {
        let mut writer = gradient.writer(&layout, WriteMode::Store);
        let place = writer.place(0, Dtype::F32, VALUES).unwrap();
        let own: Vec<u8> = values(step, rank).into_iter().flat_map(f32::to_le_bytes).collect();
        there.bytes.lock().unwrap()[place.bytes().clone()].copy_from_slice(&own);
        place.keep(Arc::clone(&there) as _);
        writer.samples(1).unwrap();
        writer.finish().unwrap();
        let (into, shards) = (room.take().unwrap(), ShardRange::one(rank));
        let (number, gradient) = (Step::new(step), gradient.complete());
        inbox.send(RingInput::Begin { step: number, into }).unwrap();
        let piece = RingInput::Piece {
            step: number,
            shards,
            gradient,
        };
        inbox.send(piece).unwrap();
        let sum = completed.recv().await.expect("the ring goes on").sum;
        assert!(sum.bytes()[..VALUES * 4] == expected(step), "rank {rank}, step {step}");
        room = Some(sum.into_buffer());
    }
    drop(inbox);
    ring.await.unwrap().unwrap();
    there.made.lock().unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_have_passed_are_read_where_they_are_and_their_memory_serves_again_once_they_are() {
    let layout = Arc::new(Layout::new(vec![TensorSpec::new("all", Dtype::F32, &[VALUES])], 1).unwrap());
    let visits: Vec<Visit> = (0..RANKS)
        .map(|rank| Visit {
            rank: Rank::new(rank),
            shards: ShardRange::one(rank),
        })
        .collect();
    let plan = Plan::new(Order::Exact, RANKS, &visits);
    let (mut meters, mut ranks): (Vec<Meter>, Vec<_>) = Default::default();
    for (rank, links) in (0..).zip(RingLinks::of_all(&plan, &plan, || shared_memory_in_process().unwrap())) {
        let part = plan.part(Rank::new(rank)).unwrap().clone();
        let Part::Ordered(ordered) = &part else {
            panic!("a sum passes rank by rank")
        };
        for hop in ordered.visits.iter().filter_map(|visit| visit.to) {
            meters.extend([&links.first, &links.steady].map(|links| links.outgoing[&hop.hop].meter().clone()));
        }
        let config = RingConfig {
            generation: Generation::new(Incarnation::new(1), 1),
            rank: Rank::new(rank),
            world_size: RANKS,
            order: Order::Exact,
            compression: Compression::None,
            shards: RANKS,
            step: Step::ZERO,
            first: part.clone(),
            steady: part,
            layout: Arc::clone(&layout),
            summation: None,
            probe: None,
        };
        ranks.push(tokio::spawn(train(rank, config, links)));
    }
    for rank in ranks {
        let made = timeout(PATIENCE, rank).await.expect("the ring does not hang").unwrap();
        // Those that pass, one that is filled and one that is emptied; the same of the next rank, which reads them; and one in the link.
        assert!((1..=2 * (PASSING_AT_ONCE + 2) + 1).contains(&made), "{made} slots");
    }
    let whole = layout.bytes() as u64;
    let shown: Vec<u64> = meters.iter().map(Meter::bytes_in_place).collect();
    assert_eq!(shown, [whole, whole * (STEPS - 1)].repeat(RANKS as usize - 1));
}
