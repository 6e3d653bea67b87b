//! The star plan (`exact`): every rank sends the gradients of its shards to one rank, the hub, which adds all of them in shard order and sends the
//! sum back. Knows only ranks and shards.
//!
//! ```text
//! visits:  r0: 0..3    r1: 3..5    r2: 5..8                the last one's rank is the hub
//! hops:    r0 --0--> r2 --1--> r0                          its gradients there, the sum back
//!          r1 --2--> r2 --3--> r1
//! ```
//! It takes two hops one after the other, whatever the number of ranks, where a running sum takes two for each rank; but the hub receives each
//! shard's gradient by itself. So it is for gradients that are small beside what a hop costs.

use std::collections::BTreeMap;

use super::{Brought, Hop, HubPart, LeafPart, Part, Plan, StarPart, Visit, hop_id};
use crate::limits::{FRAME_BYTES, STAR_BYTES, STAR_WORKERS};
use crate::words::Rank;

/// Whether a star is faster than a running sum that goes from rank to rank, for gradients of so many bytes.
pub(super) fn pays(visits: &[Visit], world_size: u32, gradient_bytes: u64) -> bool {
    let Some(saved_hops) = world_size.checked_sub(2).filter(|hops| *hops > 0) else {
        return false;
    };
    let shards = visits.last().map_or(0, |last| last.shards.end());
    // What the hub receives and sends, each with what a frame costs besides.
    let each = gradient_bytes.saturating_add(FRAME_BYTES);
    let moved = each.saturating_mul(u64::from(shards) + u64::from(world_size));
    world_size <= STAR_WORKERS && moved <= u64::from(saved_hops) * STAR_BYTES
}

/// The hub is the rank that is visited last, which closes the sums of the plan with a running sum, too.
pub(super) fn plan(visits: &[Visit], world_size: u32) -> Plan {
    let hub = visits.last().map_or(Rank::ZERO, |last| last.rank);
    let leaves = (0..world_size).map(Rank::new).filter(|&rank| rank != hub);
    let spokes: BTreeMap<Rank, [Hop; 2]> = leaves
        .enumerate()
        .map(|(index, leaf)| (leaf, spoke(index, leaf, hub)))
        .collect();
    let brought = |visit: &Visit| Brought {
        shards: visit.shards,
        from: spokes.get(&visit.rank).map(|[there, _]| there.backwards()),
    };
    let part = |rank| match spokes.get(&rank) {
        None => StarPart::Hub(HubPart {
            adds: visits.iter().map(brought).collect(),
            sums_to: spokes.values().map(|[_, back]| back.onwards()).collect(),
        }),
        Some([there, back]) => StarPart::Leaf(LeafPart {
            brings: visits
                .iter()
                .filter(|visit| visit.rank == rank)
                .map(|visit| visit.shards)
                .collect(),
            to: there.onwards(),
            sum_from: back.backwards(),
        }),
    };
    Plan {
        parts: (0..world_size).map(Rank::new).map(part).map(Part::Star).collect(),
        hops: spokes.into_values().flatten().collect(),
    }
}

/// There and back.
fn spoke(index: usize, leaf: Rank, hub: Rank) -> [Hop; 2] {
    [(2 * index, leaf, hub), (2 * index + 1, hub, leaf)].map(|(id, from, to)| Hop {
        id: hop_id(id),
        from,
        to,
    })
}
