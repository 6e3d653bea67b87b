//! The ring plan (`fast`, opt-in): reduce-scatter, then all-gather, over hops from each rank to the next. Knows only ranks and
//! chunk numbers. Which gradient is added to which first depends on the number of ranks, so its bits depend on the membership.
//!
//! The chunks are cut into one segment per rank. In round t rank r sends segment r - t and adds its own gradients to segment
//! r - t - 1, which it receives; after N - 1 rounds it has all of segment r + 1, and these go around once more.
//! (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)

use std::ops::Range;

use sardana_protocol::messages::Visit;
use sardana_protocol::words::{Rank, ShardRange};

use super::{Hop, HopId, hop_id};

/// What one rank does in the ring plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPart {
    /// Whose shards it brings; it adds them all before anything else.
    pub shards: Vec<ShardRange>,
    /// From the rank before and to the rank after; none when it is alone.
    pub hops: Option<(HopId, HopId)>,
    /// Whether the trailer comes to it over the hop from the rank before; not at the rank that closes.
    pub trailer_comes: bool,
    /// Whether it sends the trailer on.
    pub trailer_goes: bool,
    rank: u32,
    world_size: u32,
}

/// One chunk over one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingMove {
    /// The sum over some ranks; the receiver adds its own.
    Partial {
        /// Which chunk.
        chunk: u32,
    },
    /// The sum over all ranks.
    Sum {
        /// Which chunk.
        chunk: u32,
    },
}

impl RingPart {
    /// What the rank sends, in order. It has the first [`Self::own`] moves itself; after those, each is what it made of its
    /// next receipt.
    pub fn sends(&self, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
        moves(self.rank, self.world_size, chunks)
    }

    /// What the rank receives, in order: what the rank before it sends.
    pub fn receives(&self, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
        moves(self.rank + self.world_size - 1, self.world_size, chunks)
    }

    /// How many of its sends need no receipt: the chunks of its own segment.
    #[must_use]
    pub fn own(&self, chunks: u32) -> u32 {
        let segment = segment(self.rank, self.world_size, chunks);
        segment.end - segment.start
    }
}

/// From each rank to the next, the id being the sender's rank.
pub(super) fn hops(world_size: u32) -> Vec<Hop> {
    let ranks = if world_size > 1 { 0..world_size } else { 0..0 };
    ranks
        .map(|rank| Hop {
            id: hop_id(rank as usize),
            from: Rank::new(rank),
            to: Rank::new((rank + 1) % world_size),
        })
        .collect()
}

pub(super) fn part(stops: &[Visit], world_size: u32, rank: Rank) -> RingPart {
    let own = |stop: &&Visit| stop.rank == rank && !stop.shards.is_empty();
    let before = (rank.get() + world_size - 1) % world_size;
    let last = world_size - 1;
    RingPart {
        shards: stops.iter().filter(own).map(|stop| stop.shards).collect(),
        hops: (world_size > 1).then(|| (hop_id(before as usize), hop_id(rank.index()))),
        trailer_comes: rank.get() != last,
        // It starts at the last rank and ends at the one before.
        trailer_goes: world_size > 1 && rank.get() + 1 != last,
        rank: rank.get(),
        world_size,
    }
}

fn moves(sender: u32, world_size: u32, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
    let rounds = world_size - 1;
    let segments = move |first: u32| {
        // Rank numbers are below MAX_WORKERS, so the sum stays small; it keeps the difference above zero.
        (0..rounds).flat_map(move |round| segment((first + 2 * world_size - round) % world_size, world_size, chunks))
    };
    let partials = segments(sender).map(|chunk| RingMove::Partial { chunk });
    partials.chain(segments(sender + 1).map(|chunk| RingMove::Sum { chunk }))
}

/// The chunks of segment `index`; may be empty when there are fewer chunks than ranks.
fn segment(index: u32, world_size: u32, chunks: u32) -> Range<u32> {
    let cut = |index: u32| {
        let chunk = u64::from(chunks) * u64::from(index) / u64::from(world_size);
        u32::try_from(chunk).expect("a part of the chunks is not more than all")
    };
    cut(index)..cut(index + 1)
}
