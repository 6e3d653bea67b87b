//! The direct plan (`exact`): some ranks, the owners, share a gradient's chunks among them. Every rank sends each owner its shards' gradients of that one's
//! chunks; the owner adds them in shard order and sends the finished chunks to all. Knows only ranks and shards.
//!
//! ```text
//! visits:    r0: 0..3    r1: 3..5    r2: 5..8              the last one's rank is the first owner, and closes
//! owner r2:  r0 --0--> r2 --1--> r0                        gradients there, sums back
//!            r1 --2--> r2 --3--> r1
//! owner r0:  r1 --4--> r0 --5--> r1     r2 --6--> r0 --7--> r2
//! owner r1:  r0 --8--> r1 --9--> r0     r2 -10--> r1 -11--> r2
//! ```
//! It takes two hops one after the other, whatever the number of ranks, where a running sum takes two for each rank; but each shard's gradient travels by
//! itself.
//!
//! With one owner it is a *star*, for gradients that are small beside what a hop costs: the owner receives all of them. With all ranks as owners a step
//! costs each of N ranks that brings k of K gradients (those from shard 0 on are one, as their sum is known where they are), in bytes of a gradient:
//!
//! ```text
//! sent:      k (N-1)/N of its gradients     + (N-1)/N for the finished sum
//! received:  (K-k)/N of the others'         + (N-1)/N for the finished sum
//! ```
//! For K = N both are 2 (N-1)/N, as for a ring all-reduce, where a rank that a running sum passes sends and receives 2. For K = 8N both are 9 (N-1)/N.

use std::collections::BTreeMap;

use super::{Adding, Brought, DirectPart, Hop, Hosts, Owner, Part, Plan, Visit, hop_id};
use crate::limits::{
    CHUNK_BYTES, DIRECT_CHUNKS, DIRECT_NEAR_BYTES, DIRECT_NEAR_WORKERS, DIRECT_WORKERS, FRAME_BYTES, SHOWN_PIECES,
    STAR_BYTES, STAR_WORKERS,
};
use crate::words::Rank;

/// Which ranks own chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The rank that is visited last alone: a star.
    Closer,
    /// All ranks.
    All,
}

impl Owners {
    /// In the order of their turns. The closer is first: it is the rank that is visited last, which closes the sums of the ordered plan, too.
    fn in_turn(self, visits: &[Visit], world_size: u32) -> Vec<Rank> {
        let closer = visits.last().map_or(Rank::ZERO, |last| last.rank);
        let others = (0..world_size).map(Rank::new).filter(|&rank| rank != closer);
        match self {
            Self::Closer => vec![closer],
            Self::All => std::iter::once(closer).chain(others).collect(),
        }
    }
}

/// The hops between an owner and each other rank, by that one: gradients there, sums back.
type Spokes = BTreeMap<Rank, [Hop; 2]>;

/// All hops between owners and others, there and back, are numbered owner by owner.
pub(super) fn plan(visits: &[Visit], world_size: u32, owners: Owners) -> Plan {
    let owners = owners.in_turn(visits, world_size);
    let mut hops = Vec::new();
    let spokes: Vec<(Rank, Spokes)> = owners
        .into_iter()
        .map(|owner| {
            let others = (0..world_size).map(Rank::new).filter(|&rank| rank != owner);
            let spokes = others.map(|other| (other, spoke(&mut hops, other, owner))).collect();
            (owner, spokes)
        })
        .collect();
    let part = |rank| {
        let runs = visits.iter().filter(|visit| visit.rank == rank);
        DirectPart {
            brings: runs.map(|visit| visit.shards).collect(),
            owners: spokes.iter().map(|(_, spokes)| as_seen_by(rank, spokes, visits)).collect(),
        }
    };
    Plan {
        parts: (0..world_size).map(Rank::new).map(part).map(Part::Direct).collect(),
        hops,
    }
}

/// There and back.
fn spoke(hops: &mut Vec<Hop>, other: Rank, owner: Rank) -> [Hop; 2] {
    [(other, owner), (owner, other)].map(|(from, to)| {
        let id = hop_id(hops.len());
        let hop = Hop { id, from, to };
        hops.push(hop);
        hop
    })
}

