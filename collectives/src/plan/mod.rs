//! Who adds what in which order, and along which hops: pure schedules over ranks. Knows no bytes and no links.
//!
//! A plan is built from the visits of a generation, which every member has alike, so all members hold equal plans.

mod ordered;
mod ring;

use std::collections::BTreeSet;

use sardana_protocol::job::Order;
use sardana_protocol::limits::{MAX_SHARDS, MAX_WORKERS};
use sardana_protocol::messages::Visit;
use sardana_protocol::words::{Rank, ShardRange};

pub use ordered::{OrderedPart, Stay};
pub use ring::{RingMove, RingPart};

/// Names a hop within its plan.
pub type HopId = u16;

/// A stream in one direction between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name, `0..` within the plan.
    pub id: HopId,
    /// Who sends.
    pub from: Rank,
    /// Who receives.
    pub to: Rank,
}

/// How the gradients of one step are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    order: Order,
    world_size: u32,
    stops: Vec<Visit>,
    hops: Vec<Hop>,
}

/// What one rank does in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It adds its shards to the running sum when that comes by.
    Ordered(OrderedPart),
    /// It takes part in a ring reduce-scatter and all-gather.
    Ring(RingPart),
}

impl Part {
    /// The runs of shards whose gradients the rank brings, in order. None are empty.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardRange> {
        match self {
            Self::Ordered(part) => part
                .stays
                .iter()
                .map(|stay| stay.shards)
                .filter(|shards| !shards.is_empty())
                .collect(),
            Self::Ring(part) => part.shards.clone(),
        }
    }
}

/// Why visits make no plan. The generation is wrong as a whole: its coordinator is of another version or at fault, and the
/// worker gives up its place in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// See [`PlanError`].
    #[error("a generation has 1 to {MAX_WORKERS} workers, found {found}")]
    WorldSize {
        /// How many there are.
        found: u32,
    },
    /// See [`PlanError`].
    #[error("a step has 1 to {MAX_SHARDS} shards, found {found}")]
    Shards {
        /// How many the visits cover.
        found: u32,
    },
    /// See [`PlanError`].
    #[error("{found} visits cannot be needed for {MAX_SHARDS} shards and {MAX_WORKERS} workers")]
    TooManyVisits {
        /// How many there are.
        found: usize,
    },
    /// See [`PlanError`].
    #[error("visits name ranks below {world_size}, found {found} (GEN-2)")]
    UnknownRank {
        /// How many ranks there are.
        world_size: u32,
        /// The rank beyond.
        found: Rank,
    },
    /// See [`PlanError`].
    #[error("every rank is visited, {missing} is not: a spare has an empty visit (GEN-2)")]
    MissingRank {
        /// The first such rank.
        missing: Rank,
    },
    /// See [`PlanError`].
    #[error("visits cover the shards without gap or overlap: expected one from shard {expected}, found {found} (GEN-2)")]
    Gap {
        /// The shard that comes next.
        expected: u32,
        /// The shards of the visit.
        found: ShardRange,
    },
    /// See [`PlanError`].
    #[error("{rank} is visited before any shard has been added: spares come last")]
    EmptyFirst {
        /// The rank of the empty visit.
        rank: Rank,
    },
}

impl Plan {
    /// The plan for `world_size` ranks that adds what `visits` say. Visits cover 0..K in shard order; those of spares are empty
    /// and come after the first that is not.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(order: Order, world_size: u32, visits: &[Visit]) -> Result<Self, PlanError> {
        let stops = stops(world_size, visits)?;
        let hops = match order {
            Order::Exact => ordered::hops(&stops),
            Order::Fast => ring::hops(world_size),
        };
        Ok(Self {
            order,
            world_size,
            stops,
            hops,
        })
    }

    /// In which order it adds.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// How many ranks take part.
    #[must_use]
    pub const fn world_size(&self) -> u32 {
        self.world_size
    }

    /// K: how many shards are added.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.stops.last().map_or(0, |stop| stop.shards.end())
    }

    /// The streams that it needs, by id from 0.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// The rank that closes each sum with a trailer.
    #[must_use]
    pub fn closer(&self) -> Rank {
        match self.order {
            Order::Exact => self.stops.last().map_or(Rank::ZERO, |stop| stop.rank),
            Order::Fast => Rank::new(self.world_size - 1),
        }
    }

    /// What `rank` does; none when it is not in the plan.
    #[must_use]
    pub fn part(&self, rank: Rank) -> Option<Part> {
        (rank.get() < self.world_size).then(|| match self.order {
            Order::Exact => Part::Ordered(ordered::part(&self.stops, &self.hops, rank)),
            Order::Fast => Part::Ring(ring::part(&self.stops, self.world_size, rank)),
        })
    }
}

/// Checks the visits and joins consecutive ones of the same rank. An empty visit stands at the shard that comes next.
fn stops(world_size: u32, visits: &[Visit]) -> Result<Vec<Visit>, PlanError> {
    if !(1..=MAX_WORKERS).contains(&world_size) {
        return Err(PlanError::WorldSize { found: world_size });
    }
    if visits.len() > MAX_VISITS {
        return Err(PlanError::TooManyVisits { found: visits.len() });
    }
    let mut stops: Vec<Visit> = Vec::new();
    let mut ranks = BTreeSet::new();
    let mut next = 0;
    for &Visit { rank, shards } in visits {
        if rank.get() >= world_size {
            return Err(PlanError::UnknownRank { world_size, found: rank });
        }
        ranks.insert(rank);
        if shards.is_empty() && next == 0 {
            return Err(PlanError::EmptyFirst { rank });
        }
        if !shards.is_empty() && shards.start() != next {
            return Err(PlanError::Gap {
                expected: next,
                found: shards,
            });
        }
        let start = next;
        next += shards.len();
        match stops.last_mut() {
            Some(last) if last.rank == rank => last.shards = ShardRange::new(last.shards.start(), next),
            Some(_) | None => stops.push(Visit {
                rank,
                shards: ShardRange::new(start, next),
            }),
        }
    }
    if !(1..=MAX_SHARDS).contains(&next) {
        return Err(PlanError::Shards { found: next });
    }
    match (0..world_size).map(Rank::new).find(|rank| !ranks.contains(rank)) {
        Some(missing) => Err(PlanError::MissingRank { missing }),
        None => Ok(stops),
    }
}

/// One visit per shard and one per spare.
const MAX_VISITS: usize = MAX_SHARDS as usize + MAX_WORKERS as usize;

// There and back.
const _: () = assert!(MAX_VISITS + MAX_WORKERS as usize <= HopId::MAX as usize);

/// The id of the hop at `index` of a plan's list.
fn hop_id(index: usize) -> HopId {
    HopId::try_from(index).expect("MAX_VISITS bounds the hops")
}

#[cfg(test)]
mod tests;
