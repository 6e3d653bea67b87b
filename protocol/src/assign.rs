//! Which rank computes which shards (GEN-2): contiguous, disjoint, covering 0..K.
//!
//! [`steady`] gives each rank one range in rank order. [`retry`] leaves every gradient where it is and hands out only what is
//! missing, so that a death costs the dead worker's share and nothing else; there a rank may be visited twice.

use crate::messages::Visit;
use crate::planted::{Bug, bites};
use crate::words::{Rank, ShardRange};

/// The members' memory does not cover the job's shards. The job waits for more workers, or for ones with more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{room} shards fit into the members' memory, the job has {shards}: add workers or give them more memory")]
pub struct NoRoom {
    /// How many shards fit.
    pub room: u64,
    /// K.
    pub shards: u32,
}

/// What one rank brings to an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// How many shards' gradients it can hold. 0 for a spare; spares come last.
    pub capacity: u32,
    /// Shards of the step under way that it holds or goes on computing.
    pub kept: Vec<ShardRange>,
}

/// One range per rank, in rank order, as even as capacities allow. Spares get the empty range at the end.
///
/// # Errors
/// [`NoRoom`] when the capacities do not cover `shards`.
pub fn steady(shards: u32, capacities: &[u32]) -> Result<Vec<Visit>, NoRoom> {
    let level = level(shards, capacities.iter().map(|&capacity| (0, capacity)))?;
    let mut quotas: Vec<u32> = capacities.iter().map(|&capacity| capacity.min(level)).collect();
    let mut excess = quotas.iter().map(|&quota| u64::from(quota)).sum::<u64>() - u64::from(shards);
    for quota in quotas.iter_mut().rev() {
        if excess > 0 && *quota == level {
            *quota -= 1;
            excess -= 1;
        }
    }
    let mut next = 0;
    Ok(quotas
        .into_iter()
        .enumerate()
        .map(|(rank, quota)| {
            let visit = Visit {
                rank: rank_of(rank),
                shards: ShardRange::new(next, next + quota),
            };
            next += quota - u32::from(quota > 0 && bites(Bug::OverlappingShards));
            visit
        })
        .collect())
}

/// Every kept shard stays where it is (of two claims the lower rank's counts); missing ones go to the ranks with the fewest.
///
/// # Errors
/// [`NoRoom`] when the capacities do not cover `shards`.
pub fn retry(shards: u32, seats: &[Seat]) -> Result<Vec<Visit>, NoRoom> {
    let mut owner: Vec<Option<usize>> = vec![None; shards as usize];
    let mut load = vec![0_u32; seats.len()];
    for (rank, seat) in seats.iter().enumerate() {
        for shard in seat.kept.iter().flat_map(|range| range.start()..range.end().min(shards)) {
            let slot = &mut owner[shard as usize];
            if slot.is_none() && load[rank] < seat.capacity {
                *slot = Some(rank);
                load[rank] += 1;
            }
        }
    }
    let missing = shards - load.iter().sum::<u32>();
    let level = level(missing, seats.iter().zip(&load).map(|(seat, &load)| (load, seat.capacity)))?;
    let mut rank = 0;
    for slot in owner.iter_mut().filter(|slot| slot.is_none()) {
        while load[rank] >= seats[rank].capacity.min(level) {
            rank += 1;
        }
        load[rank] += 1;
        *slot = Some(rank);
    }
    Ok(visits(&owner, seats.len()))
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
                rank: rank_of(rank),
                shards: ShardRange::one(shard),
            }),
        }
    }
    let end = u32::try_from(owner.len()).expect("shards are counted in u32");
    let idle = seen.iter().enumerate().filter(|(_, seen)| !**seen);
    visits.extend(idle.map(|(rank, _)| Visit {
        rank: rank_of(rank),
        shards: ShardRange::new(end, end),
    }));
    visits
}

