//! The ordered plan (`exact`): the running sum of each chunk goes from visit to visit in shard order and is sent back from the
//! last. Knows only ranks and shards.
//!
//! ```text
//! visits:  r0: 0..3    r1: 3..5    r0: 5..6    r2: 6..8
//! hops:        r0 --0--> r1 --1--> r0 --2--> r2          the running sum
//!              r1 <-------4------- r0 <--3-- r2          the finished sum, over each other rank once
//! ```
//! It moves as many bytes in total as a ring all-reduce, and both directions are busy at once.

use std::collections::BTreeSet;

use sardana_protocol::messages::Visit;
use sardana_protocol::words::{Rank, ShardRange};

use super::{Hop, HopId, hop_id};

/// What one rank does in the ordered plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedPart {
    /// Its stays of the running sum, in shard order.
    pub stays: Vec<Stay>,
    /// Whence the finished sum comes; none at the rank that closes it.
    pub sum_from: Option<HopId>,
    /// Where it sends the finished sum; none at the end of the way back.
    pub sum_to: Option<HopId>,
}

/// One stay of the running sum: it comes, the shards are added one by one in order, it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// What is added; empty for a spare.
    pub shards: ShardRange,
    /// Whence it comes; none when it starts here, with shard 0.
    pub from: Option<HopId>,
    /// Where it goes; none when it is finished here.
    pub to: Option<HopId>,
}

/// There in shard order, back over each other rank once, by the ranks' last visits.
pub(super) fn hops(stops: &[Visit]) -> Vec<Hop> {
    let there = stops.windows(2).map(|pair| (pair[0].rank, pair[1].rank));
    let way = way_back(stops);
    let back = way.windows(2).map(|pair| (pair[0], pair[1]));
    let hop = |(index, (from, to))| Hop {
        id: hop_id(index),
        from,
        to,
    };
    there.chain(back).enumerate().map(hop).collect()
}

pub(super) fn part(stops: &[Visit], hops: &[Hop], rank: Rank) -> OrderedPart {
    let last = stops.len().saturating_sub(1);
    let stays = stops
        .iter()
        .enumerate()
        .filter(|(_, stop)| stop.rank == rank)
        .map(|(index, stop)| Stay {
            shards: stop.shards,
            from: index.checked_sub(1).map(hop_id),
            to: (index < last).then(|| hop_id(index)),
        });
    let back = hops.get(last..).unwrap_or_default();
    OrderedPart {
        stays: stays.collect(),
        sum_from: back.iter().find(|hop| hop.to == rank).map(|hop| hop.id),
        sum_to: back.iter().find(|hop| hop.from == rank).map(|hop| hop.id),
    }
}

/// Every rank once, the closer first: reverse order of last visits.
fn way_back(stops: &[Visit]) -> Vec<Rank> {
    let mut seen = BTreeSet::new();
    stops
        .iter()
        .rev()
        .map(|stop| stop.rank)
        .filter(|&rank| seen.insert(rank))
        .collect()
}