/// What `rank` has to do with the owner of these spokes, which lead to all others.
fn as_seen_by(rank: Rank, spokes: &Spokes, visits: &[Visit]) -> Owner {
    match spokes.get(&rank) {
        Some([there, back]) => Owner::There {
            to: there.onwards(),
            sum_from: back.backwards(),
        },
        None => Owner::Here(Adding {
            adds: visits
                .iter()
                .map(|visit| Brought {
                    shards: visit.shards,
                    from: spokes.get(&visit.rank).map(|[there, _]| there.backwards()),
                })
                .collect(),
            sums_to: spokes.values().map(|[_, back]| back.onwards()).collect(),
        }),
    }
}

/// Which owners make this plan faster than a running sum that goes from rank to rank, for gradients of so many bytes. None where none do.
pub(super) fn pays(visits: &[Visit], world_size: u32, gradient_bytes: u64, hosts: Hosts) -> Option<Owners> {
    let saved_hops = u64::from(world_size.checked_sub(2)?);
    if a_star_pays(visits, world_size, gradient_bytes, saved_hops * STAR_BYTES) {
        return Some(Owners::Closer);
    }
    let chunks_each = gradient_bytes / (CHUNK_BYTES as u64 * u64::from(world_size));
    let brings = gradients_of_each(visits, world_size);
    // Of two ranks a running sum is as fast, unless they share memory.
    let moving = || saved_hops > 0 && moving_pays(&brings, gradient_bytes, saved_hops * STAR_BYTES);
    let same_host = || gradient_bytes <= DIRECT_NEAR_BYTES && moving();
    let near = world_size <= DIRECT_NEAR_WORKERS && chunks_each >= 1;
    let all_pay = match hosts {
        Hosts::Apart => world_size <= DIRECT_WORKERS && DIRECT_CHUNKS.contains(&chunks_each) && moving(),
        Hosts::Same => near && same_host(),
        Hosts::SharingMemory => near && (reading_pays(&brings, saved_hops) || same_host()),
        Hosts::Mixed => false,
    };
    all_pay.then_some(Owners::All)
}

fn a_star_pays(visits: &[Visit], world_size: u32, gradient_bytes: u64, saved: u64) -> bool {
    let shards = visits.last().map_or(0, |last| last.shards.end());
    // What the owner receives and sends, each with what a frame costs besides.
    let each = gradient_bytes.saturating_add(FRAME_BYTES);
    let moved = each.saturating_mul(u64::from(shards) + u64::from(world_size));
    world_size <= STAR_WORKERS && moved <= saved
}

/// How many gradients each rank brings.
fn gradients_of_each(visits: &[Visit], world_size: u32) -> Vec<u64> {
    let mut brings = vec![0; world_size as usize];
    for visit in visits {
        if let Some(brings) = brings.get_mut(visit.rank.index()) {
            *brings += u64::from(Brought::gradients(visit.shards));
        }
    }
    brings
}

/// Where gradients move, the hops that are saved make up for what the busiest rank moves beyond the 4 gradients that a running sum costs it.
fn moving_pays(brings: &[u64], gradient_bytes: u64, saved: u64) -> bool {
    let ranks = brings.len() as u64;
    let (all, most) = (brings.iter().sum::<u64>(), brings.iter().max().copied().unwrap_or(0));
    // In Nths of a gradient: what it sends and receives to be added, and of the finished sum.
    let others = ranks.saturating_sub(1);
    let moved = most * others + (all - most) + 2 * others;
    let beyond = moved.saturating_sub(4 * ranks);
    beyond.saturating_mul(gradient_bytes) / ranks.max(1) <= saved
}

/// Where gradients are read where they lie, which of so many a rank at most are, each beyond one for each rank costs what a chunk costs that a hop would have
/// brought: there are two such hops, there and back, for each rank but two.
fn reading_pays(brings: &[u64], saved_hops: u64) -> bool {
    let beyond = brings.iter().sum::<u64>().saturating_sub(brings.len() as u64);
    beyond <= 2 * saved_hops && brings.iter().all(|brings| *brings <= SHOWN_PIECES)
}
