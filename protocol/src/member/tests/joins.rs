//! Joining while the others train: copying, following, and the switch that lets this worker in.

use super::*;
use crate::messages::Snapshot;

/// The snapshot of the two members at s5; `Copy` names the holders that are still there.
fn taken(holders: [bool; 2]) -> Snapshot {
    Snapshot {
        id: snapshot(1, 5),
        holders: (0..2).zip(holders).map(|(rank, here)| here.then(|| member(rank))).collect(),
        shares: vec![hash(0), hash(1)],
    }
}

/// What follows from an order to copy, once it has been said that it has come.
fn copy(worker: &mut Member, snapshot: Snapshot) -> Vec<Command> {
    let answer = Command::Send(WorkerMessage::Copying { snapshot: snapshot.id });
    let mut commands = worker.handle(Event::Ordered(CoordinatorMessage::Copy(Box::new(snapshot))));
    if !commands.is_empty() {
        assert_eq!(commands.remove(0), answer);
    }
    commands
}

fn follow(step: u64) -> Command {
    Command::Network(NetworkCommand::Follow {
        sum: sum_to_come(step),
        snapshot: Box::new(taken([true; 2])),
    })
}

fn followed(worker: &mut Member, step: u64, trailer: Trailer, keeper_at: u64) -> Vec<Command> {
    worker.handle(Event::Followed(Followed {
        step: s(step),
        generation: Generation::NONE,
        trailer,
        keeper_at: s(keeper_at),
    }))
}

/// A joiner that has the snapshot's state and asks for the sum of s5.
fn joiner() -> Member {
    let mut worker = worker();
    let _ = copy(&mut worker, taken([true; 2]));
    let snapshot = snapshot(1, 5);
    let _ = worker.handle(Event::Copied { snapshot });
    assert_eq!(load(&mut worker, 5), [follow(5)]);
    worker
}

/// The seat beside the two others from g2 on.
fn third() -> Form {
    let thirds = [(0, shards(0, 2)), (1, shards(2, 3)), (2, shards(3, 4))];
    seat_of(2, 2, 0, [&thirds; 2])
}

/// A joiner with links for g2, that has applied the sum of s5.
fn prepared() -> Member {
    let mut worker = joiner();
    let _ = followed(&mut worker, 5, Trailer::Continue, 6);
    let _ = apply(&mut worker, 5);
    let _ = prepare(&mut worker, third());
    assert_eq!(said(&worker.handle(Event::LinksReady { generation: g(2) })), ["ready g1.2"]);
    worker
}

/// What lets a joiner in at `step`.
fn switched(step: u64) -> Vec<Command> {
    let (generation, step) = (g(2), s(step));
    vec![
        Command::Network(NetworkCommand::Switch { generation, step }),
        Command::Send(WorkerMessage::Switched { generation, step }),
        Command::Retain {
            pieces: vec![shards(3, 4)],
        },
        Command::Begin { step },
    ]
}

#[test]
fn a_joiner_copies_loads_and_asks_for_the_next_sum() {
    let mut worker = worker();
    assert_eq!(
        copy(&mut worker, taken([true; 2])),
        [Command::Network(NetworkCommand::Copy(Box::new(taken([true; 2]))))]
    );
    let fewer = taken([false, true]);
    assert_eq!(
        copy(&mut worker, fewer.clone()),
        [Command::Network(NetworkCommand::Copy(Box::new(fewer)))],
        "a holder is gone"
    );
    let copied = |step| Event::Copied {
        snapshot: snapshot(1, step),
    };
    assert_eq!(worker.handle(copied(4)), [], "another snapshot");
    assert_eq!(worker.handle(copied(5)), [accept()]);
    assert_eq!(worker.handle(copied(5)), [], "once is enough");
    let Some(Command::Network(NetworkCommand::Follow { sum, .. })) = load(&mut worker, 5).pop() else {
        panic!("it follows from the snapshot on");
    };
    assert_eq!((sum.step, worker.step()), (s(5), s(5)));
}

#[test]
fn a_snapshot_that_cannot_be_is_not_copied() {
    let changes: [fn(&mut Snapshot); 3] = [
        |snapshot| snapshot.holders.clear(),
        |snapshot| snapshot.shares.truncate(1),
        |snapshot| snapshot.id.step = s(11),
    ];
    for change in changes {
        let mut unsound = taken([true; 2]);
        change(&mut unsound);
        assert_eq!(copy(&mut worker(), unsound), []);
    }
    assert_eq!(copy(&mut seated(0), taken([true; 2])), [], "a member has the state");
}

