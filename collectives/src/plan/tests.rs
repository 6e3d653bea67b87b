//! Properties of plans, by playing them with shard names in place of floats.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

fn visit(rank: u32, start: u32, end: u32) -> Visit {
    Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(start, end),
    }
}

/// Visits of up to eight ranks, each at least once, some twice, spares last.
fn visits() -> impl Strategy<Value = (u32, Vec<Visit>)> {
    (1_u32..=8, 0_u32..=2).prop_flat_map(|(busy, spares)| {
        let ranks = Just((0..busy).collect::<Vec<_>>()).prop_shuffle();
        let again = prop::collection::vec(0..busy, 0..4);
        (ranks, again, Just(spares)).prop_flat_map(|(ranks, again, spares)| {
            let stays: Vec<u32> = ranks.into_iter().chain(again).collect();
            let lengths = prop::collection::vec(1_u32..4, stays.len());
            (Just(stays), lengths, Just(spares)).prop_map(|(stays, lengths, spares)| {
                let mut next = 0;
                let mut visits = Vec::new();
                for (rank, length) in stays.iter().zip(lengths) {
                    visits.push(visit(*rank, next, next + length));
                    next += length;
                }
                let busy = stays.iter().max().map_or(0, |rank| rank + 1);
                visits.extend((busy..busy + spares).map(|rank| visit(rank, next, next)));
                (busy + spares, visits)
            })
        })
    })
}

fn check_hops(plan: &Plan) {
    for (index, hop) in plan.hops().iter().enumerate() {
        assert_eq!(usize::from(hop.id), index);
        assert_ne!(hop.from, hop.to);
        assert!(hop.from.get() < plan.world_size() && hop.to.get() < plan.world_size());
    }
}

fn ordered_parts(plan: &Plan) -> Vec<OrderedPart> {
    let part = |rank| match plan.part(Rank::new(rank)) {
        Some(Part::Ordered(part)) => part,
        other => panic!("an exact plan has ordered parts, found {other:?}"),
    };
    (0..plan.world_size()).map(part).collect()
}

fn play_ordered(plan: &Plan) {
    let parts = ordered_parts(plan);
    let mut by_source: BTreeMap<Option<HopId>, (Rank, Stay)> = BTreeMap::new();
    for (rank, part) in (0..).map(Rank::new).zip(&parts) {
        for stay in &part.stays {
            assert!(by_source.insert(stay.from, (rank, *stay)).is_none(), "one stay per hop");
        }
    }
    let mut added = Vec::new();
    let mut used = BTreeSet::new();
    let mut from = None;
    let closer = loop {
        let (rank, stay) = by_source.remove(&from).expect("the running sum arrives at a stay");
        if let Some(hop) = from {
            assert_eq!(plan.hops()[usize::from(hop)].to, rank);
            assert!(used.insert(hop));
        }
        added.extend(stay.shards.iter());
        match stay.to {
            Some(hop) => {
                assert_eq!(plan.hops()[usize::from(hop)].from, rank);
                from = Some(hop);
            }
            None => break rank,
        }
    };
    assert!(by_source.is_empty(), "every stay is visited");
    assert_eq!(added, (0..plan.shards()).collect::<Vec<_>>(), "shards in order, each once");
    assert_eq!(closer, plan.closer());

    let mut have = BTreeSet::from([closer]);
    let mut rank = closer;
    assert_eq!(parts[rank.index()].sum_from, None);
    while let Some(hop) = parts[rank.index()].sum_to {
        assert!(used.insert(hop));
        assert_eq!(plan.hops()[usize::from(hop)].from, rank);
        rank = plan.hops()[usize::from(hop)].to;
        assert_eq!(parts[rank.index()].sum_from, Some(hop));
        assert!(have.insert(rank), "each rank gets the sum once");
    }
    assert_eq!(have.len(), parts.len(), "every rank gets the sum");
    assert_eq!(used.len(), plan.hops().len(), "every hop is used");
}

/// Plays the ring with sets of ranks for sums; a rank sends what it made of its receipts, in order.
fn play_ring(plan: &Plan, chunks: u32) {
    let parts: Vec<RingPart> = (0..plan.world_size())
        .map(|rank| match plan.part(Rank::new(rank)) {
            Some(Part::Ring(part)) => part,
            other => panic!("a fast plan has ring parts, found {other:?}"),
        })
        .collect();
    let world = parts.len();
    let everybody: BTreeSet<usize> = (0..world).collect();
    let mut ready: Vec<VecDeque<BTreeSet<usize>>> = Vec::new();
    for (rank, part) in parts.iter().enumerate() {
        ready.push((0..part.own(chunks)).map(|_| BTreeSet::from([rank])).collect());
    }
    let mut sends: Vec<_> = parts.iter().map(|part| part.sends(chunks)).collect();
    let mut receives: Vec<_> = parts.iter().map(|part| part.receives(chunks)).collect();
    let mut sums: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); world];
    loop {
        let mut moved = false;
        for rank in 0..world {
            while let Some(mut value) = ready[rank].pop_front() {
                let Some(sent) = sends[rank].next() else {
                    continue; // The last round's receipts stay.
                };
                moved = true;
                let next = (rank + 1) % world;
                assert_eq!(receives[next].next(), Some(sent));
                match sent {
                    RingMove::Partial { chunk } => {
                        assert!(value.insert(next), "each rank adds once");
                        if value == everybody {
                            assert!(sums[next].insert(chunk));
                        }
                    }
                    RingMove::Sum { chunk } => {
                        assert_eq!(value, everybody);
                        assert!(sums[next].insert(chunk));
                    }
                }
                ready[next].push_back(value);
            }
        }
        if !moved {
            break;
        }
    }
    let all: BTreeSet<u32> = (0..chunks).collect();
    for rank in 0..world {
        assert_eq!(sends[rank].next(), None, "nothing is left to send");
        assert!(world == 1 || sums[rank] == all, "every rank has every chunk");
    }
}

