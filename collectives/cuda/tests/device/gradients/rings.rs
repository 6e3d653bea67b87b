//! Rings whose ranks have a device each: the running sum passes them, has the bits of the ordered sum, and no more crosses than is said.

use std::sync::Arc;
use std::thread;

use sardana_collectives::gradient::{GradientBuffer, Sum};
use sardana_collectives::layout::Layout;
use sardana_collectives::links;
use sardana_collectives::reduce;
use sardana_collectives::ring::{self, RingConfig, RingError, RingInput, RingLinks};
use sardana_cuda::device::{Device, DeviceTensor, Stream, Traffic};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Plan, Visit};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use sardana_twins::{Count, Planted};
use tokio::sync::mpsc::unbounded_channel;

use super::super::twin::{driver, ends_well};
use super::shards::{Case, From, block_on};

/// Ranks of so many shards each, whose gradients are of these tensors.
#[derive(Clone, Debug)]
struct Ranks {
    tensors: Vec<(usize, bool)>,
    shards: Vec<u32>,
    /// How many of a rank's gradients have room on its device.
    room: u64,
    /// The first rank adds its shards into one buffer.
    joined: bool,
    seed: u64,
}

/// A rank's end.
type End = Result<(Sum, Traffic), RingError>;

impl Ranks {
    fn layout(&self) -> Layout {
        self.case(0, 1).layout()
    }

    /// So many shards from this one on, in one buffer.
    fn case(&self, first: u32, count: u32) -> Case {
        Case {
            tensors: self.tensors.clone(),
            shards: vec![Some(vec![From::Device; self.tensors.len()]); count as usize],
            seed: self.seed * 1_000 + u64::from(first),
        }
    }

    fn visits(&self) -> Vec<Visit> {
        let mut end = 0;
        let visit = |(rank, count): (usize, &u32)| {
            let start = end;
            end += count;
            Visit {
                rank: Rank::new(rank as u32),
                shards: ShardRange::new(start, end),
            }
        };
        self.shards.iter().enumerate().map(visit).collect()
    }

    /// A rank's gradients: which shards each is the sum of.
    fn pieces(&self, shards: ShardRange) -> Vec<ShardRange> {
        if self.joined && shards.start() == 0 {
            return vec![shards];
        }
        shards.iter().map(ShardRange::one).collect()
    }

    /// The sum without devices or links.
    fn expected(&self) -> Vec<u8> {
        let layout = self.layout();
        let pieces = self.visits().into_iter().flat_map(|visit| self.pieces(visit.shards));
        let terms: Vec<Vec<u8>> = pieces.map(|piece| self.case(piece.start(), piece.len()).expected()).collect();
        let mut sum = vec![0; layout.bytes()];
        let mut terms: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
        reduce::sum_into(&layout, 0..layout.bytes(), &mut sum, &mut terms);
        sum
    }