#[test]
fn a_state_as_new_as_the_snapshot_is_not_copied_again() {
    let mut worker = joiner();
    let _ = followed(&mut worker, 5, Trailer::Continue, 9);
    let _ = apply(&mut worker, 5);
    let mut later = taken([true; 2]);
    later.id = snapshot(2, 6);
    let commands = copy(&mut worker, later);
    assert_eq!(commands[0], Command::Network(NetworkCommand::EndCopy));
    assert!(
        matches!(commands[1], Command::Network(NetworkCommand::Follow { sum, .. }) if sum.step == s(6)),
        "BITS-1: {commands:?}"
    );
}

/// In fast order two states at one step may differ.
#[test]
fn in_fast_order_only_what_came_from_the_snapshot_counts() {
    let job = JobSpec {
        order: Order::Fast,
        ..spec()
    };
    let mut worker = Member::new(&job, KEEPS);
    let mut zero = taken([true; 2]);
    zero.id.step = s(0);
    assert_eq!(
        copy(&mut worker, zero.clone()),
        [Command::Network(NetworkCommand::Copy(Box::new(zero.clone())))]
    );
    let _ = worker.handle(Event::Copied { snapshot: zero.id });
    let _ = load(&mut worker, 0);
    halt(&mut worker, 2);
    let again = copy(&mut worker, zero);
    assert!(
        matches!(again[..], [Command::Network(NetworkCommand::Follow { .. })]),
        "{again:?}"
    );
}

#[test]
fn the_next_sum_is_fetched_while_one_is_applied() {
    let mut worker = joiner();
    assert_eq!(followed(&mut worker, 5, Trailer::Continue, 9), [accept(), follow(6)]);
    assert_eq!(worker.next_work(), Work::Apply { step: s(5) });
    assert_eq!(
        followed(&mut worker, 6, Trailer::Snapshot, 9),
        [Command::LayAside],
        "one ahead is enough"
    );
    let commands = worker.handle(Event::Applied { report: report(5) });
    let aside = Command::AcceptAside {
        trailer: Trailer::Snapshot,
    };
    assert_eq!(commands, [aside, follow(7)]);
    assert_eq!(
        apply(&mut worker, 6),
        [],
        "a joiner takes no snapshot, and waits for the sum that it has asked for"
    );
    assert_eq!(worker.step(), s(7));
}

#[test]
fn a_sum_that_was_not_asked_for_changes_nothing() {
    let mut worker = joiner();
    assert_eq!(followed(&mut worker, 6, Trailer::Continue, 7), []);
    halt(&mut worker, 2);
    assert_eq!(followed(&mut worker, 5, Trailer::Continue, 6), [], "GEN-3");
}

#[test]
fn that_it_has_caught_up_is_said_once_when_the_keeper_is_at_most_one_step_ahead() {
    let mut worker = joiner();
    assert_eq!(said(&followed(&mut worker, 5, Trailer::Continue, 7)), [""; 0]);
    let _ = apply(&mut worker, 5);
    assert_eq!(
        said(&followed(&mut worker, 6, Trailer::Continue, 7)),
        ["caught up from g1.1@s5 s6"]
    );
    let _ = apply(&mut worker, 6);
    assert_eq!(said(&followed(&mut worker, 7, Trailer::Continue, 8)), [""; 0]);
    let _ = apply(&mut worker, 7);
    let beat = said(&beat(&mut worker, Heartbeat::Due(None)));
    assert_eq!(beat[0], "caught up from g1.1@s5 s8", "the coordinator does not ask: {beat:?}");
    // The coordinator says `Copy` again if it has not heard that the first one came.
    assert_eq!(copy(&mut worker, taken([true; 2])), [follow(8)]);
    assert_eq!(
        said(&followed(&mut worker, 8, Trailer::Continue, 9)),
        ["caught up from g1.1@s5 s8"]
    );
}

#[test]
fn a_joiner_at_the_last_step_asks_for_nothing_more() {
    let mut worker = joiner();
    for step in 5..10 {
        let commands = followed(&mut worker, step, Trailer::Continue, step + 1);
        assert_eq!(commands.last() == Some(&follow(step + 1)), step < 9, "{commands:?}");
        let _ = apply(&mut worker, step);
    }
    assert_eq!(said(&conclude(&mut worker, 10)), [""; 0], "it has no seat to finish from");
}

