//! What a worker knows of the sums that have led to its state, in fast order, where a step that is computed again may have other bits.

use super::*;
use crate::lineage::Lineage;
use crate::messages::{Snapshot, Standing};

/// A worker of a job in fast order.
fn fast() -> Member {
    let job = JobSpec {
        order: Order::Fast,
        ..spec()
    };
    let mut worker = Member::new(&job, KEEPS);
    let _ = worker.handle(Event::Welcomed {
        incarnation: g(1).incarnation(),
        report_from: s(0),
    });
    worker
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

fn of(last: Generation, before: Generation) -> Lineage {
    let before = Some(before);
    Lineage { last, before }
}

#[test]
fn each_sum_is_its_generations_also_if_a_halt_waits_for_the_update() {
    let mut worker = led();
    assert_eq!(standing(&worker).lineage, of(g(1), Generation::NONE));
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 1, 1, Trailer::Continue);
    let _ = halt(&mut worker, 2);
    let halted = apply(&mut worker, 1);
    assert_eq!(said(&halted)[0], "halted g1.2 at s2 with [0..2]");
    assert_eq!(standing(&worker).lineage, of(g(1), g(1)));
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
    let other = of(g(2), g(1));
    let told = form(&mut worker, seat(3, 0, 1, other));
    assert_eq!(said(&told), ["halted g1.3 at s1 with [0..2]"]);
    let told = form(&mut worker, lacks_state(seat(4, 0, 1, other), 1));
    assert!(told.iter().any(|command| matches!(
        command,
        Command::Network(NetworkCommand::Fetch {
            what: Lacking::State(_),
            ..
        })
    )));
    let _ = fetched(&mut worker, 4, 1);
    let _ = load(&mut worker, 1);
    assert_eq!(standing(&worker).lineage, other, "it has that of the others now");
}

/// Else it would seem to owe what it has, and be left out as one that hangs.
#[test]
fn gradients_that_do_not_count_any_more_are_not_told_as_kept() {
    let mut worker = led();
    compute_all(&mut worker, shards(0, 2));
    let _ = halt(&mut worker, 2);
    assert_eq!(standing(&worker).kept, [shards(0, 2)]);
    let told = form(&mut worker, lacks_state(seat(3, 0, 1, of(g(2), g(1))), 1));
    assert!(told.contains(&Command::Retain { pieces: Vec::new() }));
    // One was under way: with it, too, the worker loads, and does not work.
    let _ = worker.handle(Event::Computed {
        step: s(1),
        piece: shards(0, 2),
        shard: 1,
    });
    assert_eq!(worker.tally().computed_in(s(1)), 0);
    // The only one with that state is gone before it has come.
    let _ = halt(&mut worker, 4);
    assert_eq!((standing(&worker).kept, standing(&worker).tally.this_step), (Vec::new(), 0));
    assert_eq!(standing(&worker).lineage, of(g(1), Generation::NONE));
}

#[test]
fn a_member_that_lacks_a_sum_has_the_others_state_after_it() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let theirs = of(g(1), g(1));
    form(&mut worker, lacks_sum(seat(2, 0, 2, theirs), 1));
    let _ = fetched(&mut worker, 2, 1);
    let _ = apply(&mut worker, 1);
    assert_eq!(standing(&worker).lineage, theirs);
}

/// What follows once this worker has copied the snapshot that was taken in g3 at s1.
fn copied_in_g3(worker: &mut Member) -> Vec<Command> {
    let snapshot = snapshot(3, 1);
    let taken = Snapshot {
        id: snapshot,
        holders: vec![Some(member(1))],
        shares: vec![hash(1)],
    };
    let _ = worker.handle(Event::Ordered(CoordinatorMessage::Copy(Box::new(taken))));
    let _ = worker.handle(Event::Copied { snapshot });
    load(worker, 1)
}

/// What follows from the sum of a step, which is that of g`count`.
fn followed(worker: &mut Member, step: u64, count: u64, trailer: Trailer) -> Vec<Command> {
    worker.handle(Event::Followed(Followed {
        step: s(step),
        generation: g(count),
        trailer,
        keeper_at: s(step + 1),
    }))
}

/// The sums that it asks for.
fn wanted(commands: &[Command]) -> Vec<WantedSum> {
    let mut asked = Vec::new();
    for command in commands {
        if let Command::Network(NetworkCommand::Follow { sum, .. }) = command {
            asked.push(*sum);
        }
    }
    asked
}

fn after(step: u64, count: u64) -> WantedSum {
    WantedSum {
        step: s(step),
        before: g(count),
    }
}

