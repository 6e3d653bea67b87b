//! Ranks of a ring, whose gradients lie on a device: one step of it, what must come of it, and what may cross.

use std::sync::Arc;
use std::thread;

use sardana_collectives::gradient::{GradientBuffer, Sum};
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::{self, LinkReceiver, LinkSender};
use sardana_collectives::reduce;
use sardana_collectives::ring::{self, RingConfig, RingError, RingInput, RingLinks};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream, Traffic};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Owners, Plan, Visit};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::shards::{Case, From, block_on, poll};
use crate::numbers::Numbers;

/// Ranks of so many shards each, whose gradients are of these tensors.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    pub(crate) tensors: Vec<(usize, bool)>,
    pub(crate) shards: Vec<u32>,
    /// How many of a rank's gradients have room on its device.
    pub(crate) room: u64,
    /// The first rank adds its shards into one buffer.
    pub(crate) joined: bool,
    /// Which ranks own chunks; the running sum goes from rank to rank if none do.
    pub(crate) owners: Option<Owners>,
    /// The one rank that has a device; each if there is none.
    pub(crate) with_devices: Option<usize>,
    /// The device that all of them share; each has its own if there is none.
    pub(crate) shared: Option<Device>,
    /// They pass what they have through memory that two processes of a host share, as if each were one.
    pub(crate) shared_memory: bool,
    /// Each first gives a ring up in the middle, when it was looked at so often.
    pub(crate) given_up_after: Option<usize>,
    /// And drops its gradients with it.
    pub(crate) drops: bool,
    pub(crate) seed: u64,
}

/// A rank's end.
pub(crate) type End = Result<(Vec<u8>, Traffic), RingError>;

impl Ranks {
    /// Three ranks of six small shards in all, with room for each.
    pub(crate) fn small(seed: u64) -> Self {
        Self {
            tensors: vec![(37, false), (0, false), (5, false)],
            shards: vec![2, 3, 1],
            room: u64::MAX,
            joined: seed.is_multiple_of(2),
            owners: None,
            with_devices: None,
            shared: None,
            shared_memory: false,
            given_up_after: None,
            drops: false,
            seed,
        }
    }