    /// Runs one step, each rank on a thread of its own.
    fn run(&self) -> Vec<End> {
        let (layout, visits) = (Arc::new(self.layout()), self.visits());
        let plan = Plan::new(Order::Exact, visits.len() as u32, &visits);
        let mut all: Vec<RingLinks> = visits.iter().map(|_| RingLinks::default()).collect();
        for hop in plan.hops() {
            let (sender, receiver) = links::in_process();
            all[hop.from.index()].first.outgoing.insert(hop.id, sender);
            all[hop.to.index()].first.incoming.insert(hop.id, receiver);
            let (sender, receiver) = links::in_process();
            all[hop.from.index()].steady.outgoing.insert(hop.id, sender);
            all[hop.to.index()].steady.incoming.insert(hop.id, receiver);
        }
        let ranks = all.into_iter().zip(&visits).map(|(links, visit)| {
            let part = plan.part(visit.rank).unwrap().clone();
            let config = RingConfig {
                generation: Generation::new(Incarnation::new(1), 1),
                rank: visit.rank,
                world_size: visits.len() as u32,
                order: Order::Exact,
                compression: Compression::None,
                shards: visits.last().unwrap().shards.end(),
                step: Step::ZERO,
                first: part.clone(),
                steady: part,
                layout: Arc::clone(&layout),
                probe: None,
            };
            (config, links, visit.shards)
        });
        let ranks: Vec<_> = ranks.collect();
        thread::scope(|scope| {
            let run = |(config, links, shards)| scope.spawn(move || self.rank(config, links, shards));
            let threads: Vec<_> = ranks.into_iter().map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn rank(&self, config: RingConfig, links: RingLinks, shards: ShardRange) -> End {
        let layout = Arc::clone(&config.layout);
        let device = Device::open(0).unwrap();
        device.keep_gradients_within(self.room.saturating_mul(layout.bytes() as u64).min(u64::MAX - 1));
        let (inputs, inbox) = unbounded_channel();
        let into = GradientBuffer::zeros(&layout);
        inputs.send(RingInput::Begin { step: Step::ZERO, into }).unwrap();
        let mut buffers = Vec::new();
        for piece in self.pieces(shards) {
            let mut buffer = GradientBuffer::zeros(&layout);
            let case = self.case(piece.start(), piece.len());
            if case.write(&mut buffer, &layout, Some(&device)).is_err() {
                // Its end of the links is gone with it.
                return ring_that_ends(&config);
            }
            let gradient = buffer.complete();
            let (step, shards) = (Step::ZERO, piece);
            inputs.send(RingInput::Piece { step, shards, gradient }).unwrap();
            buffers.push(buffer);
        }
        inputs.send(RingInput::CloseWith(Trailer::Stop)).unwrap();
        let mut sum = None;
        let end = block_on(ring::run(config, links, inbox, |done| sum = Some(done.sum)));
        let end = end.map(|()| sum.unwrap());
        for buffer in &mut buffers {
            buffer.clear();
        }
        let sum = end?;
        let passed = device.traffic();
        raised(&device, &sum, &layout);
        let traffic = device.traffic();
        assert_eq!(traffic.up - passed.up, layout.tensors_end() as u64);
        Ok((sum, traffic))
    }
}

fn ring_that_ends(config: &RingConfig) -> End {
    Err(RingError::Begin {
        expected: config.step,
        found: config.step,
    })
}

/// Brings the sum up, and compares its first tensor there.
fn raised(device: &Device, sum: &Sum, layout: &Layout) {
    let mut room = SumRoom::new(device).unwrap();
    let mean = sum.mean(layout);
    let there = mean.device_sum(&mut room).unwrap();
    if layout.dtype() != Some(sardana_protocol::state::Dtype::F32) {
        return;
    }
    let there = there.tensor::<f32>(0).unwrap();
    let mut copy = DeviceTensor::<f32>::unset(device, Stream::Compute, there.len()).unwrap();
    let on = device.on(Stream::Compute);
    on.sum_into::<f32>(&mut copy.view_mut(), &there, &[]).unwrap();
    let bytes = layout.tensor_bytes(0).unwrap();
    assert!(bytemuck::cast_slice::<f32, u8>(&copy.to_vec().unwrap()) == &sum.bytes()[bytes]);
}

fn small(seed: u64) -> Ranks {
    Ranks {
        tensors: vec![(37, false), (0, false), (5, false)],
        shards: vec![2, 3, 1],
        room: u64::MAX,
        joined: seed.is_multiple_of(2),
        seed,
    }
}

fn check(ranks: &Ranks) -> Vec<Traffic> {
    let expected = ranks.expected();
    let ends = ranks.run().into_iter().map(|end| {
        let (sum, traffic) = end.unwrap();
        assert!(sum.bytes() == expected, "{ranks:?}");
        traffic
    });
    ends.collect()
}

#[test]
fn a_sum_that_passes_devices_has_the_bits_of_the_ordered_sum() {
    let Some(driver) = driver() else { return };
    for seed in 0..60 {
        let session = driver.begin(seed);
        let wide = seed % 5 == 0;
        let ranks = Ranks {
            tensors: vec![(37, wide), (0, wide), (5, wide)],
            room: [0, 1, 2, u64::MAX][seed as usize % 4],
            ..small(seed)
        };
        check(&ranks);
        // Tensors of two types do not pass: each gradient comes down.
        check(&Ranks {
            tensors: vec![(9, false), (4, true)],
            ..small(seed)
        });
        ends_well(&session);
    }
}

#[test]
fn no_gradient_comes_down_where_the_sum_passes() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let ranks = Ranks {
        tensors: vec![(270_000, false), (40, false)],
        shards: vec![2, 4, 3],
        joined: false,
        ..small(1)
    };
    let gradient = ranks.layout().tensors_end() as u64;
    // The last copy up of each is of the finished sum.
    let moved = |down, up| Traffic {
        down: down * gradient,
        up: up * gradient,
    };
    assert_eq!(check(&ranks), [moved(1, 1), moved(1, 2), moved(1, 2)]);
    assert_eq!(session.count(Count::Down), 3 * gradient);
    // Spilled ones come down once, and are added on the host.
    let tensors = 4 * (270_000 + 40);
    let spilled = check(&Ranks { room: 2, ..ranks });
    let down: Vec<u64> = spilled.iter().map(|traffic| traffic.down).collect();
    assert_eq!(down, [gradient, gradient + 2 * tensors, gradient + tensors]);
    ends_well(&session);
}

#[test]
fn a_device_that_is_gone_while_a_sum_passes_ends_its_rank_and_its_neighbours_never_hang() {
    let Some(driver) = driver() else { return };
    let ranks = small(1);
    let calls = {
        let session = driver.begin(1);
        check(&ranks);
        session.count(Count::Calls)
    };
    let mut failed = 0;
    for call in (30..calls - 60).step_by(7) {
        let session = driver.begin(call);
        session.plant(Planted::DeviceGone, call);
        let ends = thread::spawn({
            let ranks = ranks.clone();
            move || ranks.run()
        });
        // Where the device was gone while a rank compared, it says so by a panic.
        let Ok(ends) = ends.join() else { continue };
        failed += u64::from(ends.iter().any(Result::is_err));
        drop(session);
    }
    assert!(failed > 5, "{failed}");
}
