//! Rings whose ranks have a device each: the running sum passes them, has the bits of the ordered sum, and no more crosses than is said.

use std::sync::Arc;
use std::thread;

use sardana_collectives::gradient::{GradientBuffer, Sum};
use sardana_collectives::layout::Layout;
use sardana_collectives::links;
use sardana_collectives::reduce;
use sardana_collectives::ring::{self, RingConfig, RingError, RingInput, RingLinks};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream, Traffic};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Plan, Visit};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use sardana_twins::{Count, Planted, Session};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::twin::{driver, ends_well};
use super::shards::{Case, From, block_on, poll};

/// Ranks of so many shards each, whose gradients are of these tensors.
#[derive(Clone, Debug)]
struct Ranks {
    tensors: Vec<(usize, bool)>,
    shards: Vec<u32>,
    /// How many of a rank's gradients have room on its device.
    room: u64,
    /// The first rank adds its shards into one buffer.
    joined: bool,
    /// The one rank that has a device; each if there is none.
    with_devices: Option<usize>,
    /// Each first gives a ring up in the middle, when it was looked at so often.
    given_up_after: Option<usize>,
    /// And drops its gradients with it.
    drops: bool,
    seed: u64,
}

/// A rank's end.
type End = Result<(Vec<u8>, Traffic), RingError>;

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
        let links = [(); 2].map(|()| made(&plan));
        let [given_up, links] = links.map(Vec::into_iter);
        let ranks = given_up.zip(links).zip(&visits).map(|((given_up, links), visit)| {
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
            (config, [given_up, links], visit.shards)
        });
        let ranks: Vec<_> = ranks.collect();
        thread::scope(|scope| {
            let run = |(config, links, shards)| scope.spawn(move || self.rank(config, links, shards));
            let threads: Vec<_> = ranks.into_iter().map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn rank(&self, config: RingConfig, [given_up, links]: [RingLinks; 2], shards: ShardRange) -> End {
        let layout = Arc::clone(&config.layout);
        let has_device = self.with_devices.is_none_or(|rank| rank == config.rank.index());
        let Ok(device) = has_device.then(|| Device::open(0)).transpose() else {
            return ring_that_ends(&config);
        };
        if let Some(device) = &device {
            device.keep_gradients_within(self.room.saturating_mul(layout.bytes() as u64).min(u64::MAX - 1));
        }
        let mut pieces = Vec::new();
        for piece in self.pieces(shards) {
            let mut buffer = GradientBuffer::zeros(&layout);
            let case = self.case(piece.start(), piece.len());
            if case.write(&mut buffer, &layout, device.as_ref()).is_err() {
                // Its end of the links is gone with it.
                return ring_that_ends(&config);
            }
            pieces.push((piece, buffer));
        }
        if let Some(polls) = self.given_up_after {
            let inbox = told(&mut pieces, &layout);
            poll(ring::run(config.clone(), given_up, inbox, |_| ()), polls);
            if self.drops {
                return ring_that_ends(&config);
            }
        }
        let inbox = told(&mut pieces, &layout);
        let mut sum = None;
        let end = block_on(ring::run(config, links, inbox, |done| sum = Some(done.sum)));
        let end = end.map(|()| sum.unwrap());
        for (_, buffer) in &mut pieces {
            buffer.clear();
        }
        let sum = end?;
        let Some(device) = device else {
            return Ok((sum.bytes().to_vec(), Traffic::default()));
        };
        if let Err(error) = raised(&device, &sum, &layout) {
            // It may be gone by then, which says nothing of the sum.
            assert!(device.synchronize().is_err(), "{error}");
        }
        let traffic = device.traffic();
        let mut room = sum.into_buffer();
        let bytes = room.bytes().to_vec();
        room.clear();
        Ok((bytes, traffic))
    }
}

/// A link for each hop.
fn made(plan: &Plan) -> Vec<RingLinks> {
    let mut all: Vec<RingLinks> = plan.parts().iter().map(|_| RingLinks::default()).collect();
    for hop in plan.hops() {
        let [first, steady] = [(); 2].map(|()| links::in_process());
        let from = &mut all[hop.from.index()];
        from.first.outgoing.insert(hop.id, first.0);
        from.steady.outgoing.insert(hop.id, steady.0);
        let to = &mut all[hop.to.index()];
        to.first.incoming.insert(hop.id, first.1);
        to.steady.incoming.insert(hop.id, steady.1);
    }
    all
}

/// What a ring is told that sums one step of these gradients.
fn told(pieces: &mut [(ShardRange, GradientBuffer)], layout: &Layout) -> UnboundedReceiver<RingInput> {
    let (inputs, inbox) = unbounded_channel();
    let into = GradientBuffer::zeros(layout);
    inputs.send(RingInput::Begin { step: Step::ZERO, into }).unwrap();
    for (shards, buffer) in pieces {
        let input = RingInput::Piece {
            step: Step::ZERO,
            shards: *shards,
            gradient: buffer.complete(),
        };
        inputs.send(input).unwrap();
    }
    inputs.send(RingInput::CloseWith(Trailer::Stop)).unwrap();
    inbox
}

fn ring_that_ends(config: &RingConfig) -> End {
    Err(RingError::Begin {
        expected: config.step,
        found: config.step,
    })
}

/// Brings the sum up, and compares its first tensor there.
fn raised(device: &Device, sum: &Sum, layout: &Layout) -> Result<(), DeviceError> {
    let mut room = SumRoom::new(device)?;
    let mean = sum.mean(layout);
    let there = mean.device_sum(&mut room)?;
    if layout.dtype() != Some(sardana_protocol::state::Dtype::F32) {
        return Ok(());
    }
    let there = there.tensor::<f32>(0).unwrap();
    let mut copy = DeviceTensor::<f32>::unset(device, Stream::Compute, there.len())?;
    let on = device.on(Stream::Compute);
    on.sum_into::<f32>(&mut copy.view_mut(), &there, &[])?;
    let bytes = layout.tensor_bytes(0).unwrap();
    assert!(bytemuck::cast_slice::<f32, u8>(&copy.to_vec()?) == &sum.bytes()[bytes]);
    Ok(())
}

fn small(seed: u64) -> Ranks {
    Ranks {
        tensors: vec![(37, false), (0, false), (5, false)],
        shards: vec![2, 3, 1],
        room: u64::MAX,
        joined: seed.is_multiple_of(2),
        with_devices: None,
        given_up_after: None,
        drops: false,
        seed,
    }
}

fn check(ranks: &Ranks) -> Vec<Traffic> {
    let expected = ranks.expected();
    let ends = ranks.run().into_iter().map(|end| {
        let (sum, traffic) = end.unwrap();
        assert!(sum == expected, "{ranks:?}");
        traffic
    });
    ends.collect()
}

#[test]
fn a_sum_that_passes_devices_has_the_bits_of_the_ordered_sum() {
    let Some(driver) = driver() else { return };
    for seed in 0..60 {
        let session = driver.begin(seed);
        let wide = seed.is_multiple_of(5);
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
    // The last copy up of each is of the finished sum; the closer has it.
    let moved = |down, up| Traffic {
        down: down * gradient,
        up: up * gradient,
    };
    assert_eq!(check(&ranks), [moved(1, 1), moved(1, 2), moved(1, 1)]);
    assert_eq!(session.count(Count::Down), 3 * gradient);
    // Spilled ones come down once, and are added on the host.
    let tensors = 4 * (270_000 + 40);
    let spilled = check(&Ranks { room: 2, ..ranks });
    let down: Vec<u64> = spilled.iter().map(|traffic| traffic.down).collect();
    assert_eq!(down, [gradient, gradient + 2 * tensors, gradient + tensors]);
    ends_well(&session);
}

#[test]
fn a_ring_that_is_given_up_leaves_gradients_for_the_next_or_lets_go_of_them() {
    let Some(driver) = driver() else { return };
    for seed in 0..40 {
        let session = driver.begin(seed);
        let ranks = Ranks {
            given_up_after: Some(seed as usize % 10 * 3),
            ..small(seed)
        };
        check(&ranks);
        let ends = Ranks { drops: true, ..ranks }.run();
        assert!(ends.iter().all(Result::is_err));
        ends_well(&session);
    }
}

/// Whether a fault shows where one rank has a device, so that calls come in one order.
fn is_found(session: &Session<'_>, rank: usize) -> bool {
    let ranks = Ranks {
        with_devices: Some(rank),
        joined: false,
        ..small(1)
    };
    let expected = ranks.expected();
    let ends = thread::spawn(move || ranks.run()).join();
    let is_right = |end: &End| matches!(end, Ok((sum, _)) if *sum == expected);
    !ends.is_ok_and(|ends| ends.iter().all(is_right)) || session.fault().is_some()
}

#[test]
fn faults_of_streams_and_copies_are_found_where_a_sum_passes() {
    let Some(driver) = driver() else { return };
    // Of several shards only the last is waited for: the stream of computing comes to it last.
    for (what, count, covered) in [
        (Planted::ForgetStreamWait, Count::StreamWaits, [1, 2, 0]),
        (Planted::ForgetHostWait, Count::HostWaits, [0; 3]),
        (Planted::LaunchElsewhere, Count::Launches, [0; 3]),
        (Planted::CopyElsewhere, Count::Copies, [0; 3]),
    ] {
        for (rank, covered) in covered.into_iter().enumerate() {
            let session = driver.begin(1);
            assert!(!is_found(&session, rank), "nothing is found where nothing is planted");
            let calls = session.count(count);
            drop(session);
            let finds = |&call: &u64| {
                (0..10).any(|seed| {
                    let session = driver.begin(seed);
                    session.plant(what, call);
                    is_found(&session, rank)
                })
            };
            let found: Vec<u64> = (0..calls).filter(finds).collect();
            println!("{what:?} {rank} {found:?} of {calls}");
            assert_eq!(
                found.len() + covered,
                calls as usize,
                "{what:?} at rank {rank}: found at {found:?}"
            );
        }
    }
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
    let expected = ranks.expected();
    let mut failed = 0;
    for call in (30..calls - 60).step_by(7) {
        let session = driver.begin(call);
        session.plant(Planted::DeviceGone, call);
        let ends = thread::spawn({
            let ranks = ranks.clone();
            move || ranks.run()
        });
        let ends = ends.join().expect("a rank says that its device is gone");
        for (sum, _) in ends.iter().flatten() {
            assert!(*sum == expected, "call {call}");
        }
        failed += u64::from(ends.iter().any(Result::is_err));
        drop(session);
    }
    assert!(failed > 5, "{failed}");
}