#[test]
fn a_copy_that_failed_is_said_and_may_begin_anew() {
    let mut worker = joiner();
    let failed = |worker: &mut Member| {
        worker.handle(Event::CopyFailed {
            snapshot: snapshot(1, 5),
            reason: "no holder has it".to_owned(),
        })
    };
    assert_eq!(said(&failed(&mut worker)), ["copy of g1.1@s5 failed: no holder has it"]);
    assert_eq!(failed(&mut worker), []);
    assert_eq!(
        said(&prepare(&mut worker, third())),
        ["copy of g1.1@s5 failed: no holder has it"],
        "it may not have been heard"
    );
    assert_eq!(copy(&mut worker, taken([true; 2])), [follow(5)], "what was copied stays");
}

#[test]
fn a_trailer_that_switches_lets_a_prepared_joiner_in() {
    let mut worker = prepared();
    let commands = followed(&mut worker, 6, Trailer::Switch(g(2)), 7);
    assert!(
        !commands.contains(&follow(7)),
        "the next sum comes from its own ring: {commands:?}"
    );
    assert_eq!(apply(&mut worker, 6), switched(7));
    compute(&mut worker, 3);
    assert_eq!(said(&summed_by(&mut worker, 2, 7)), ["progress g1.2 s8 []"]);
    let told = worker.introduction();
    let (rank, members) = told.seat.map(|seat| (seat.rank, seat.world_size)).unzip();
    assert_eq!(
        (told.generation, rank, members, told.training),
        (g(2), Some(Rank::new(2)), Some(3), true)
    );
}

/// It had the sum that stops from a generation that died, and the coordinator that had asked for the stop died, too.
#[test]
fn a_joiner_that_heard_of_a_stop_goes_on_with_the_generation_that_lets_it_in() {
    let mut worker = joiner();
    let _ = followed(&mut worker, 5, Trailer::Stop, 6);
    let _ = apply(&mut worker, 5);
    let _ = prepare(&mut worker, third());
    let _ = worker.handle(Event::LinksReady { generation: g(2) });
    let begun = Form { step: s(6), ..third() };
    assert_eq!(prepare(&mut worker, begun), switched(6));
    assert_eq!(worker.introduction().standing.stop_at, None);
    assert!(matches!(worker.next_work(), Work::Gradient { .. }), "it goes on");
}

/// So had this one, and the others have come further since.
#[test]
fn a_joiner_that_heard_of_a_stop_follows_the_generation_that_begins_beyond_it() {
    let mut worker = joiner();
    let _ = followed(&mut worker, 5, Trailer::Stop, 6);
    assert!(!apply(&mut worker, 5).contains(&follow(6)));
    let _ = prepare(&mut worker, third());
    let _ = worker.handle(Event::LinksReady { generation: g(2) });
    let begun = Form { step: s(7), ..third() };
    assert_eq!(prepare(&mut worker, begun.clone()), [follow(6)]);
    assert_eq!(prepare(&mut worker, begun), [], "once");
    let _ = followed(&mut worker, 6, Trailer::Switch(g(2)), 7);
    assert_eq!(apply(&mut worker, 6), switched(7));
}

fn summed_by(worker: &mut Member, count: u64, step: u64) -> Vec<Command> {
    let _ = summed(worker, count, step, Trailer::Continue);
    apply(worker, step)
}

#[test]
fn a_joiner_that_is_not_meant_follows_beyond_a_switch() {
    let mut worker = joiner();
    assert!(followed(&mut worker, 5, Trailer::Switch(g(2)), 6).contains(&follow(6)));
    assert_eq!(apply(&mut worker, 5), []);
}

/// It had a sum from a generation whose other holders died; the one computed again was closed with a switch.
#[test]
fn a_joiner_that_stands_at_the_boundary_already_is_told_that_its_generation_has_begun() {
    let begun = |step| Form {
        step: s(step),
        ..third()
    };
    let mut worker = prepared();
    assert_eq!(prepare(&mut worker, begun(7)), [], "the trailer comes with the next sum");
    assert_eq!(prepare(&mut worker, begun(6)), switched(6));
    let mut worker = prepared();
    let commands = prepare(&mut worker, begun(5));
    assert!(
        said(&commands)[0].starts_with("copy of g1.1@s5 failed: g1.2 begins at s5"),
        "{commands:?}"
    );
    assert!(commands.contains(&Command::Network(NetworkCommand::Unprepare)));
}

