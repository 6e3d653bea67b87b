//! The ring plan (`fast`, opt-in): each rank sends to the next. Which gradient is added to which first depends on the number of ranks,
//! so its bits depend on the membership. What goes over its hops, chunk by chunk, follows from a rank's place alone.

use super::{Hop, Part, Plan, RingPart, Visit, hop_id};
use crate::words::Rank;

/// From each rank to the next, the id being the sender's rank.
pub(super) fn plan(visits: &[Visit], world_size: u32) -> Plan {
    let ranks = if world_size > 1 { 0..world_size } else { 0..0 };
    let hops: Vec<Hop> = ranks
        .map(|rank| Hop {
            id: hop_id(rank as usize),
            from: Rank::new(rank),
            to: Rank::new((rank + 1) % world_size),
        })
        .collect();
    let mut parts: Vec<RingPart> = (0..world_size as usize)
        .map(|rank| {
            let before = (rank + hops.len())
                .checked_sub(1)
                .and_then(|at| hops.get(at % hops.len().max(1)));
            RingPart {
                shards: Vec::new(),
                hops: before.zip(hops.get(rank)).map(|(from, to)| (from.backwards(), to.onwards())),
            }
        })
        .collect();
    for visit in visits.iter().filter(|visit| !visit.shards.is_empty()) {
        if let Some(part) = parts.get_mut(visit.rank.index()) {
            part.shards.push(visit.shards);
        }
    }
    Plan {
        parts: parts.into_iter().map(Part::Ring).collect(),
        hops,
    }
}
