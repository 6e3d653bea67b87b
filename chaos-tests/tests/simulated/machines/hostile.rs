//! Certified peers that lie, to machines alone and from among honest ones.

use sardana_chaos_tests::dice::mix;
use sardana_chaos_tests::simulation::hostile::{End, Siege, Withstood, besiege_coordinator, besiege_worker};
use sardana_chaos_tests::simulation::story::Telling;
use sardana_protocol::job::Order;

/// As text no machine is ever longer than this: a coordinator of six workers and three depots that all lie, one among honest peers, a worker.
const COORDINATOR_BYTES: usize = 4 << 20;
const BESIEGED_BYTES: usize = 1 << 20;
const WORKER_BYTES: usize = 1 << 20;

/// Always the same seeds. The seed that fails is printed last.
fn seeds() -> impl Iterator<Item = u64> {
    (0..50).map(mix).inspect(|seed| println!("seed {seed}"))
}

/// How this goes. What must hold does, and the coordinator's machine is not large.
fn withstood(siege: Siege) -> Withstood {
    let withstood = siege.play(Telling::No);
    let Withstood { end, largest, .. } = &withstood;
    assert!(!matches!(end, End::Violated(_)), "{end:?}");
    assert!(*largest > 0 && *largest < BESIEGED_BYTES, "{largest} bytes");
    withstood
}

#[test]
fn a_coordinator_that_is_told_anything_does_not_end_and_does_not_grow() {
    let largest = seeds().map(|seed| besiege_coordinator(seed, 4_000)).max();
    println!("the coordinator was at most {largest:?} bytes of text");
    assert!(largest < Some(COORDINATOR_BYTES));
}

#[test]
fn a_worker_that_is_told_anything_does_not_end_and_does_not_grow() {
    let largest = seeds().map(|seed| besiege_worker(seed, 3_000)).max();
    println!("a worker was at most {largest:?} bytes of text");
    assert!(largest < Some(WORKER_BYTES));
}

#[test]
fn workers_that_lie_do_not_keep_the_honest_from_the_right_state() {
    for order in [Order::Exact, Order::Fast] {
        let sieges = seeds().map(Siege::drawn).filter(|siege| siege.order() == order);
        let all: Vec<Withstood> = sieges.map(withstood).collect();
        let well = all.iter().filter(|one| one.end == End::Well).count();
        println!("{order:?}: {well} of {} jobs ended well: {all:#?}", all.len());
        assert!(
            well * 3 > all.len() * 2,
            "{order:?}: {well} of {} ended well: {all:#?}",
            all.len()
        );
    }
}

#[test]
fn keepers_that_lie_to_joiners_do_not_keep_them_from_the_right_state() {
    for order in [Order::Exact, Order::Fast] {
        let sieges = seeds().map(Siege::of_keepers).filter(|siege| siege.order() == order);
        let all: Vec<Withstood> = sieges.map(withstood).collect();
        let misled: u64 = all.iter().map(|one| one.misled).sum();
        println!("{order:?}: joiners were handed {misled} lies in {} jobs", all.len());
        assert!(misled > 3, "{order:?}: {all:#?}");
        assert!(all.iter().all(|one| one.end == End::Well), "{order:?}: {all:#?}");
    }
}

#[test]
fn depots_and_agents_that_lie_do_not_keep_the_honest_from_the_right_state() {
    let sieges = seeds().map(Siege::of_others);
    let ends: Vec<End> = sieges.map(|siege| withstood(siege).end).collect();
    let well = ends.iter().filter(|end| **end == End::Well).count();
    println!("{well} of {} jobs ended well: {ends:#?}", ends.len());
    // A depot may keep a job from beginning, by a checkpoint of another job; and is then named.
    assert!(
        well * 2 > ends.len(),
        "{well} of {} jobs came to their end: {ends:?}",
        ends.len()
    );
    for end in &ends {
        if let End::Failed(reason) = end {
            assert!(reason.contains("can be resumed from"), "{reason}");
        }
    }
}