#[test]
fn a_newer_plan_replaces_an_older_one() {
    let mut worker = prepared();
    assert_eq!(said(&prepare(&mut worker, third())), ["ready g1.2"], "asked again");
    let newer = Form {
        generation: g(3),
        ..third()
    };
    let replaced = [
        Command::Network(NetworkCommand::Unprepare),
        Command::Prepare(Box::new(newer.clone())),
    ];
    assert_eq!(prepare(&mut worker, newer), replaced);
    assert_eq!(prepare(&mut worker, third()), [], "an older one");
    assert_eq!(worker.handle(Event::LinksReady { generation: g(2) }), [], "GEN-3");
    assert_eq!(link_broken(&mut worker, 2, 1), [], "GEN-3");
    assert_eq!(said(&link_broken(&mut worker, 3, 1)), ["link broken g1.3 w1"]);
    let _ = followed(&mut worker, 6, Trailer::Switch(g(2)), 7);
    assert_eq!(apply(&mut worker, 6), [], "it has no seat there any more");
}

#[test]
fn a_halt_ends_copying_and_what_was_prepared() {
    let mut worker = prepared();
    let commands = halt(&mut worker, 3);
    assert_eq!(
        commands[..2],
        [
            Command::Network(NetworkCommand::Unprepare),
            Command::Network(NetworkCommand::EndCopy)
        ]
    );
    assert_eq!(said(&commands), ["halted g1.3 at s6 with []"]);
    assert_eq!(prepare(&mut worker, third()), [], "GEN-3");
}

#[test]
fn a_form_that_was_meant_for_where_it_stood_before_is_answered_with_where_it_stands() {
    let mut worker = joiner();
    assert_eq!(
        said(&form(&mut worker, pair(1, 1, 0))),
        ["halted g1.1 at s5 with []"],
        "STEP-2"
    );
    let halted = ["halted g1.2 at s5 with []"];
    assert_eq!(said(&form(&mut worker, lacks_sum(pair(2, 1, 7), 0))), halted);
    assert_eq!(said(&form(&mut worker, lacks_state(pair(2, 1, 4), 0))), halted, "STEP-1");
    assert_ne!(form(&mut worker, pair(3, 1, 5)), []);
}

/// Its hello crosses the switch: the coordinator that hears it counts it as one that joins.
#[test]
fn a_joiner_that_says_hello_takes_no_seat_that_was_prepared_before() {
    let mut worker = prepared();
    let _ = followed(&mut worker, 6, Trailer::Switch(g(2)), 7);
    assert_eq!(
        worker.handle(Event::Introducing),
        [Command::Network(NetworkCommand::Unprepare)]
    );
    let told = worker.introduction();
    assert_eq!((told.seat, told.training), (None, false));
    assert_eq!(apply(&mut worker, 6), [follow(7)], "it follows beyond the switch");
    assert_eq!(worker.introduction().seat, None);
}

#[test]
fn a_member_that_says_hello_keeps_its_seat_and_what_it_prepares() {
    let mut worker = prepared();
    let _ = followed(&mut worker, 6, Trailer::Switch(g(2)), 7);
    let _ = apply(&mut worker, 6);
    let later = Form {
        generation: g(3),
        ..third()
    };
    let _ = prepare(&mut worker, later);
    assert_eq!(worker.handle(Event::Introducing), []);
    assert!(worker.introduction().seat.is_some());
}

#[test]
fn an_order_to_copy_that_comes_late_takes_no_joiner_off_a_newer_snapshot() {
    let mut worker = joiner();
    let earlier = Snapshot {
        id: snapshot(1, 4),
        ..taken([true; 2])
    };
    assert_eq!(copy(&mut worker, earlier.clone()), []);
    let snapshot = snapshot(1, 5);
    let reason = "no holder has it".to_owned();
    let _ = worker.handle(Event::CopyFailed { snapshot, reason });
    assert_eq!(copy(&mut worker, earlier), [], "nor one that could not copy that");
    assert_ne!(copy(&mut worker, taken([true; 2])), [], "which may begin anew");
}
