//! The same of direct plans, and when they are picked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

fn direct_parts(plan: &Plan) -> Vec<DirectPart> {
    let part = |part: &Part| match part {
        Part::Direct(part) => part.clone(),
        Part::Ordered(_) | Part::Ring(_) => panic!("a direct plan has direct parts"),
    };
    plan.parts().iter().map(part).collect()
}

/// Lets all ranks bring their shards to each owner, hop by hop, and the owners add them and tell all others. Which ranks are owners, by turn.
fn play_direct(plan: &Plan, shards: u32) -> Vec<Rank> {
    let parts = direct_parts(plan);
    let ranks = || (0..).map(Rank::new).zip(&parts);
    let turns = parts[0].owners.len();
    assert!(parts.iter().all(|part| part.owners.len() == turns), "all agree on the turns");
    let mut owners = Vec::new();
    for turn in 0..turns {
        let mut brought: BTreeMap<HopId, VecDeque<ShardRange>> = BTreeMap::new();
        let (mut here, mut waiting) = (Vec::new(), BTreeSet::new());
        for (rank, part) in ranks() {
            match &part.owners[turn] {
                Owner::Here(adding) => here.push((rank, part, adding)),
                Owner::There { to, sum_from } => {
                    let runs = part.brings.iter().copied().collect();
                    assert!(brought.insert(to.hop, runs).is_none(), "a hop of its own");
                    assert!(waiting.insert((sum_from.hop, rank)), "a hop of its own");
                }
            }
        }
        let [(owner, part, adding)] = here[..] else {
            panic!("{} owners in turn {turn}", here.len())
        };
        let mut own: VecDeque<ShardRange> = part.brings.iter().copied().collect();
        let mut added = Vec::new();
        for run in &adding.adds {
            let from = match run.from {
                Some(end) => brought.get_mut(&end.hop).unwrap(),
                None => &mut own,
            };
            assert_eq!(from.pop_front(), Some(run.shards), "what is brought is what is added");
            added.extend(run.shards.iter());
        }
        assert_eq!(added, (0..shards).collect::<Vec<_>>(), "shards in order, each once");
        assert!(own.is_empty() && brought.values().all(VecDeque::is_empty), "all is added");
        let told: BTreeSet<(HopId, Rank)> = adding.sums_to.iter().map(|end| (end.hop, end.peer)).collect();
        assert_eq!(told, waiting, "every rank is told");
        owners.push(owner);
    }
    owners
}

proptest! {
    #[test]
    fn each_owner_adds_every_shard_once_in_order_and_every_rank_gets_the_sum((world, visits) in visits()) {
        let shards = visits.last().unwrap().shards.end();
        let closer = visits.last().unwrap().rank;
        let played = |owners| {
            let plan = checked(Plan::direct(world, &visits, owners), Order::Exact, world, &visits);
            play_direct(&plan, shards)
        };
        prop_assert_eq!(played(Owners::Closer), [closer]);
        let mut all = played(Owners::All);
        prop_assert_eq!(all[0], closer, "who closes sums does so in any plan");
        all.sort_unstable();
        prop_assert_eq!(all, (0..world).map(Rank::new).collect::<Vec<_>>());
    }

    #[test]
    fn the_fastest_plan_of_small_gradients_is_a_star((world, visits) in visits(), fast: bool) {
        let order = if fast { Order::Fast } else { Order::Exact };
        let hosts = if fast { Hosts::Apart } else { Hosts::Same };
        let small = Plan::fastest(order, world, &visits, 4 << 10, hosts);
        let star = Plan::direct(world, &visits, Owners::Closer);
        prop_assert_eq!(small == star, order == Order::Exact && world > 2);
    }
}

