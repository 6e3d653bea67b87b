//! Which rank computes which shards (GEN-2): contiguous, disjoint, covering 0..K.
//!
//! [`steady`] gives each rank one range in rank order, such that the slowest is done as early as can be. [`retry`] leaves every
//! gradient where it is and hands out only what is missing, so that a death costs the dead worker's share and nothing else; there a
//! rank may be visited twice.
//!
//! Every rank gets one shard before any gets a second. A worker that is so slow that a step would be over sooner without it still
//! has its one: by this it is measured, and without it nobody would see it become fast again. Whoever does not want to wait for it
//! drains it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::messages::Visit;
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
    /// How many shards' gradients it can hold. 0 for a spare; spares come last.
    pub capacity: u32,
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

/// One range per rank, in rank order: no others within the capacities let the slowest rank end earlier. Where nobody's pace is known
/// they are as even as can be. Spares get the empty range at the end.
///
/// # Errors
/// [`NoRoom`] when the capacities do not cover `shards`.
pub fn steady(shards: u32, means: &[Means]) -> Result<Vec<Visit>, NoRoom> {
    let mut quotas = vec![0; means.len()];
    fill(&mut quotas, shards, means)?;
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
/// [`NoRoom`] when the capacities do not cover `shards`.
pub fn retry(shards: u32, seats: &[Seat]) -> Result<Vec<Visit>, NoRoom> {
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
    let mut quotas = load.clone();
    fill(&mut quotas, missing, &means)?;
    let mut rank = 0;
    for slot in owner.iter_mut().filter(|slot| slot.is_none()) {
        while load[rank] >= quotas[rank] {
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

/// Hands out so many shards more, one by one, each to the rank that has computed it first; every rank gets a first one before that.
/// As a rank's time only grows with its shards, none of them could be given away with profit: the slowest rank ends as early as can
/// be.
fn fill(loads: &mut [u32], wanted: u32, means: &[Means]) -> Result<(), NoRoom> {
    let free = loads
        .iter()
        .zip(means)
        .map(|(&load, means)| means.capacity.saturating_sub(load));
    let room = free.map(u64::from).sum();
    if room < u64::from(wanted) {
        return Err(NoRoom { room, shards: wanted });
    }
    let paces = paces(means);
    // When the rank would have computed one more. Of equals the lower rank comes first.
    let next = |rank: usize, load: u32| {
        let has_one = load > 0;
        let done = if has_one { paces[rank].of(load + 1) } else { Duration::ZERO };
        (load < means[rank].capacity).then_some(Reverse((has_one, done, rank)))
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

/// The pace of each rank. One that is not known is taken to be the median of the others; of two in the middle the faster, as who is
/// too slow for its shards is found out sooner than who could do more.
fn paces(means: &[Means]) -> Vec<Pace> {
    let mut known: Vec<Pace> = means.iter().filter_map(|means| means.pace).collect();
    known.sort_unstable();
    let median = known.get(known.len().saturating_sub(1) / 2).copied();
    // Where none is known, any will do.
    let usual = median.unwrap_or(Pace::new(Duration::ZERO));
    means.iter().map(|means| means.pace.unwrap_or(usual)).collect()
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

    fn room(capacity: u32) -> Means {
        Means { capacity, pace: None }
    }

    fn paced(capacity: u32, millis: u64) -> Means {
        let pace = Some(Pace::new(Duration::from_millis(millis)));
        Means { capacity, pace }
    }

    #[test]
    fn steady_is_even_and_respects_memory() {
        assert_eq!(
            ranges(&steady(8, &[9, 9, 9].map(room)).unwrap()),
            named(&[(0, "0..3"), (1, "3..6"), (2, "6..8")])
        );
        assert_eq!(
            ranges(&steady(8, &[9, 1, 9].map(room)).unwrap()),
            named(&[(0, "0..4"), (1, "4..5"), (2, "5..8")])
        );
        assert_eq!(
            ranges(&steady(2, &[4, 4, 4, 0].map(room)).unwrap()),
            named(&[(0, "0..1"), (1, "1..2"), (2, "2..2"), (3, "2..2")])
        );
        assert_eq!(steady(8, &[3, 4].map(room)), Err(NoRoom { room: 7, shards: 8 }));
    }

    #[test]
    fn the_fast_get_more_as_far_as_they_have_memory() {
        let all = steady(24, &[paced(24, 10), paced(24, 40)]).unwrap();
        assert_eq!(ranges(&all), named(&[(0, "0..20"), (1, "20..24")]));
        assert_eq!(slowest(&all, &[paced(24, 10), paced(24, 40)]), Duration::from_millis(200));
        let some = steady(24, &[paced(15, 10), paced(24, 40)]).unwrap();
        assert_eq!(ranges(&some), named(&[(0, "0..15"), (1, "15..24")]));
        // One that would hold all up keeps a shard, by which it is measured.
        let one = steady(4, &[paced(4, 1_000), paced(4, 1)]).unwrap();
        assert_eq!(ranges(&one), named(&[(0, "0..1"), (1, "1..4")]));
        // Who has told nothing is like the others.
        let new = steady(9, &[paced(9, 10), paced(9, 40), room(9)]).unwrap();
        assert_eq!(ranges(&new), named(&[(0, "0..4"), (1, "4..5"), (2, "5..9")]));
    }

    #[test]
    fn a_retry_leaves_gradients_where_they_are() {
        let seat = |kept: &[(u32, u32)]| Seat {
            means: room(8),
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

    #[test]
    fn in_a_retry_the_fast_compute_what_is_missing() {
        let seat = |millis, kept| Seat {
            means: paced(24, millis),
            kept: vec![kept],
        };
        // The third of three died, with the last seven shards. The slow one has fewer by far, and yet gets only one of them.
        let visits = retry(25, &[seat(10, ShardRange::new(0, 14)), seat(40, ShardRange::new(14, 18))]).unwrap();
        assert_eq!(
            ranges(&visits),
            named(&[(0, "0..14"), (1, "14..18"), (0, "18..24"), (1, "24..25")])
        );
    }

    fn means() -> impl Strategy<Value = Means> {
        let pace = proptest::option::of((0_u64..50_000).prop_map(|micros| Pace::new(Duration::from_micros(micros))));
        (1_u32..50, pace).prop_map(|(capacity, pace)| Means { capacity, pace })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_assignment_covers_each_shard_once(
            shards in 1_u32..40,
            seats in proptest::collection::vec((means(), 0_u32..40, 0_u32..10), 1..9),
        ) {
            let seats: Vec<Seat> = seats
                .into_iter()
                .map(|(means, start, len)| Seat { means, kept: vec![ShardRange::new(start, start + len)] })
                .collect();
            let room: u64 = seats.iter().map(|seat| u64::from(seat.means.capacity)).sum();
            let means: Vec<Means> = seats.iter().map(|seat| seat.means).collect();
            for visits in [retry(shards, &seats), steady(shards, &means)] {
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
                prop_assert!(load.iter().zip(&seats).all(|(load, seat)| *load <= seat.means.capacity));
                prop_assert!(seen.into_iter().all(|seen| seen));
            }
        }

        #[test]
        fn no_other_ranges_let_the_slowest_end_earlier(
            shards in 1_u32..40, means in proptest::collection::vec(means(), 1..9),
        ) {
            let Ok(visits) = steady(shards, &means) else { return Ok(()) };
            // Whoever computes would have to end sooner, with the shard that each must have: then they cannot have computed all.
            let end = slowest(&visits, &means);
            let paces = paces(&means);
            let most = |(means, pace): (&Means, &Pace)| {
                let sooner = (0..=means.capacity).take_while(|&load| pace.of(load) < end).last();
                sooner.unwrap_or(0)
            };
            let sooner: u32 = means.iter().zip(&paces).map(most).sum();
            let least = visits.iter().zip(&paces).any(|(visit, pace)| visit.shards.len() == 1 && pace.of(1) == end);
            prop_assert!(least || sooner < shards, "{visits:?} end after {end:?}");
        }

        #[test]
        fn equal_paces_make_even_ranges(shards in 1_u32..200, ranks in 1_usize..9, millis in 0_u64..100) {
            let visits = steady(shards, &vec![paced(shards, millis); ranks]).unwrap();
            prop_assert_eq!(&visits, &steady(shards, &vec![room(shards); ranks]).unwrap());
            let loads = visits.iter().map(|visit| visit.shards.len());
            prop_assert!(loads.clone().max().unwrap() - loads.min().unwrap() <= 1);
        }
    }
}
