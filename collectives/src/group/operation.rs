//! One operation on its way: the agreement that each begins with, and how values are cut. Knows no reductions.
//!
//! ```text
//! running lane     0 ── call ──▶ 1 ── call ──▶ … ──▶ n-1        each rank compares, and passes its own on
//! finished lane    n-1 ── agreed ──▶ 0 ── agreed ──▶ … ──▶ n-2
//! ```
//! `agreed` comes to a rank only after all ranks have called the same: so no operation ends well before (a barrier is this and nothing more), and
//! where one differs, the rank after it says so and gives its links up, which ends the operation on all ranks.

use std::ops::Range;

use super::element::Element;
use super::error::GroupError;
use super::lane::{Lane, Stamp};

/// What one rank knows of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) rank: u32,
    /// At least 2.
    pub(super) world_size: u32,
    pub(super) stamp: Stamp,
    /// The most that a frame carries.
    pub(super) chunk_bytes: usize,
}

impl Operation {
    pub(super) const fn is_first(&self) -> bool {
        self.rank == 0
    }

    pub(super) const fn is_last(&self) -> bool {
        self.rank + 1 == self.world_size
    }

    /// The rank so many places before this one, around the ring.
    pub(super) const fn before(&self, places: u32) -> u32 {
        (self.rank + 2 * self.world_size - places) % self.world_size
    }

    /// The first half of the agreement: what the ranks before this one call is what it calls.
    pub(super) async fn call(&self, running: &mut Lane) -> Result<(), GroupError> {
        if !self.is_first() {
            running.from.receive_call(self.stamp).await?;
        }
        if !self.is_last() {
            running.to.send_call(self.stamp).await?;
        }
        Ok(())
    }

    /// The second half, after the first: so do those after it. The last rank knows it at once.
    pub(super) async fn agreed(&self, finished: &mut Lane) -> Result<(), GroupError> {
        if !self.is_last() {
            finished.from.receive_agreed(self.stamp).await?;
        }
        if self.ends_lap_at_next() {
            return Ok(());
        }
        finished.to.send_agreed(self.stamp).await
    }

    /// Whether what the last rank sends around has come to all when it is here.
    pub(super) const fn ends_lap_at_next(&self) -> bool {
        self.rank + 2 == self.world_size
    }

    /// `range` as frames carry it: cut where the whole is cut into chunks, each with its number. Empty chunks are not sent.
    pub(super) fn chunks(
        &self,
        range: Range<usize>,
        element_bytes: usize,
    ) -> impl Iterator<Item = (u32, Range<usize>)> + use<> {
        let each = (self.chunk_bytes / element_bytes).max(1);
        let (first, end) = (range.start / each, range.end.div_ceil(each));
        let chunk = move |index: usize| {
            let chunk = range.start.max(index * each)..range.end.min((index + 1) * each);
            let number = u32::try_from(index).expect("what is in memory has fewer chunks");
            (number, chunk)
        };
        (first..end).map(chunk).filter(|(_, chunk)| !chunk.is_empty())
    }

    pub(super) fn running_chunks<E: Element>(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (u32, Range<usize>)> + use<E> {
        self.chunks(range, E::RUNNING_BYTES)
    }
}

/// The part of `length` values that belongs to `rank`: all parts together are all values, in rank order, and their lengths differ by one at most.
pub(super) fn part(length: usize, rank: u32, world_size: u32) -> Range<usize> {
    let cut = |rank: u32| {
        let place = length as u128 * u128::from(rank) / u128::from(world_size);
        usize::try_from(place).expect("a part is not more than all")
    };
    cut(rank)..cut(rank + 1)
}

/// Where two ranges overlap; empty where they do not.
pub(super) fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_all_values_in_rank_order(length in 0_usize..1_000, world in 1_u32..40) {
            let parts: Vec<Range<usize>> = (0..world).map(|rank| part(length, rank, world)).collect();
            prop_assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..length).collect::<Vec<_>>());
            let lengths = parts.iter().map(ExactSizeIterator::len);
            prop_assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
        }
    }
}
