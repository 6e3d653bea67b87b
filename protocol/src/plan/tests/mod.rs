//! Properties of plans, by playing them with shard names in place of floats.

mod direct;

use std::collections::{BTreeMap, BTreeSet};

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
            let ranks: Vec<u32> = ranks.into_iter().chain(again).collect();
            let lengths = prop::collection::vec(1_u32..4, ranks.len());
            (Just(ranks), lengths, Just(spares)).prop_map(|(ranks, lengths, spares)| {
                let mut next = 0;
                let mut visits = Vec::new();
                for (rank, length) in ranks.iter().zip(lengths) {
                    visits.push(visit(*rank, next, next + length));
                    next += length;
                }
                let busy = ranks.iter().max().map_or(0, |rank| rank + 1);
                visits.extend((busy..busy + spares).map(|rank| visit(rank, next, next)));
                (busy + spares, visits)
            })
        })
    })
}

fn plan(order: Order, world: u32, visits: &[Visit]) -> Plan {
    checked(Plan::new(order, world, visits), order, world, visits)
}

/// The plan, each of whose hops has both its ends, and each of whose parts can be executed.
fn checked(plan: Plan, order: Order, world: u32, visits: &[Visit]) -> Plan {
    let shards = visits.last().unwrap().shards.end();
    for (rank, part) in (0..).map(Rank::new).zip(plan.parts()) {
        assert_eq!(part.check(order, rank, world, shards), Ok(()));
        let (onwards, backwards) = part.ends();
        let (from, to): (Vec<_>, Vec<_>) = (
            plan.hops()
                .iter()
                .filter(|hop| hop.from == rank)
                .map(|hop| hop.onwards())
                .collect(),
            plan.hops()
                .iter()
                .filter(|hop| hop.to == rank)
                .map(|hop| hop.backwards())
                .collect(),
        );
        assert_eq!((sorted(onwards), sorted(backwards)), (from, to), "each hop has both its ends");
    }
    assert_eq!(plan.parts().len(), world as usize);
    plan
}

fn sorted(mut ends: Vec<HopEnd>) -> Vec<HopEnd> {
    ends.sort_by_key(|end| end.hop);
    ends
}

fn ordered_parts(plan: &Plan) -> Vec<OrderedPart> {
    let part = |part: &Part| match part {
        Part::Ordered(part) => part.clone(),
        Part::Ring(_) | Part::Direct(_) => panic!("an exact plan has ordered parts"),
    };
    plan.parts().iter().map(part).collect()
}

/// Follows the running sum from visit to visit, and the finished one back.
fn play_ordered(plan: &Plan, shards: u32) {
    let parts = ordered_parts(plan);
    let mut by_source: BTreeMap<Option<HopId>, (Rank, VisitPart)> = BTreeMap::new();
    for (rank, part) in (0..).map(Rank::new).zip(&parts) {
        for visit in &part.visits {
            let source = visit.from.map(|end| end.hop);
            assert!(by_source.insert(source, (rank, *visit)).is_none(), "one visit per hop");
        }
    }
    let mut added = Vec::new();
    let mut used = BTreeSet::new();
    let mut from: Option<HopEnd> = None;
    let mut before = None;
    let closer = loop {
        let (rank, visit) = by_source
            .remove(&from.map(|end| end.hop))
            .expect("the running sum arrives at a visit");
        if let Some(end) = from {
            assert_eq!((end.peer, visit.from.map(|end| end.peer)), (rank, before));
            assert!(used.insert(end.hop));
        }
        added.extend(visit.shards.iter());
        match visit.to {
            Some(end) => (from, before) = (Some(end), Some(rank)),
            None => break rank,
        }
    };
    assert!(by_source.is_empty(), "every visit is visited");
    assert_eq!(added, (0..shards).collect::<Vec<_>>(), "shards in order, each once");

    let mut have = BTreeSet::from([closer]);
    let mut rank = closer;
    assert_eq!(parts[rank.index()].sum_from, None);
    while let Some(end) = parts[rank.index()].sum_to {
        assert!(used.insert(end.hop));
        let back = HopEnd {
            hop: end.hop,
            peer: rank,
        };
        rank = end.peer;
        assert_eq!(parts[rank.index()].sum_from, Some(back));
        assert!(have.insert(rank), "each rank gets the sum once");
    }
    assert_eq!(have.len(), parts.len(), "every rank gets the sum");
    assert_eq!(used.len(), plan.hops().len(), "every hop is used");
}

proptest! {
    #[test]
    fn ordered_adds_every_shard_once_in_order_and_every_rank_gets_the_sum((world, visits) in visits()) {
        let shards = visits.last().unwrap().shards.end();
        play_ordered(&plan(Order::Exact, world, &visits), shards);
    }

    #[test]
    fn the_fastest_plan_of_large_gradients_is_the_general_one((world, visits) in visits(), fast: bool) {
        let order = if fast { Order::Fast } else { Order::Exact };
        for bytes in [64 << 20, u64::MAX] {
            let fastest = Plan::fastest(order, world, &visits, bytes, Hosts::Apart);
            prop_assert_eq!(fastest, Plan::new(order, world, &visits));
        }
    }

    #[test]
    fn a_ring_leads_from_each_rank_to_the_next_and_brings_every_shard_once((world, visits) in visits()) {
        let plan = plan(Order::Fast, world, &visits);
        let ways: Vec<(u32, u32)> = plan.hops().iter().map(|hop| (hop.from.get(), hop.to.get())).collect();
        let expected: Vec<_> = (0..world).map(|rank| (rank, (rank + 1) % world)).filter(|_| world > 1).collect();
        prop_assert_eq!(ways, expected);
        let mut shards: Vec<u32> = plan.parts().iter().flat_map(Part::shards).flat_map(ShardRange::iter).collect();
        shards.sort_unstable();
        prop_assert_eq!(shards, (0..visits.last().unwrap().shards.end()).collect::<Vec<_>>());
    }
}