/// The lowest level to which filling every rank takes in `wanted` more shards.
fn level(wanted: u32, loads: impl Iterator<Item = (u32, u32)> + Clone) -> Result<u32, NoRoom> {
    let room = |level: u32| {
        loads
            .clone()
            .map(|(load, capacity)| u64::from(capacity.min(level).saturating_sub(load)))
            .sum::<u64>()
    };
    let (mut low, mut high) = (0, loads.clone().map(|(_, capacity)| capacity).max().unwrap_or(0));
    if room(high) < u64::from(wanted) {
        return Err(NoRoom {
            room: room(high),
            shards: wanted,
        });
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if room(middle) >= u64::from(wanted) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

fn rank_of(index: usize) -> Rank {
    Rank::new(u32::try_from(index).expect("ranks are counted in u32"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(visits: &[Visit]) -> Vec<(u32, String)> {
        visits
            .iter()
            .map(|visit| (visit.rank.get(), visit.shards.to_string()))
            .collect()
    }

    fn named(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
        expected.iter().map(|&(rank, range)| (rank, range.to_owned())).collect()
    }

    #[test]
    fn steady_is_even_and_respects_memory() {
        assert_eq!(
            ranges(&steady(8, &[9, 9, 9]).unwrap()),
            named(&[(0, "0..3"), (1, "3..6"), (2, "6..8")])
        );
        assert_eq!(
            ranges(&steady(8, &[9, 1, 9]).unwrap()),
            named(&[(0, "0..4"), (1, "4..5"), (2, "5..8")])
        );
        assert_eq!(
            ranges(&steady(2, &[4, 4, 4, 0]).unwrap()),
            named(&[(0, "0..1"), (1, "1..2"), (2, "2..2"), (3, "2..2")])
        );
        assert_eq!(steady(8, &[3, 4]), Err(NoRoom { room: 7, shards: 8 }));
    }

    #[test]
    fn a_retry_leaves_gradients_where_they_are() {
        let seat = |kept: &[(u32, u32)]| Seat {
            capacity: 8,
            kept: kept.iter().map(|&(a, b)| ShardRange::new(a, b)).collect(),
        };
        // Rank 1 of four died: its two shards go to two of the survivors, nobody else moves.
        let visits = retry(8, &[seat(&[(0, 2)]), seat(&[(4, 6)]), seat(&[(6, 8)])]).unwrap();
        assert_eq!(ranges(&visits), named(&[(0, "0..3"), (1, "3..6"), (2, "6..8")]));
        // Rank 0 of four died: the others are visited twice.
        let visits = retry(8, &[seat(&[(2, 4)]), seat(&[(4, 6)]), seat(&[(6, 8)])]).unwrap();
        assert_eq!(
            ranges(&visits),
            named(&[(0, "0..1"), (1, "1..2"), (0, "2..4"), (1, "4..6"), (2, "6..8")])
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_assignment_covers_each_shard_once(
            shards in 1_u32..40,
            seats in proptest::collection::vec((1_u32..50, 0_u32..40, 0_u32..10), 1..9),
        ) {
            let seats: Vec<Seat> = seats
                .into_iter()
                .map(|(capacity, start, len)| Seat { capacity, kept: vec![ShardRange::new(start, start + len)] })
                .collect();
            let room: u64 = seats.iter().map(|seat| u64::from(seat.capacity)).sum();
            let capacities: Vec<u32> = seats.iter().map(|seat| seat.capacity).collect();
            for visits in [retry(shards, &seats), steady(shards, &capacities)] {
                let Ok(visits) = visits else {
                    prop_assert!(room < u64::from(shards));
                    continue;
                };
                let mut next = 0;
                let mut load = vec![0; seats.len()];
                let mut seen = vec![false; seats.len()];
                for visit in &visits {
                    prop_assert_eq!(visit.shards.start(), next);
                    next = visit.shards.end();
                    load[visit.rank.index()] += visit.shards.len();
                    seen[visit.rank.index()] = true;
                }
                prop_assert_eq!(next, shards);
                prop_assert!(load.iter().zip(&seats).all(|(load, seat)| *load <= seat.capacity));
                prop_assert!(seen.into_iter().all(|seen| seen));
            }
        }
    }
}
