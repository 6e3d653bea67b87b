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

use super::{Hop, OrderedPart, Part, Plan, Visit, VisitPart, hop_id};
use crate::words::Rank;

/// There in shard order, back over each other rank once, by the ranks' last visits.
pub(super) fn plan(visits: &[Visit], world_size: u32) -> Plan {
    let there = visits.windows(2).map(|pair| (pair[0].rank, pair[1].rank));
    let way = way_back(visits);
    let back = way.windows(2).map(|pair| (pair[0], pair[1]));
    let hop = |(index, (from, to))| Hop {
        id: hop_id(index),
        from,
        to,
    };
    let hops: Vec<Hop> = there.chain(back).enumerate().map(hop).collect();
    let (there, back) = hops.split_at(visits.len().saturating_sub(1));
    let mut parts = vec![OrderedPart::default(); world_size as usize];
    for (index, visit) in visits.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| there.get(before));
        if let Some(part) = parts.get_mut(visit.rank.index()) {
            part.visits.push(VisitPart {
                shards: visit.shards,
                from: before.map(|hop| hop.backwards()),
                to: there.get(index).map(|hop| hop.onwards()),
            });
        }
    }
    for hop in back {
        if let Some(part) = parts.get_mut(hop.from.index()) {
            part.sum_to = Some(hop.onwards());
        }
        if let Some(part) = parts.get_mut(hop.to.index()) {
            part.sum_from = Some(hop.backwards());
        }
    }
    Plan {
        parts: parts.into_iter().map(Part::Ordered).collect(),
        hops,
    }
}

/// Every rank once, the closer first: reverse order of last visits.
fn way_back(visits: &[Visit]) -> Vec<Rank> {
    let mut seen = BTreeSet::new();
    visits
        .iter()
        .rev()
        .map(|visit| visit.rank)
        .filter(|&rank| seen.insert(rank))
        .collect()
}
