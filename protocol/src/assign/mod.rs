//! Which rank computes which shards (GEN-2): contiguous, disjoint, covering 0..K.
//!
//! [`steady`] gives each rank one range in rank order, such that the slowest is done as early as can be. [`retry`] leaves every
//! gradient where it is and hands out only what is missing, so that a death costs the dead worker's share and nothing else; there a
//! rank may be visited twice.
//!
//! Every rank gets one shard before any gets a second. A worker that is so slow that a step would be over sooner without it still
//! has its one: by this it is measured, and seen to become fast again. A user who does not want to wait for it drains it.
//!
//! Memory bounds pieces, not shards: see [`crate::memory`]. So the first rank is given what the others cannot hold, and a retry that would
//! be too much for a rank is no retry: the gradients that are there are computed again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::job::Order;
use crate::member::pieces_held;
use crate::plan::Visit;
use crate::planted::{Bug, bites};
use crate::words::{Pace, Rank, ShardRange};

/// The members' memory does not cover the job's shards. The job waits for more workers, or for ones with more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{room} shards fit into the members' memory, the job has {shards}: add workers or give them more memory")]
pub struct NoRoom {
    /// How many shards fit.
    pub room: u64,
    /// K.
    pub shards: u32,
}

/// What one rank has to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// How many shards it may be given. 0 for a spare; spares come last.
    pub capacity: u32,
    /// Of how many pieces its memory holds the gradients.
    pub pieces: u32,
    /// How fast it is. If that is not known it is taken to be like the others.
    pub pace: Option<Pace>,
}

/// What one rank brings to an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// What it has.
    pub means: Means,
    /// Shards of the step under way that it holds or goes on computing.
    pub kept: Vec<ShardRange>,
}

impl Means {
    /// How many shards it can have, `prefix` of which are one piece that begins with shard 0. In fast order any range is one.
    fn most(self, order: Order, prefix: u32) -> u32 {
        match order {
            Order::Exact => self.capacity.min(self.pieces.saturating_add(prefix.saturating_sub(1))),
            Order::Fast => self.capacity,
        }
    }
}

/// How many shards ranks with these means can have together, in this order of ranks.
pub fn room(order: Order, means: impl IntoIterator<Item = Means>) -> u64 {
    let most = means
        .into_iter()
        .enumerate()
        .map(|(rank, means)| steady_most(order, rank, means));
    most.map(u64::from).fold(0, u64::saturating_add)
}

/// The first rank's shards are one piece, however many they are.
fn steady_most(order: Order, rank: usize, means: Means) -> u32 {
    means.most(order, if rank == 0 { means.capacity } else { 0 })
}

/// One range per rank, in rank order: no others that ranks have room for let the slowest rank end earlier. Where no worker's pace is known
/// they are as even as can be. Spares get the empty range at the end.
///
/// # Errors
/// [`NoRoom`] when there is no room for `shards`.
pub fn steady(order: Order, shards: u32, means: &[Means]) -> Result<Vec<Visit>, NoRoom> {
    let mut quotas = vec![0; means.len()];
    let most: Vec<u32> = means
        .iter()
        .enumerate()
        .map(|(rank, &means)| steady_most(order, rank, means))
        .collect();
    fill(&mut quotas, shards, &most, means)?;
    let mut next = 0;
    Ok(quotas
        .into_iter()
        .enumerate()
        .map(|(rank, quota)| {
            let visit = Visit {
                rank: Rank::at(rank),
                shards: ShardRange::new(next, next + quota),
            };
            next += quota - u32::from(quota > 0 && bites(Bug::OverlappingShards));
            next += u32::from(quota > 0 && bites(Bug::GapInShards));
            visit
        })
        .collect())
}

/// How long the slowest rank computes in a step with these visits.
#[must_use]
pub fn slowest(visits: &[Visit], means: &[Means]) -> Duration {
    let paces = paces(means);
    let mut load = vec![0_u32; means.len()];
    for visit in visits {
        load[visit.rank.index()] += visit.shards.len();
    }
    let times = load.iter().zip(&paces).map(|(&shards, pace)| pace.of(shards));
    times.max().unwrap_or(Duration::ZERO)
}

/// Every kept shard stays where it is (of two claims the lower rank's counts); missing ones go to the ranks that have computed them
/// first, counting what they keep.
///
/// # Errors
/// [`NoRoom`] when there is no room for what is missing beside what is kept.
pub fn retry(order: Order, shards: u32, seats: &[Seat]) -> Result<Vec<Visit>, NoRoom> {
    let mut owner: Vec<Option<usize>> = vec![None; shards as usize];
    let mut load = vec![0_u32; seats.len()];
    for (rank, seat) in seats.iter().enumerate() {
        for shard in seat.kept.iter().flat_map(|range| range.start()..range.end().min(shards)) {
            let slot = &mut owner[shard as usize];
            if slot.is_none() && load[rank] < seat.means.capacity {
                *slot = Some(rank);
                load[rank] += 1;
            }
        }
    }
    let missing = shards - load.iter().sum::<u32>();
    let means: Vec<Means> = seats.iter().map(|seat| seat.means).collect();
    let (beginner, prefix) = prefix(&owner, &load, seats);
    let most: Vec<u32> = means
        .iter()
        .enumerate()
        .map(|(rank, &means)| means.most(order, if rank == beginner { prefix } else { 0 }))
        .collect();
    let mut quotas = load.clone();
    fill(&mut quotas, missing, &most, &means)?;
    let mut rank = 0;
    for slot in owner.iter_mut().filter(|slot| slot.is_none()) {
        while load[rank] >= quotas[rank] {
            rank += 1;
        }
        load[rank] += 1;
        *slot = Some(rank);
    }
    let visits = visits(&owner, seats.len());
    match seats
        .iter()
        .enumerate()
        .all(|(rank, seat)| holds(order, seat, rank, load[rank], &visits))
    {
        true => Ok(visits),
        false => Err(NoRoom {
            room: most.iter().copied().map(u64::from).sum(),
            shards,
        }),
    }
}

