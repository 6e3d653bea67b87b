//! Examples of assignments, and what holds for all of them.

use proptest::prelude::*;

use super::*;

/// Visits in words that are short enough to compare.
fn words(visits: Result<Vec<Visit>, NoRoom>) -> Result<String, NoRoom> {
    let word = |visit: &Visit| format!("{} {}", visit.rank, visit.shards);
    visits.map(|visits| visits.iter().map(word).collect::<Vec<_>>().join(", "))
}

#[track_caller]
fn assert_steady(order: Order, shards: u32, means: &[Means], expected: &str) {
    assert_eq!(words(steady(order, shards, means)).as_deref(), Ok(expected));
}

#[track_caller]
fn assert_retry(shards: u32, seats: &[Seat], expected: &str) {
    assert_eq!(words(retry(Order::Exact, shards, seats)).as_deref(), Ok(expected));
}

/// It keeps these ranges of shards.
fn seat(means: Means, kept: &[(u32, u32)]) -> Seat {
    let kept = kept.iter().map(|&(start, end)| ShardRange::new(start, end)).collect();
    Seat { means, kept }
}

fn room_for(capacity: u32) -> Means {
    Means {
        capacity,
        pieces: u32::MAX,
        pace: None,
    }
}

fn paced(capacity: u32, millis: u64) -> Means {
    Means {
        pace: Some(Pace::new(Duration::from_millis(millis))),
        ..room_for(capacity)
    }
}

#[test]
fn steady_is_even_and_respects_memory() {
    assert_steady(Order::Exact, 8, &[9, 9, 9].map(room_for), "r0 0..3, r1 3..6, r2 6..8");
    assert_steady(Order::Exact, 8, &[9, 1, 9].map(room_for), "r0 0..4, r1 4..5, r2 5..8");
    let with_spares = "r0 0..1, r1 1..2, r2 2..2, r3 2..2";
    assert_steady(Order::Exact, 2, &[4, 4, 4, 0].map(room_for), with_spares);
    assert_eq!(
        steady(Order::Exact, 8, &[3, 4].map(room_for)),
        Err(NoRoom { room: 7, shards: 8 })
    );
}

#[test]
fn the_fast_get_more_as_far_as_they_have_memory() {
    let fast_and_slow = [paced(24, 10), paced(24, 40)];
    assert_steady(Order::Exact, 24, &fast_and_slow, "r0 0..20, r1 20..24");
    let all = steady(Order::Exact, 24, &fast_and_slow).unwrap();
    assert_eq!(slowest(&all, &fast_and_slow), Duration::from_millis(200));
    assert_steady(Order::Exact, 24, &[paced(15, 10), paced(24, 40)], "r0 0..15, r1 15..24");
    // A rank that would hold all up keeps a shard, by which it is measured.
    assert_steady(Order::Exact, 4, &[paced(4, 1_000), paced(4, 1)], "r0 0..1, r1 1..4");
    // A rank that has told nothing is like the others.
    let one_is_new = [paced(9, 10), paced(9, 40), room_for(9)];
    assert_steady(Order::Exact, 9, &one_is_new, "r0 0..4, r1 4..5, r2 5..9");
}

#[test]
fn a_retry_leaves_gradients_where_they_are() {
    let keep = |kept: [(u32, u32); 3]| kept.map(|kept| seat(room_for(8), &[kept]));
    // Rank 1 of four died: its two shards go to two of the survivors, no other shard moves.
    assert_retry(8, &keep([(0, 2), (4, 6), (6, 8)]), "r0 0..3, r1 3..6, r2 6..8");
    // Rank 0 of four died: the others are visited twice.
    let twice = "r0 0..1, r1 1..2, r0 2..4, r1 4..6, r2 6..8";
    assert_retry(8, &keep([(2, 4), (4, 6), (6, 8)]), twice);
}

#[test]
fn in_a_retry_the_fast_compute_what_is_missing() {
    // The third of three died, with the last seven shards. The slow one has fewer by far, and yet gets only one of them.
    let seats = [seat(paced(24, 10), &[(0, 14)]), seat(paced(24, 40), &[(14, 18)])];
    assert_retry(25, &seats, "r0 0..14, r1 14..18, r0 18..24, r1 24..25");
}

fn scarce(pieces: u32) -> Means {
    Means { pieces, ..room_for(99) }
}

#[test]
fn the_first_rank_computes_what_the_others_cannot_hold() {
    assert_steady(Order::Exact, 24, &[4, 4, 4].map(scarce), "r0 0..16, r1 16..20, r2 20..24");
    assert_steady(Order::Exact, 99, &[scarce(1)], "r0 0..99");
    // Where all have room for even ranges it is no exception, and in fast order no worker keeps gradients apart.
    for (order, means) in [(Order::Exact, [8, 8, 8]), (Order::Fast, [1, 1, 1])] {
        assert_steady(order, 24, &means.map(scarce), "r0 0..8, r1 8..16, r2 16..24");
    }
    // What a person has set binds all.
    let set = Means {
        capacity: 7,
        ..scarce(4)
    };
    let no_room = Err(NoRoom { room: 15, shards: 24 });
    assert_eq!(steady(Order::Exact, 24, &[set, set, set]), no_room);
}

