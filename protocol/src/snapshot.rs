//! Who holds what of a snapshot: the state at a boundary in shares, and the sums of the steps after it.
//!
//! At the boundary each of the M members of the generation copies two shares of M: its own and the next rank's. So every share
//! has two holders, and losing one member loses nothing. The sum of each later step stays with two of the same members, in turn.
//! Who holds what is a pure function of places in that generation, so that nobody has to be told.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words::{Generation, Step};

/// Names a snapshot: the boundary it was taken at, and the generation whose members took it. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SnapshotId {
    /// Whose members hold it.
    pub generation: Generation,
    /// Updates that the state has had.
    pub step: Step,
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.generation, self.step)
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One share of a state: the `index`th of `of` runs of its pieces, as even as whole pieces allow. May be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Share {
    /// Which, below `of`.
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

/// The shares that the member at `place` of `of` copies.
#[must_use]
pub fn shares_of(place: u32, of: u32) -> Vec<Share> {
    let next = (place + 1) % of.max(1);
    let mut indices = vec![place];
    if next != place {
        indices.push(next);
    }
    indices.into_iter().map(|index| Share { index, of }).collect()
}

/// The places of the members that hold the share `index` of `of`, the one to ask first in front.
#[must_use]
pub fn holders_of(index: u32, of: u32) -> Vec<u32> {
    let of = of.max(1);
    let before = (index + of - 1) % of;
    if before == index { vec![index] } else { vec![index, before] }
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