#[test]
fn the_drawn_direct_plan_is_true() {
    let visits = [visit(0, 0, 3), visit(1, 3, 5), visit(2, 5, 8)];
    let plan = Plan::direct(3, &visits, Owners::All);
    let pairs: Vec<_> = plan.hops().iter().map(|hop| (hop.from.get(), hop.to.get())).collect();
    let [first, second, third] = [
        [(0, 2), (2, 0), (1, 2), (2, 1)],
        [(1, 0), (0, 1), (2, 0), (0, 2)],
        [(0, 1), (1, 0), (2, 1), (1, 2)],
    ];
    assert_eq!(pairs, [first, second, third].concat());
    assert!((0..).zip(plan.hops()).all(|(id, hop)| hop.id == id));
    let star = Plan::direct(3, &visits, Owners::Closer);
    assert_eq!(star.hops(), &plan.hops()[..4]);
}

/// As many shards for each rank; `s` if the fastest plan of gradients of so many KiB is a star, `d` if all own chunks, `o` if it is ordered.
fn fastest(world: u32, each: u32, kibibytes: u64, hosts: Hosts) -> char {
    let visits: Vec<Visit> = (0..world).map(|rank| visit(rank, rank * each, (rank + 1) * each)).collect();
    let plan = Plan::fastest(Order::Exact, world, &visits, kibibytes << 10, hosts);
    let direct = |owners| plan == Plan::direct(world, &visits, owners);
    match (direct(Owners::Closer), direct(Owners::All)) {
        (true, false) => 's',
        (false, true) => 'd',
        (false, false) => 'o',
        (true, true) => panic!("one owner is not all"),
    }
}

#[test]
fn which_plan_is_fastest_follows_from_bytes_ranks_and_shards() {
    let sizes = [64, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 64 << 10];
    let fastest = |world, each, hosts| -> String { sizes.map(|size| fastest(world, each, size, hosts)).iter().collect() };
    assert_eq!(fastest(2, 1, Hosts::Apart), "ooooooo");
    assert_eq!(
        fastest(4, 1, Hosts::Apart),
        "sdddooo",
        "with a chunk for each owner and four at most"
    );
    assert_eq!(fastest(16, 1, Hosts::Apart), "soodddo", "the same");
    assert_eq!(fastest(17, 1, Hosts::Apart), "soooooo", "too many links");
    assert_eq!(fastest(8, 2, Hosts::Apart), "soddooo", "half as many bytes again");
    assert_eq!(fastest(8, 8, Hosts::Apart), "ooooooo", "eight times the gradients");
    assert_eq!(fastest(2, 1, Hosts::Same), "ooooooo");
    assert_eq!(
        fastest(4, 1, Hosts::Same),
        "sdddddo",
        "with a chunk for each owner, as far as links may hold"
    );
    assert_eq!(fastest(8, 1, Hosts::Same), "soddddo", "the same");
    assert_eq!(fastest(9, 1, Hosts::Same), "soooooo", "too many links");
    assert_eq!(fastest(8, 8, Hosts::Same), "ooooooo", "eight times the gradients");
    assert_eq!(
        fastest(2, 1, Hosts::SharingMemory),
        "odddddd",
        "of any size, with a chunk for each owner"
    );
    assert_eq!(
        fastest(2, 2, Hosts::SharingMemory),
        "ooooooo",
        "no hop is saved that would pay for a third gradient"
    );
    assert_eq!(fastest(4, 1, Hosts::SharingMemory), "sdddddd");
    assert_eq!(fastest(8, 2, Hosts::SharingMemory), "soddddd");
    assert_eq!(fastest(8, 8, Hosts::SharingMemory), "ooooooo", "eight times the gradients");
    let uneven = [visit(0, 0, 3), visit(1, 3, 6), visit(2, 6, 8)];
    for (bytes, direct) in [(600_000, true), (64 << 20, false)] {
        let plan = Plan::fastest(Order::Exact, 3, &uneven, bytes, Hosts::SharingMemory);
        let of_rank_1 = "three gradients, which others do not read where they lie: only where that is as good as nothing";
        assert_eq!(plan == Plan::direct(3, &uneven, Owners::All), direct, "{of_rank_1}");
        assert_eq!(plan, Plan::fastest(Order::Exact, 3, &uneven, bytes, Hosts::Same));
    }
    assert_eq!(fastest(9, 1, Hosts::SharingMemory), "soooooo", "too many links");
    assert_eq!(
        fastest(8, 1, Hosts::Mixed),
        "soooooo",
        "some have neighbours, and some have not"
    );
}