    /// Any number of ranks, of shards, and of those that are spilled; of tensors, whose chunks are one or several.
    pub(crate) fn any(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut below = |bound: u64| numbers.below(bound);
        // The first tensor ends about where the first, second or third chunk of numbers of four bytes does, or is small like the others.
        let mut least = match below(40) {
            0 => CHUNK_BYTES as u64 * (1 + below(3)) / 4 - 40,
            1..=4 => CHUNK_BYTES as u64 / 4 - 40,
            _ => 0,
        };
        let (is_wide, is_mixed) = (below(4) == 0, below(8) == 0);
        let tensors = (0..1 + below(3)).map(|_| {
            let length = std::mem::take(&mut least) + below(60);
            (length as usize, is_wide != (is_mixed && below(2) == 0))
        });
        let tensors = tensors.collect();
        Self {
            tensors,
            shards: (0..1 + below(4)).map(|_| 1 + below(3) as u32).collect(),
            room: below(5),
            joined: below(2) == 0,
            ..Self::small(seed)
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.case(0, 1).layout()
    }

    /// What may cross between each rank's device and the host, up to the sum's coming up for an update: the table of [`sardana_cuda::gradient`].
    pub(crate) fn crosses(&self) -> Vec<Traffic> {
        let (layout, visits) = (self.layout(), self.visits());
        // The sum passes with what lies between tensors; a gradient comes down without.
        let whole = layout.tensors_end() as u64;
        let tensors = (0..self.tensors.len()).map(|tensor| layout.tensor_bytes(tensor).unwrap().len() as u64);
        let tensors: u64 = tensors.sum();
        let one = |visit: &Visit| {
            let pieces = self.pieces(visit.shards);
            if self.owners.is_some() {
                // One that is spilled comes down shard by shard.
                let written =
                    |(number, piece): (usize, &ShardRange)| if (number as u64) < self.room { 1 } else { piece.len() };
                let down: u64 = pieces.iter().enumerate().map(written).map(u64::from).sum();
                return Traffic {
                    down: down * tensors,
                    up: whole,
                };
            }
            let (kept, spilled) = pieces.split_at(pieces.len().min(self.room.try_into().unwrap_or(usize::MAX)));
            let spilled: u64 = spilled.iter().map(|piece| u64::from(piece.len())).sum();
            let passes = layout.dtype().is_some() && !kept.is_empty() && tensors > 0;
            let (begins, closes) = (visit.rank.index() == 0, visit.rank.index() + 1 == visits.len());
            let stays = passes && closes && spilled == 0 && self.room > kept.len() as u64;
            let down = if passes { whole } else { kept.len() as u64 * tensors };
            Traffic {
                down: down + spilled * tensors,
                up: whole * (u64::from(passes && !begins) + u64::from(!stays)),
            }
        };
        visits.iter().map(one).collect()
    }

    /// So many shards from this one on, in one buffer.
    pub(crate) fn case(&self, first: u32, count: u32) -> Case {
        Case {
            tensors: self.tensors.clone(),
            shards: vec![Some(vec![From::Device; self.tensors.len()]); count as usize],
            at_once: first % 2 == 1,
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

    /// The gradients, written without a device.
    pub(crate) fn gradients(&self) -> Vec<Vec<u8>> {
        let pieces = self.visits().into_iter().flat_map(|visit| self.pieces(visit.shards));
        pieces.map(|piece| self.case(piece.start(), piece.len()).expected()).collect()
    }

    /// What these gradients add up to, in their order, without devices or links.
    pub(crate) fn sum_of(&self, gradients: &[Vec<u8>]) -> Vec<u8> {
        let layout = self.layout();
        let mut sum = vec![0; layout.bytes()];
        let mut terms: Vec<&[u8]> = gradients.iter().map(Vec::as_slice).collect();
        reduce::sum_into(&layout, 0..layout.bytes(), &mut sum, &mut terms);
        sum
    }

    pub(crate) fn expected(&self) -> Vec<u8> {
        self.sum_of(&self.gradients())
    }

    /// Requires that each rank gets that sum. What has crossed at each.
    pub(crate) fn check(&self) -> Vec<Traffic> {
        let expected = self.expected();
        let ends = self.run().into_iter().map(|end| {
            let (sum, traffic) = end.unwrap();
            assert!(sum == expected, "{self:?}");
            traffic
        });
        ends.collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        let (visits, world_size) = (self.visits(), self.shards.len() as u32);
        match self.owners {
            Some(owners) => Plan::direct(world_size, &visits, owners),
            None => Plan::new(Order::Exact, world_size, &visits),
        }
    }

    /// Runs one step, each rank on a thread of its own.
    pub(crate) fn run(&self) -> Vec<End> {
        self.run_and_look(|_| ())
    }

    /// The same, and `look` sees the links before they are used.
    pub(crate) fn run_and_look(&self, look: impl FnOnce(&[RingLinks])) -> Vec<End> {
        let (layout, visits, plan) = (Arc::new(self.layout()), self.visits(), self.plan());
        let world_size = visits.len() as u32;
        // What hears the sockets of shared memory.
        let listening = Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
        let listens = listening.enter();
        let make = if self.shared_memory {
            shared_memory
        } else {
            links::in_process
        };
        let links = [(); 2].map(|()| RingLinks::of_all(&plan, &plan, make));
        drop(listens);
        look(&links[1]);
        let [given_up, links] = links.map(Vec::into_iter);
        let ranks = given_up.zip(links).zip(&visits).map(|((given_up, links), visit)| {
            let part = plan.part(visit.rank).unwrap().clone();
            let config = RingConfig {
                generation: Generation::new(Incarnation::new(1), 1),
                rank: visit.rank,
                world_size,
                order: Order::Exact,
                compression: Compression::None,
                shards: visits.last().unwrap().shards.end(),
                step: Step::ZERO,
                first: part.clone(),
                steady: part,
                layout: Arc::clone(&layout),
                summation: None,
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
        let open = || self.shared.clone().map_or_else(|| Device::open(0), Ok);
        let Ok(device) = has_device.then(open).transpose() else {
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
        let bytes = sum.bytes().to_vec();
        sum.into_buffer().clear();
        Ok((bytes, traffic))
    }
}

/// What a ring is told that sums one step of these gradients.
fn told(pieces: &mut [(ShardRange, GradientBuffer)], layout: &Layout) -> UnboundedReceiver<RingInput> {
    let (inputs, inbox) = unbounded_channel();
    // As a step driver has them.
    let into = if layout.bytes() < CHUNK_BYTES {
        GradientBuffer::zeros(layout)
    } else {
        GradientBuffer::in_pages(layout)
    };
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

pub(crate) fn shared_memory() -> (LinkSender, LinkReceiver) {
    links::shared_memory_in_process().unwrap()
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
