//! What goes over the hops of the ring plan (`fast`), chunk by chunk: reduce-scatter, then all-gather. Knows only places and chunk
//! numbers.
//!
//! The chunks are cut into one segment per rank. In round t rank r sends segment r - t and adds its own gradients to segment
//! r - t - 1, which it receives; after N - 1 rounds it has all of segment r + 1, and these go around once more.
//! (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)

use std::ops::Range;

use sardana_protocol::words::Rank;

/// A rank's place in a ring, which says what it sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    rank: u32,
    world_size: u32,
}

/// One chunk over one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingMove {
    /// The number of the chunk.
    pub chunk: u32,
    /// Whether it is the sum over all ranks; if not, it is over some, and the receiver adds its own.
    pub whole: bool,
}

impl RingPlace {
    /// The place of `rank`, which is below `world_size`.
    #[must_use]
    pub const fn new(rank: Rank, world_size: u32) -> Self {
        Self {
            rank: rank.get(),
            world_size,
        }
    }

    /// Whether it closes each sum with a trailer.
    #[must_use]
    pub const fn closes(self) -> bool {
        self.rank + 1 == self.world_size
    }

    /// Whether it sends the trailer on: it starts at the last rank and ends at the one before.
    #[must_use]
    pub const fn passes_trailer(self) -> bool {
        self.world_size > 1 && self.rank + 2 != self.world_size
    }

    /// What the rank sends, in order. It has the first [`Self::own`] moves itself; after those, each is what it made of its
    /// next receipt.
    pub fn sends(self, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
        moves(self.rank, self.world_size, chunks)
    }

    /// What the rank receives, in order: what the rank before it sends.
    pub fn receives(self, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
        moves(self.rank + self.world_size - 1, self.world_size, chunks)
    }

    /// Whether what it makes of its receipt of this chunk, which is over some ranks, is over all: it has the last of them.
    #[must_use]
    pub fn finishes(self, chunk: u32, chunks: u32) -> bool {
        segment((self.rank + 1) % self.world_size, self.world_size, chunks).contains(&chunk)
    }

    /// How many of its sends need no receipt: the chunks of its own segment.
    #[must_use]
    pub fn own(self, chunks: u32) -> u32 {
        let segment = segment(self.rank, self.world_size, chunks);
        segment.end - segment.start
    }
}

fn moves(sender: u32, world_size: u32, chunks: u32) -> impl Iterator<Item = RingMove> + use<> {
    let rounds = world_size - 1;
    let segments = move |first: u32| {
        // Rank numbers are below MAX_WORKERS, so the sum stays small; it keeps the difference above zero.
        (0..rounds).flat_map(move |round| segment((first + 2 * world_size - round) % world_size, world_size, chunks))
    };
    let partials = segments(sender).map(|chunk| RingMove { chunk, whole: false });
    partials.chain(segments(sender + 1).map(|chunk| RingMove { chunk, whole: true }))
}

/// The chunks of segment `index`; may be empty when there are fewer chunks than ranks.
fn segment(index: u32, world_size: u32, chunks: u32) -> Range<u32> {
    let cut = |index: u32| {
        let chunk = u64::from(chunks) * u64::from(index) / u64::from(world_size);
        u32::try_from(chunk).expect("a part of the chunks is not more than all")
    };
    cut(index)..cut(index + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn places(world_size: u32) -> Vec<RingPlace> {
        (0..world_size)
            .map(|rank| RingPlace::new(Rank::new(rank), world_size))
            .collect()
    }

    /// Plays the ring with sets of ranks for sums; a rank sends what it made of its receipts, in order.
    fn play(parts: &[RingPlace], chunks: u32) {
        let world = parts.len();
        let all_ranks: BTreeSet<usize> = (0..world).collect();
        let mut ready: Vec<VecDeque<BTreeSet<usize>>> = Vec::new();
        for (rank, part) in parts.iter().enumerate() {
            ready.push((0..part.own(chunks)).map(|_| BTreeSet::from([rank])).collect());
        }
        let mut sends: Vec<_> = parts.iter().map(|part| part.sends(chunks)).collect();
        let mut receives: Vec<_> = parts.iter().map(|part| part.receives(chunks)).collect();
        let mut sums: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); world];
        loop {
            let mut moved = false;
            for rank in 0..world {
                while let Some(mut value) = ready[rank].pop_front() {
                    let Some(sent) = sends[rank].next() else {
                        continue; // The last round's receipts stay.
                    };
                    moved = true;
                    let next = (rank + 1) % world;
                    assert_eq!(receives[next].next(), Some(sent));
                    assert_eq!(sent.whole, value == all_ranks);
                    assert!(sent.whole || value.insert(next), "each rank adds once");
                    if !sent.whole {
                        assert_eq!(parts[next].finishes(sent.chunk, chunks), value == all_ranks);
                    }
                    if value == all_ranks {
                        assert!(sums[next].insert(sent.chunk));
                    }
                    ready[next].push_back(value);
                }
            }
            if !moved {
                break;
            }
        }
        let all: BTreeSet<u32> = (0..chunks).collect();
        for rank in 0..world {
            assert_eq!(sends[rank].next(), None, "nothing is left to send");
            assert!(world == 1 || sums[rank] == all, "every rank has every chunk");
        }
    }

    proptest! {
        #[test]
        fn every_rank_is_added_once_and_gets_the_sum(world in 1_u32..9, chunks in 1_u32..40) {
            play(&places(world), chunks);
        }
    }

    #[test]
    fn the_trailer_reaches_all_ranks_from_the_one_that_closes() {
        for world in 1..9 {
            let places = places(world);
            let closers: Vec<u32> = (0..world).filter(|&rank| places[rank as usize].closes()).collect();
            assert_eq!(closers, [world - 1]);
            let mut rank = world - 1;
            let mut reached = BTreeSet::from([rank]);
            while places[rank as usize].passes_trailer() {
                rank = (rank + 1) % world;
                assert!(reached.insert(rank), "each rank gets it once");
            }
            assert_eq!(reached.len(), world as usize);
        }
    }
}