#[test]
fn consecutive_visits_of_a_rank_need_no_hop() {
    let visits = [visit(0, 0, 3), visit(0, 3, 4), visit(1, 4, 5)];
    let plan = Plan::new(Order::Exact, 2, &visits);
    let hop = |id, from, to| Hop {
        id,
        from: Rank::new(from),
        to: Rank::new(to),
    };
    assert_eq!(plan.hops(), [hop(0, 0, 1), hop(1, 1, 0)]);
    let end = |hop, peer| HopEnd {
        hop,
        peer: Rank::new(peer),
    };
    let first = VisitPart {
        shards: ShardRange::new(0, 4),
        from: None,
        to: Some(end(0, 1)),
    };
    let part = OrderedPart {
        visits: vec![first],
        sum_from: Some(end(1, 1)),
        sum_to: None,
    };
    assert_eq!(plan.part(Rank::ZERO), Some(&Part::Ordered(part)));
    assert_eq!(plan.part(Rank::new(2)), None);
}

#[test]
fn the_drawn_example_is_true() {
    let visits = [visit(0, 0, 3), visit(1, 3, 5), visit(0, 5, 6), visit(2, 6, 8)];
    let plan = Plan::new(Order::Exact, 3, &visits);
    let pairs: Vec<_> = plan.hops().iter().map(|hop| (hop.from.get(), hop.to.get())).collect();
    assert_eq!(pairs, [(0, 1), (1, 0), (0, 2), (2, 0), (0, 1)]);
}

#[test]
fn one_rank_needs_no_hop() {
    for order in [Order::Exact, Order::Fast] {
        assert_eq!(plan(order, 1, &[visit(0, 0, 5)]).hops(), []);
    }
}

type Change = fn(&mut OrderedPart);

#[test]
fn a_part_that_cannot_be_executed_is_refused() {
    let visits = [visit(0, 0, 3), visit(1, 3, 5), visit(0, 5, 6), visit(2, 6, 8)];
    let sound = |rank: u32| Plan::new(Order::Exact, 3, &visits).parts()[rank as usize].clone();
    let refused = |part: Part, rank: u32, world: u32| part.check(Order::Exact, Rank::new(rank), world, 8).unwrap_err();
    let changed = |rank: u32, change: Change| match sound(rank) {
        Part::Ordered(mut part) => {
            change(&mut part);
            refused(Part::Ordered(part), rank, 3)
        }
        Part::Ring(_) | Part::Direct(_) => panic!("an exact plan has ordered parts"),
    };
    for rank in 0..3 {
        assert_eq!(sound(rank).check(Order::Exact, Rank::new(rank), 3, 8), Ok(()));
    }
    for world in [0, MAX_WORKERS + 1, u32::MAX] {
        assert_eq!(refused(sound(0), 0, world), PartError::WorldSize { found: world });
    }
    let beyond = |found| PartError::UnknownRank {
        world_size: 2,
        found: Rank::new(found),
    };
    assert_eq!(refused(sound(0), 0, 2), beyond(2));
    assert_eq!(refused(sound(2), 2, 2), beyond(2));
    assert_eq!(
        Plan::new(Order::Fast, 3, &visits).parts()[0].check(Order::Exact, Rank::ZERO, 3, 8),
        Err(PartError::Order { expected: Order::Exact })
    );
    let shards: [Change; 3] = [
        |part| part.visits.reverse(),
        |part| part.visits[1].shards = ShardRange::new(2, 6),
        |part| part.visits[1].shards = ShardRange::new(5, 9),
    ];
    for change in shards {
        assert!(matches!(changed(0, change), PartError::Shards { shards: 8, .. }));
    }
    let hops: [(u32, Change); 8] = [
        (0, |part| part.visits.clear()),
        (0, |part| part.visits[0].shards = ShardRange::new(0, 0)),
        (0, |part| part.visits[1].from = None),
        (0, |part| part.visits[0].to = None),
        (0, |part| part.sum_from = None),
        (0, |part| part.visits[1].to = part.visits[0].to),
        (2, |part| part.sum_from = part.sum_to),
        (1, |part| part.visits[0].from.as_mut().unwrap().peer = Rank::new(1)),
    ];
    for (rank, change) in hops {
        let found = changed(rank, change);
        assert!(matches!(found, PartError::Hops { .. }), "{found}");
    }
    let ring = Plan::new(Order::Fast, 3, &visits);
    for (rank, world) in [(1, 3), (0, 4), (0, 1)] {
        let found = ring.parts()[0].check(Order::Fast, Rank::new(rank), world, 8);
        assert!(found.is_err(), "rank 0's part of three is not that of {rank} of {world}");
    }
}