#[test]
fn a_retry_is_none_where_memory_does_not_hold_what_is_kept_and_what_is_missing() {
    // The last of three died: its shards are pieces of their own, and the running sum is one.
    let running = seat(scarce(4), &[(0, 16)]);
    let both = [running.clone(), seat(scarce(4), &[(16, 17), (17, 18)])];
    assert_retry(20, &both, "r0 0..16, r1 16..20");
    assert!(retry(Order::Exact, 24, &both).is_err());
    assert_retry(19, std::slice::from_ref(&running), "r0 0..19");
    assert!(retry(Order::Exact, 20, &[running]).is_err());
    // The first died: the next begins the sum anew, with one piece for all that is missing there.
    let next = |pieces| [seat(scarce(pieces), &[(10, 11), (11, 12)])];
    assert_retry(12, &next(3), "r0 0..12");
    assert!(retry(Order::Exact, 12, &next(2)).is_err());
}

/// What a worker may have of a step: the running sum from shard 0 on, or single shards.
fn kept(start: u32, len: u32) -> Vec<ShardRange> {
    match start {
        0 => (len > 0).then_some(ShardRange::new(0, len)).into_iter().collect(),
        _ => (start..start + len).map(ShardRange::one).collect(),
    }
}

fn means() -> impl Strategy<Value = Means> {
    let pace = proptest::option::of((0_u64..50_000).prop_map(|micros| Pace::new(Duration::from_micros(micros))));
    let pieces = prop_oneof![Just(u32::MAX), 1_u32..20];
    (1_u32..50, pieces, pace).prop_map(|(capacity, pieces, pace)| Means { capacity, pieces, pace })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_assignment_covers_each_shard_once(
        shards in 1_u32..40,
        seats in proptest::collection::vec((means(), prop_oneof![Just(0), 0_u32..40], 0_u32..10), 1..9),
    ) {
        let seats: Vec<Seat> = seats.into_iter().map(|(means, start, len)| Seat { means, kept: kept(start, len) }).collect();
        let means: Vec<Means> = seats.iter().map(|seat| seat.means).collect();
        let scarce = means.iter().any(|means| means.pieces < u32::MAX);
        for order in [Order::Exact, Order::Fast] {
            let nothing_kept: Vec<Seat> = means.iter().map(|&means| Seat { means, kept: vec![] }).collect();
            let retried = retry(order, shards, &seats);
            let begun = steady(order, shards, &means);
            prop_assert_eq!(begun.is_ok(), room(order, means.iter().copied()) >= u64::from(shards));
            // What is kept may take the room of what is missing.
            prop_assert!(scarce || retried.is_ok() == begun.is_ok());
            for (visits, seats) in [(retried, &seats), (begun, &nothing_kept)] {
                let Ok(visits) = visits else { continue };
                let mut next = 0;
                let mut runs = vec![vec![]; seats.len()];
                for visit in &visits {
                    prop_assert_eq!(visit.shards.start(), next);
                    next = visit.shards.end();
                    runs[visit.rank.index()].push(visit.shards);
                }
                prop_assert_eq!(next, shards);
                for (runs, Seat { means, kept }) in runs.iter().zip(seats) {
                    prop_assert!(!runs.is_empty());
                    prop_assert!(runs.iter().map(|run| run.len()).sum::<u32>() <= means.capacity);
                    prop_assert!(pieces_held(order, kept, runs) <= means.pieces as usize, "{means:?} {runs:?}");
                }
            }
        }
    }

    #[test]
    fn no_other_ranges_let_the_slowest_end_earlier(
        shards in 1_u32..40, means in proptest::collection::vec(means(), 1..9),
    ) {
        let Ok(visits) = steady(Order::Exact, shards, &means) else { return Ok(()) };
        // Each that computes would have to end sooner, with the shard that it must have: then they cannot have computed all.
        let end = slowest(&visits, &means);
        let paces = paces(&means);
        let most = |(rank, (means, pace)): (usize, (&Means, &Pace))| {
            let most = steady_most(Order::Exact, rank, *means);
            (0..=most).take_while(|&load| pace.of(load) < end).last().unwrap_or(0)
        };
        let sooner: u32 = means.iter().zip(&paces).enumerate().map(most).sum();
        let least = visits.iter().zip(&paces).any(|(visit, pace)| visit.shards.len() == 1 && pace.of(1) == end);
        prop_assert!(least || sooner < shards, "{visits:?} end after {end:?}");
    }

    #[test]
    fn equal_paces_make_even_ranges(shards in 1_u32..200, ranks in 1_usize..9, millis in 0_u64..100) {
        let visits = steady(Order::Exact, shards, &vec![paced(shards, millis); ranks]).unwrap();
        prop_assert_eq!(&visits, &steady(Order::Exact, shards, &vec![room_for(shards); ranks]).unwrap());
        let loads = visits.iter().map(|visit| visit.shards.len());
        prop_assert!(loads.clone().max().unwrap() - loads.min().unwrap() <= 1);
    }
}