/// Which rank has the piece that begins with shard 0, or can begin it, and with how many shards: those that it keeps in it, or else those
/// that are missing, which the first rank is given first.
fn prefix(owner: &[Option<usize>], load: &[u32], seats: &[Seat]) -> (usize, u32) {
    let first = owner.first().copied().flatten();
    let run = owner.iter().take_while(|slot| **slot == first).count();
    let run = u32::try_from(run).expect("shards are counted in u32");
    let Some(rank) = first else {
        let begins = load
            .first()
            .zip(seats.first())
            .is_some_and(|(load, seat)| *load < seat.means.pieces);
        return (0, if begins { run } else { 0 });
    };
    let kept = seats[rank].kept.iter().find(|kept| kept.start() == 0);
    (rank, kept.map_or(0, |kept| kept.len().min(run)))
}

/// Whether a rank has memory for what it is assigned beside what it keeps: for as many pieces as it makes of that.
fn holds(order: Order, seat: &Seat, rank: usize, load: u32, visits: &[Visit]) -> bool {
    // Never more pieces than shards, so that the pieces of a rank that has memory enough are not counted.
    load <= seat.means.pieces || {
        let own = visits.iter().filter(|visit| visit.rank.index() == rank);
        let assigned: Vec<ShardRange> = own.map(|visit| visit.shards).collect();
        pieces_held(order, &seat.kept, &assigned) <= seat.means.pieces as usize
    }
}

/// The owners of 0..K as visits, and an empty one for every rank that owns nothing.
fn visits(owner: &[Option<usize>], ranks: usize) -> Vec<Visit> {
    let mut visits: Vec<Visit> = Vec::new();
    let mut seen = vec![false; ranks];
    for (shard, rank) in owner.iter().enumerate() {
        let rank = rank.expect("retry gave every shard an owner");
        let shard = u32::try_from(shard).expect("shards are counted in u32");
        seen[rank] = true;
        match visits.last_mut() {
            Some(last) if last.rank.index() == rank => last.shards = ShardRange::new(last.shards.start(), shard + 1),
            Some(_) | None => visits.push(Visit {
                rank: Rank::at(rank),
                shards: ShardRange::one(shard),
            }),
        }
    }
    let end = u32::try_from(owner.len()).expect("shards are counted in u32");
    let idle = seen.iter().enumerate().filter(|(_, seen)| !**seen);
    visits.extend(idle.map(|(rank, _)| Visit {
        rank: Rank::at(rank),
        shards: ShardRange::new(end, end),
    }));
    visits
}

/// Hands out so many shards more, one by one, each to the rank that has computed it first; every rank gets a first one before that.
/// As a rank's time only grows with its shards, none of them could be given away with profit: the slowest rank ends as early as can
/// be.
fn fill(loads: &mut [u32], wanted: u32, most: &[u32], means: &[Means]) -> Result<(), NoRoom> {
    let free = loads.iter().zip(most).map(|(&load, most)| most.saturating_sub(load));
    let room = free.map(u64::from).sum();
    if room < u64::from(wanted) {
        return Err(NoRoom { room, shards: wanted });
    }
    let paces = paces(means);
    // When the rank would have computed one more. Of equals the lower rank comes first.
    let next = |rank: usize, load: u32| {
        let has_one = load > 0;
        let done = if has_one { paces[rank].of(load + 1) } else { Duration::ZERO };
        (load < most[rank]).then_some(Reverse((has_one, done, rank)))
    };
    let mut heap: BinaryHeap<_> = loads
        .iter()
        .enumerate()
        .filter_map(|(rank, &load)| next(rank, load))
        .collect();
    for _ in 0..wanted {
        let Reverse((_, _, rank)) = heap.pop().expect("there is room for all that are wanted");
        loads[rank] += 1;
        heap.extend(next(rank, loads[rank]));
    }
    Ok(())
}

/// The pace of each rank. A pace that is not known is taken to be the median of the others; of two in the middle the faster, as a rank that
/// is too slow for its shards is found out sooner than one that could do more.
fn paces(means: &[Means]) -> Vec<Pace> {
    let mut known: Vec<Pace> = means.iter().filter_map(|means| means.pace).collect();
    known.sort_unstable();
    let median = known.get(known.len().saturating_sub(1) / 2).copied();
    // Where none is known, any will do.
    let usual = median.unwrap_or(Pace::new(Duration::ZERO));
    means.iter().map(|means| means.pace.unwrap_or(usual)).collect()
}

#[cfg(test)]
mod tests;