#[test]
fn a_joiner_asks_for_sums_that_are_added_to_its_own_state() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let asks = copied_in_g3(&mut worker);
    assert_eq!(wanted(&asks), [after(1, 3)], "g3 has taken the snapshot after its own sum");
    assert_eq!(standing(&worker).lineage, Lineage::of(Order::Fast, g(3)));
    // The one after it is asked for while it is applied.
    let asks = followed(&mut worker, 1, 4, Trailer::Continue);
    assert_eq!(wanted(&asks), [after(2, 4)]);
    assert_eq!(worker.coming_lineage(), of(g(4), g(3)));
    assert_eq!(worker.next_work(), Work::Apply { step: s(1) });
    assert_eq!(followed(&mut worker, 2, 5, Trailer::Continue), [Command::LayAside]);
    let asks = worker.handle(Event::Applied { report: report(1) });
    assert_eq!(standing(&worker).lineage, of(g(4), g(3)));
    assert_eq!(wanted(&asks), [after(3, 5)]);
    let _ = apply(&mut worker, 2);
    let introduction = worker.introduction();
    assert_eq!(introduction.standing.lineage, of(g(5), g(4)));
    assert_eq!(
        introduction.generation,
        g(2),
        "it is no member of those, and has promised nothing"
    );
}

#[test]
fn a_joiner_begins_anew_with_a_sum_that_there_cannot_be() {
    let later = Generation::new(Incarnation::new(2), 1);
    for (generation, reason) in [(later, "knows coordinators up to i1"), (g(2), "has one of g1.3 already")] {
        let mut worker = led();
        let _ = halt(&mut worker, 2);
        let _ = copied_in_g3(&mut worker);
        let told = worker.handle(Event::Followed(Followed {
            step: s(1),
            generation,
            trailer: Trailer::Continue,
            keeper_at: s(2),
        }));
        let told = said(&told);
        assert!(
            told[0].starts_with("copy of g1.3@s1 failed") && told[0].ends_with(reason),
            "{told:?}"
        );
        assert_eq!(worker.next_work(), Work::Wait);
        // Told to copy the same snapshot again, it does so wholly: what it has is not what others have.
        let again = copied_in_g3(&mut worker);
        assert_eq!(wanted(&again), [after(1, 3)]);
    }
}

/// No sum of a generation that is yet to begin can have led to a state.
#[test]
fn a_joiner_does_not_say_what_a_keeper_that_lies_has_said() {
    let mut worker = led();
    let _ = halt(&mut worker, 2);
    let _ = copied_in_g3(&mut worker);
    let _ = followed(&mut worker, 1, 9, Trailer::Continue);
    let _ = apply(&mut worker, 1);
    let _ = halt(&mut worker, 5);
    assert_eq!(standing(&worker).lineage, Lineage::of(Order::Fast, Generation::NONE));
    assert!(standing(&worker).lineage < of(g(1), Generation::NONE), "any other is newer");
}

#[test]
fn a_joiner_takes_its_seat_only_with_the_state_that_the_generation_begins_with() {
    // The trailer has come with the sum of the generation before; or that of one whose members have died, which led elsewhere.
    for (by, seats) in [(4, true), (5, false)] {
        let mut worker = led();
        let _ = halt(&mut worker, 2);
        let _ = copied_in_g3(&mut worker);
        let _ = prepare(&mut worker, seat(6, 0, 0, Lineage::of(Order::Fast, g(4))));
        let _ = followed(&mut worker, 1, by, Trailer::Switch(g(6)));
        let told = said(&apply(&mut worker, 1));
        assert_eq!(told.contains(&"switched g1.6 at s2".to_owned()), seats, "{told:?}");
        assert_eq!(worker.seat.is_some(), seats);
        assert_eq!(
            told.iter().any(|told| told.starts_with("copy of g1.3@s1 failed")),
            !seats,
            "{told:?}"
        );
        assert_eq!(standing(&worker).lineage, of(g(by), g(3)));
    }
}

#[test]
fn what_another_state_had_summed_up_to_is_not_told() {
    let mut worker = led();
    let _ = steps(&mut worker, 0, 1, Trailer::Continue);
    let _ = halt(&mut worker, 2);
    // The others have computed s0 and s1 again, and are at s1.
    let _ = copied_in_g3(&mut worker);
    assert_eq!(worker.step(), s(1));
    let _ = prepare(&mut worker, seat(4, 0, 0, Lineage::of(Order::Fast, g(3))));
    let _ = followed(&mut worker, 1, 3, Trailer::Switch(g(4)));
    let _ = apply(&mut worker, 1);
    let told = said(&beat(&mut worker, Heartbeat::Due(None)));
    assert_eq!(told, ["progress g1.4 s2 [s1]"], "the s1 that the others know of");
}
