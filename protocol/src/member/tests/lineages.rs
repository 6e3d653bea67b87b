//! What a worker knows of the sums that have led to its state, in fast order, where a step that is computed again may have other bits.

use super::*;
use crate::lineage::Lineage;
use crate::messages::{Snapshot, Standing};

/// A worker of a job in fast order.
fn fast() -> Member {
    Member::new(
        &JobSpec {
            order: Order::Fast,
            ..spec()
        },
        KEEPS,
    )
}

/// The seat at `rank` of two in g`count`, from `step` and this state on.
fn seat(count: u64, rank: u32, step: u64, lineage: Lineage) -> Form {
    let halves = [(0, shards(0, 2)), (1, shards(2, 4))];
    let members = (0..2).map(member).collect();
    let forms = Form::all(g(count), Order::Fast, s(step), members, [visits(&halves), visits(&halves)]);
    Form {
        lineage,
        ..forms[rank as usize].clone()
    }
}

/// A member of g1 that has its sum of s0.
fn led() -> Member {
    let mut worker = fast();
    form(&mut worker, seat(1, 0, 0, Lineage::default()));
    let _ = steps(&mut worker, 0, 0, Trailer::Continue);
    worker
}

fn standing(worker: &Member) -> Standing {
    worker.introduction().standing
}

fn of(last: Option<Generation>, before: Option<Generation>) -> Lineage {
    Lineage { last, before }
}

#[test]
fn each_sum_is_its_generations_also_if_a_halt_waits_for_the_update() {
    let mut worker = led();
    assert_eq!(standing(&worker).lineage, of(Some(g(1)), Some(Generation::NONE)));
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 1, 1, Trailer::Continue);
    let _ = halt(&mut worker, 2);
    let halted = apply(&mut worker, 1);
    assert_eq!(said(&halted)[0], "halted g1.2 at s2 with [0..2]");
    assert_eq!(standing(&worker).lineage, of(Some(g(1)), Some(g(1))));
}

#[test]
fn in_exact_order_all_states_are_alike() {
    let mut worker = seated(0);
    let _ = steps(&mut worker, 0, 0, Trailer::Continue);
    assert_eq!(standing(&worker).lineage, Lineage::default());
}

#[test]
fn a_member_that_has_another_state_says_so_in_place_of_beginning() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let other = of(Some(g(2)), Some(g(1)));
    let told = form(&mut worker, seat(3, 0, 1, other));
    assert_eq!(said(&told), ["halted g1.3 at s1 with [0..2]"]);
    let told = form(&mut worker, lacks_state(seat(4, 0, 1, other), 1));
    assert!(told.iter().any(|command| matches!(
        command,
        Command::Network(NetworkCommand::Fetch {
            what: Lacking::State,
            ..
        })
    )));
    let _ = fetched(&mut worker, 4, 1);
    let _ = load(&mut worker, 1);
    assert_eq!(standing(&worker).lineage, other, "it has that of the others now");
}

#[test]
fn a_member_that_lacks_a_sum_has_the_others_state_after_it() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let theirs = of(Some(g(1)), Some(g(1)));
    form(&mut worker, lacks_sum(seat(2, 0, 2, theirs), 1));
    let _ = fetched(&mut worker, 2, 1);
    let _ = apply(&mut worker, 1);
    assert_eq!(standing(&worker).lineage, theirs);
}

#[test]
fn a_joiner_knows_of_no_sum_whose_it_is_until_it_takes_its_seat() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let snapshot = snapshot(3, 1);
    let holders = vec![Some(member(1))];
    let taken = Snapshot {
        id: snapshot,
        holders,
        shares: vec![hash(1)],
    };
    let _ = worker.handle(Event::Ordered(CoordinatorMessage::Copy(Box::new(taken))));
    let _ = worker.handle(Event::Copied { snapshot });
    let _ = load(&mut worker, 1);
    assert_eq!(standing(&worker).lineage, of(None, None));
    let planned = Lineage::of(Order::Fast, g(3));
    let _ = prepare(&mut worker, seat(4, 0, 0, planned));
    let _ = worker.handle(Event::Followed {
        step: s(1),
        trailer: Trailer::Switch(g(4)),
        keeper_at: s(2),
    });
    let _ = apply(&mut worker, 1);
    assert_eq!(
        standing(&worker).lineage,
        planned,
        "the sum that let it in is that of the generation before"
    );
}

#[test]
fn what_another_state_had_summed_up_to_is_not_told() {
    let mut worker = led();
    let _ = steps(&mut worker, 0, 1, Trailer::Continue);
    let _ = halt(&mut worker, 2);
    // The others have computed s0 and s1 again, and are at s1.
    let snapshot = snapshot(3, 1);
    let taken = Snapshot {
        id: snapshot,
        holders: vec![Some(member(1))],
        shares: vec![hash(1)],
    };
    let _ = worker.handle(Event::Ordered(CoordinatorMessage::Copy(Box::new(taken))));
    let _ = worker.handle(Event::Copied { snapshot });
    let _ = load(&mut worker, 1);
    assert_eq!(worker.step(), s(1));
    let _ = prepare(&mut worker, seat(4, 0, 0, Lineage::of(Order::Fast, g(3))));
    let _ = worker.handle(Event::Followed {
        step: s(1),
        trailer: Trailer::Switch(g(4)),
        keeper_at: s(2),
    });
    let _ = apply(&mut worker, 1);
    let told = said(&beat(&mut worker, Heartbeat::Due(None)));
    assert_eq!(told, ["progress g1.4 s2 [s1]"], "the s1 that the others know of");
}