#[test]
fn gradients_on_devices_are_passed_by_the_sum_or_go_in_a_star() {
    for world in [2, 3, 4, 8] {
        let visits: Vec<Visit> = (0..world).map(|rank| visit(rank, rank, rank + 1)).collect();
        for (bytes, small) in [(4 << 10, world > 2), (2 << 20, false), (64 << 20, false)] {
            let plan = Plan::fastest_on_devices(Order::Exact, world, &visits, bytes);
            let expected = if small {
                Plan::direct(world, &visits, Owners::Closer)
            } else {
                Plan::new(Order::Exact, world, &visits)
            };
            assert_eq!(plan, expected, "{bytes} bytes, {world} ranks");
        }
    }
}

/// The owner that a rank is.
fn here(part: &mut DirectPart) -> &mut Adding {
    let mut owners = part.owners.iter_mut().filter_map(|owner| match owner {
        Owner::Here(adding) => Some(adding),
        Owner::There { .. } => None,
    });
    owners.next().unwrap()
}

/// Another one of a rank's owners: where its gradients go, and whence the sum comes.
fn there(part: &mut DirectPart) -> (&mut HopEnd, &mut HopEnd) {
    let mut owners = part.owners.iter_mut().filter_map(|owner| match owner {
        Owner::Here(_) => None,
        Owner::There { to, sum_from } => Some((to, sum_from)),
    });
    owners.next().unwrap()
}

type DirectChange = fn(&mut DirectPart);

#[test]
fn a_part_of_a_direct_plan_that_cannot_be_executed_is_refused() {
    let visits = [visit(0, 0, 3), visit(1, 3, 5), visit(0, 5, 6), visit(2, 6, 8)];
    let check = |part: &DirectPart, rank: u32, world: u32| {
        let part = Part::Direct(part.clone());
        part.check(Order::Exact, Rank::new(rank), world, 8)
    };
    let of_an_owner: [DirectChange; 11] = [
        |part| here(part).adds.clear(),
        |part| here(part).adds[1].shards = ShardRange::new(2, 5),
        |part| here(part).adds[3].shards = ShardRange::new(6, 9),
        |part| here(part).adds.swap(0, 1),
        |part| here(part).adds[1].from = here(part).adds[0].from,
        |part| here(part).sums_to.truncate(1),
        |part| here(part).sums_to[1] = here(part).sums_to[0],
        |part| part.brings.clear(),
        |part| part.brings[0] = ShardRange::new(7, 8),
        |part| part.owners.push(part.owners[0].clone()),
        |part| part.owners.clear(),
    ];
    let of_any: [DirectChange; 6] = [
        |part| part.brings.clear(),
        |part| part.brings.reverse(),
        |part| there(part).0.peer = Rank::new(1),
        |part| there(part).1.peer = Rank::new(1),
        |part| part.brings[1] = ShardRange::new(7, 9),
        |part| part.owners.push(part.owners[0].clone()),
    ];
    for owners in [Owners::Closer, Owners::All] {
        let [other, _, owner] = direct_parts(&Plan::direct(3, &visits, owners)).try_into().unwrap();
        assert_eq!(check(&owner, 2, 3), Ok(()));
        assert_eq!(check(&other, 0, 3), Ok(()));
        assert!(check(&owner, 2, 4).is_err(), "one rank would never get the sum");
        assert_eq!(
            Part::Direct(owner.clone()).check(Order::Fast, Rank::new(2), 3, 8),
            Err(PartError::Order { expected: Order::Fast })
        );
        for (number, change) in of_an_owner.into_iter().enumerate() {
            let mut owner = owner.clone();
            change(&mut owner);
            assert!(check(&owner, 2, 3).is_err(), "change {number} of an owner, {owners:?}");
        }
        for (number, change) in of_any.into_iter().enumerate() {
            let mut other = other.clone();
            change(&mut other);
            assert!(check(&other, 0, 3).is_err(), "change {number}, {owners:?}");
        }
    }
}
