//! Which member holds what of a snapshot: the state at a boundary in shares, and the sums of the steps after it.
//!
//! At the boundary the holders, M members of the generation, copy two shares of M each: their own, and that of the holder which is farthest from them in
//! the order of ranks. So every share has two holders, and losing one member loses nothing; nor does losing a host with up to half of them, as
//! long as the members of a host have ranks beside each other: not where some are spares, or links are doubted. The sum of each later step stays with two of the same members, in turn.
//! Which member holds what is a pure function of ranks in that generation, so that no member has to be told. All members are holders,
//! unless they are more than [`MAX_HOLDERS`]: what is said of a snapshot to each joiner that copies it, and to each holder, grows no
//! further.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_HOLDERS;
use crate::words::{Generation, Rank, Step, debug_as_display};

/// Names a snapshot: the boundary it was taken at, and the generation whose members took it. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SnapshotId {
    /// The generation whose members hold it.
    pub generation: Generation,
    /// Updates that the state has had.
    pub step: Step,
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.generation, self.step)
    }
}

debug_as_display!(SnapshotId);

/// One share of a state: the `index`th of `of` runs of its pieces, as even as whole pieces allow. May be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Share {
    /// Its number, below `of`.
    pub index: u32,
    /// How many shares make the state; not 0.
    pub of: u32,
}

impl Share {
    /// The whole state as one share.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Which of a state's `pieces` pieces it holds, as start and end.
    #[must_use]
    pub fn pieces(self, pieces: u64) -> (u64, u64) {
        let cut = |index: u32| {
            let at = u128::from(pieces) * u128::from(index) / u128::from(self.of.max(1));
            u64::try_from(at).unwrap_or(pieces).min(pieces)
        };
        (cut(self.index.min(self.of)), cut(self.index.saturating_add(1).min(self.of)))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share {} of {}", self.index, self.of)
    }
}

/// How many members of a generation of `world_size` hold its snapshots.
#[must_use]
pub fn holders_among(world_size: u32) -> u32 {
    world_size.min(MAX_HOLDERS)
}

/// The rank of the holder at `place`, in a generation of `world_size`. Holders are spread evenly over the ranks, and so over hosts.
#[must_use]
pub fn rank_at(place: u32, world_size: u32) -> Rank {
    let of = u64::from(holders_among(world_size).max(1));
    let rank = u64::from(place) * u64::from(world_size) / of;
    Rank::new(u32::try_from(rank).unwrap_or(u32::MAX))
}

/// The place of `rank` among the holders, if it is one.
#[must_use]
pub fn place_of(rank: Rank, world_size: u32) -> Option<u32> {
    let of = holders_among(world_size);
    let place = (u64::from(rank.get()) * u64::from(of)).div_ceil(u64::from(world_size.max(1)));
    let place = u32::try_from(place).ok().filter(|place| *place < of)?;
    (rank_at(place, world_size) == rank).then_some(place)
}

/// How many places lie between the two holders of a share.
const fn apart(of: u32) -> u32 {
    if of < 4 { 1 } else { of / 2 }
}

/// The shares that the member at `place` of `of` copies.
#[must_use]
pub fn shares_of(place: u32, of: u32) -> Vec<Share> {
    let other = (place + apart(of)) % of.max(1);
    let mut indices = vec![place];
    if other != place {
        indices.push(other);
    }
    indices.into_iter().map(|index| Share { index, of }).collect()
}

/// The places of the members that hold the share `index` of `of`, the one to ask first in front.
#[must_use]
pub fn holders_of(index: u32, of: u32) -> Vec<u32> {
    let of = of.max(1);
    let other = (index + of - apart(of)) % of;
    if other == index { vec![index] } else { vec![index, other] }
}

/// The places of the members that keep the sum of `step`, the one to ask first in front.
#[must_use]
pub fn keepers_of(step: Step, of: u32) -> Vec<u32> {
    let turn = u32::try_from(step.get() % u64::from(of.max(1))).unwrap_or(0);
    holders_of(turn, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_and_every_sum_has_two_holders() {
        for of in 1_u32..9 {
            let enough = if of == 1 { 1 } else { 2 };
            for index in 0..of {
                let holders = holders_of(index, of);
                assert_eq!(holders.len(), enough);
                for place in 0..of {
                    let copies = shares_of(place, of).contains(&Share { index, of });
                    assert_eq!(copies, holders.contains(&place), "share {index} of {of} at {place}");
                }
            }
            for step in 0..20 {
                assert_eq!(keepers_of(Step::new(step), of).len(), enough);
            }
        }
    }

    #[test]
    fn half_of_all_holders_beside_each_other_do_not_take_a_share_along() {
        for of in 2_u32..70 {
            for first in 0..of {
                let host: Vec<u32> = (first..first + of / 2).map(|place| place % of).collect();
                for index in 0..of {
                    let lost = holders_of(index, of).iter().all(|place| host.contains(place));
                    assert!(!lost, "share {index} of {of} is lost with {host:?}");
                }
            }
        }
    }

    #[test]
    fn of_many_members_some_hold_and_each_knows_its_place() {
        for world_size in [1, 2, 63, 64, 65, 100, 1_000, 1_024] {
            let places: Vec<u32> = (0..world_size)
                .filter_map(|rank| place_of(Rank::new(rank), world_size))
                .collect();
            let all: Vec<u32> = (0..holders_among(world_size)).collect();
            assert_eq!(places, all, "of {world_size}");
            for place in all {
                let rank = rank_at(place, world_size);
                assert_eq!(place_of(rank, world_size), Some(place), "of {world_size}");
            }
        }
        assert_eq!(holders_among(1_024), MAX_HOLDERS);
        let (first, second) = (rank_at(0, 1_024).get(), rank_at(1, 1_024).get());
        assert_eq!(second - first, 1_024 / MAX_HOLDERS, "they are spread");
    }

    #[test]
    fn shares_cover_all_pieces_once() {
        for pieces in [0_u64, 1, 3, 7, 1000] {
            for of in 1_u32..9 {
                let mut next = 0;
                for index in 0..of {
                    let (start, end) = Share { index, of }.pieces(pieces);
                    assert_eq!(start, next);
                    assert!(end >= start && end - start <= pieces.div_ceil(u64::from(of)));
                    next = end;
                }
                assert_eq!(next, pieces);
            }
        }
    }
}
