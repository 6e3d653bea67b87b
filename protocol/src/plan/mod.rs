//! Which rank adds what, in which order, and along which hops: pure schedules over ranks. Knows no bytes and no links.
//!
//! A [`Plan`] is made from the visits of a generation, by the coordinator that forms it. Each member is told its own [`Part`] alone: what
//! it adds, and the hops that begin or end at it.

mod direct;
mod ordered;
mod part;
mod ring;

use crate::job::Order;
use crate::limits::{DIRECT_NEAR_WORKERS, DIRECT_WORKERS, MAX_SHARDS, MAX_WORKERS};
use crate::words::{Rank, ShardRange};

pub use direct::Owners;
pub use part::{Adding, Brought, DirectPart, HopEnd, OrderedPart, Owner, Part, PartError, RingPart, Visit, VisitPart};

/// Names a hop within its plan.
pub type HopId = u16;

/// A stream in one direction between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name, `0..` within the plan.
    pub id: HopId,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
}

impl Hop {
    /// As the rank that sends on it sees it.
    const fn onwards(self) -> HopEnd {
        HopEnd {
            hop: self.id,
            peer: self.to,
        }
    }

    /// As the rank that receives from it sees it.
    const fn backwards(self) -> HopEnd {
        HopEnd {
            hop: self.id,
            peer: self.from,
        }
    }
}

/// How the gradients of one step are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    hops: Vec<Hop>,
    parts: Vec<Part>,
}

/// How the ranks of a plan are spread over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Each rank has one to itself, with processors and a network of its own.
    Apart,
    /// All ranks share one. Their links may go through memory, or be streams of QUIC.
    Same,
    /// All ranks share one, and its memory, through which their links go.
    SharingMemory,
    /// Some ranks share one, and some do not.
    Mixed,
}

impl Plan {
    /// The plan for `world_size` ranks that adds what `visits` say: they are as [`crate::assign`] makes them. They cover 0..K in shard
    /// order and name every rank; those of spares are empty and come last.
    #[must_use]
    pub fn new(order: Order, world_size: u32, visits: &[Visit]) -> Self {
        let visits = joined(visits);
        match order {
            Order::Exact => ordered::plan(&visits, world_size),
            Order::Fast => ring::plan(&visits, world_size),
        }
    }

    /// The fastest plan for gradients of so many bytes; as [`Self::new`], if none is faster. `hosts`: where the
    /// ranks are.
    #[must_use]
    pub fn fastest(order: Order, world_size: u32, visits: &[Visit], gradient_bytes: u64, hosts: Hosts) -> Self {
        let owners = match order {
            Order::Exact => direct::pays(&joined(visits), world_size, gradient_bytes, hosts),
            Order::Fast => None,
        };
        match owners {
            Some(owners) => Self::direct(world_size, visits, owners),
            None => Self::new(order, world_size, visits),
        }
    }

    /// The same for ranks whose gradients lie on devices, which a running sum passes: so none comes to a processor to be added there, as it would to owners, unless it is so small
    /// that hops cost more.
    #[must_use]
    pub fn fastest_on_devices(order: Order, world_size: u32, visits: &[Visit], gradient_bytes: u64) -> Self {
        // Where that says nothing of who could own chunks.
        Self::fastest(order, world_size, visits, gradient_bytes, Hosts::Mixed)
    }

    /// The direct plan of these visits with such owners, whatever the size of gradients.
    #[must_use]
    pub fn direct(world_size: u32, visits: &[Visit], owners: Owners) -> Self {
        direct::plan(&joined(visits), world_size, owners)
    }

    /// The streams that it needs, by id from 0.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// What each rank does.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What `rank` does; none when it is not in the plan.
    #[must_use]
    pub fn part(&self, rank: Rank) -> Option<&Part> {
        self.parts.get(rank.index())
    }
}

/// Joins consecutive visits of the same rank. An empty visit stands at the shard that comes next.
fn joined(visits: &[Visit]) -> Vec<Visit> {
    let mut joined: Vec<Visit> = Vec::new();
    for &Visit { rank, shards } in visits {
        match joined.last_mut() {
            Some(last) if last.rank == rank => {
                last.shards = ShardRange::new(last.shards.start(), shards.end().max(last.shards.start()));
            }
            Some(_) | None => joined.push(Visit { rank, shards }),
        }
    }
    joined
}

/// One visit per shard and one per spare, there and back.
const _: () = assert!(MAX_SHARDS as usize + 2 * MAX_WORKERS as usize <= HopId::MAX as usize);

/// Of a direct plan, one there and one back between each owner and each other rank.
const _: () = assert!(DIRECT_NEAR_WORKERS <= DIRECT_WORKERS);
const _: () = assert!(2 * DIRECT_WORKERS * (DIRECT_WORKERS - 1) <= HopId::MAX as u32);

/// The id of the hop at `index` of a plan's list.
fn hop_id(index: usize) -> HopId {
    HopId::try_from(index).unwrap_or(HopId::MAX)
}

#[cfg(test)]
mod tests;