fn trailer_reaches(plan: &Plan) -> usize {
    let part = |rank: u32| match plan.part(Rank::new(rank)) {
        Some(Part::Ring(part)) => part,
        other => panic!("a fast plan has ring parts, found {other:?}"),
    };
    let mut rank = plan.closer().get();
    let mut reached = 1;
    assert!(!part(rank).trailer_comes);
    while part(rank).trailer_goes {
        rank = (rank + 1) % plan.world_size();
        assert!(part(rank).trailer_comes);
        reached += 1;
    }
    reached
}

proptest! {
    #[test]
    fn ordered_adds_every_shard_once_in_order_and_everybody_gets_the_sum((world, visits) in visits()) {
        let plan = Plan::new(Order::Exact, world, &visits).unwrap();
        check_hops(&plan);
        play_ordered(&plan);
    }

    #[test]
    fn ring_adds_every_rank_once_and_everybody_gets_the_sum((world, visits) in visits(), chunks in 1_u32..40) {
        let plan = Plan::new(Order::Fast, world, &visits).unwrap();
        check_hops(&plan);
        play_ring(&plan, chunks);
        prop_assert_eq!(trailer_reaches(&plan), world as usize);
        let mut shards: Vec<u32> = (0..world)
            .flat_map(|rank| plan.part(Rank::new(rank)).unwrap().shards())
            .flat_map(ShardRange::iter)
            .collect();
        shards.sort_unstable();
        prop_assert_eq!(shards, (0..plan.shards()).collect::<Vec<_>>());
    }
}

#[test]
fn consecutive_visits_of_a_rank_need_no_hop() {
    let visits = [visit(0, 0, 3), visit(0, 3, 4), visit(1, 4, 5)];
    let plan = Plan::new(Order::Exact, 2, &visits).unwrap();
    let hop = |id, from, to| Hop {
        id,
        from: Rank::new(from),
        to: Rank::new(to),
    };
    assert_eq!(plan.hops(), [hop(0, 0, 1), hop(1, 1, 0)]);
    let first = Stay {
        shards: ShardRange::new(0, 4),
        from: None,
        to: Some(0),
    };
    let part = OrderedPart {
        stays: vec![first],
        sum_from: Some(1),
        sum_to: None,
    };
    assert_eq!(plan.part(Rank::ZERO), Some(Part::Ordered(part)));
    assert_eq!(plan.part(Rank::new(2)), None);
}

#[test]
fn the_drawn_example_is_true() {
    let visits = [visit(0, 0, 3), visit(1, 3, 5), visit(0, 5, 6), visit(2, 6, 8)];
    let plan = Plan::new(Order::Exact, 3, &visits).unwrap();
    let pairs: Vec<_> = plan.hops().iter().map(|hop| (hop.from.get(), hop.to.get())).collect();
    assert_eq!(pairs, [(0, 1), (1, 0), (0, 2), (2, 0), (0, 1)]);
    assert_eq!(plan.shards(), 8);
}

#[test]
fn one_rank_needs_no_hop() {
    for order in [Order::Exact, Order::Fast] {
        let plan = Plan::new(order, 1, &[visit(0, 0, 5)]).unwrap();
        assert_eq!((plan.hops(), plan.closer(), plan.shards()), (&[][..], Rank::ZERO, 5));
    }
}

#[test]
fn visits_that_break_gen_2_are_refused() {
    let refused = |world, visits: &[Visit]| Plan::new(Order::Exact, world, visits).unwrap_err();
    assert_eq!(refused(0, &[visit(0, 0, 1)]), PlanError::WorldSize { found: 0 });
    assert_eq!(refused(MAX_WORKERS + 1, &[]), PlanError::WorldSize { found: MAX_WORKERS + 1 });
    assert_eq!(refused(1, &[]), PlanError::Shards { found: 0 });
    assert_eq!(
        refused(1, &[visit(0, 0, MAX_SHARDS + 1)]),
        PlanError::Shards { found: MAX_SHARDS + 1 }
    );
    assert_eq!(
        refused(1, &[visit(1, 0, 1)]),
        PlanError::UnknownRank {
            world_size: 1,
            found: Rank::new(1)
        }
    );
    assert_eq!(
        refused(2, &[visit(0, 0, 1)]),
        PlanError::MissingRank { missing: Rank::new(1) }
    );
    assert_eq!(
        refused(2, &[visit(0, 0, 0), visit(1, 0, 1)]),
        PlanError::EmptyFirst { rank: Rank::ZERO }
    );
    for second in [ShardRange::new(2, 3), ShardRange::new(0, 2)] {
        let visits = [
            visit(0, 0, 1),
            Visit {
                rank: Rank::new(1),
                shards: second,
            },
        ];
        assert_eq!(
            refused(2, &visits),
            PlanError::Gap {
                expected: 1,
                found: second
            }
        );
    }
    let many = vec![visit(0, 0, 1); MAX_VISITS + 1];
    assert_eq!(refused(1, &many), PlanError::TooManyVisits { found: MAX_VISITS + 1 });
    let far = [visit(0, 0, 1), visit(0, 1, u32::MAX), visit(0, u32::MAX, u32::MAX)];
    assert_eq!(refused(1, &far), PlanError::Shards { found: u32::MAX });
}
