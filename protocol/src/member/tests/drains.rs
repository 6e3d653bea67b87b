//! Switches at a boundary, for members that stay and members that leave.

use super::*;

/// The member at rank 0 of two stays on alone from g2 on.
fn staying() -> Member {
    let mut worker = seated(0);
    assert_eq!(
        said(&prepare(&mut worker, single(2, 0))),
        ["ready g1.2"],
        "there are no links to make"
    );
    worker
}

#[test]
fn a_closer_says_what_matters_most() {
    let mut worker = worker();
    form(&mut worker, single(1, 0));
    for (asked, closed) in [
        (Trailer::Snapshot, Trailer::Snapshot),
        (Trailer::Switch(g(2)), Trailer::Switch(g(2))),
        (Trailer::Switch(g(3)), Trailer::Switch(g(3))),
        (Trailer::Stop, Trailer::Stop),
        (Trailer::Switch(g(4)), Trailer::Stop),
    ] {
        assert_eq!(close_with(&mut worker, 1, asked), [], "there is no ring");
        let mut now = worker.clone();
        compute_all(&mut now, shards(0, 3));
        let sum = Command::SumAlone {
            pieces: vec![shards(0, 4)],
            trailer: closed,
        };
        assert_eq!(compute(&mut now, 3), [sum]);
    }
}

#[test]
fn a_member_begins_the_prepared_generation_at_the_boundary() {
    let mut worker = staying();
    let commands = steps(&mut worker, 0, 0, Trailer::Switch(g(2)));
    assert_eq!(said(&commands), ["progress g1.1 s1 [s0]", "switched g1.2 at s1"]);
    assert!(commands.contains(&Command::Network(NetworkCommand::Switch {
        generation: g(2),
        step: s(1)
    })));
    assert!(
        !commands.contains(&Command::Network(NetworkCommand::Abort { generation: g(1) })),
        "the ring sends the last sum on: {commands:?}"
    );
    assert_eq!(said(&steps_alone(&mut worker, 1)), ["progress g1.2 s2 [s1]"]);
}

#[test]
fn a_member_that_leaves_has_halted_at_the_boundary() {
    let mut worker = seated(1);
    let reason = "test".to_owned();
    let _ = worker.handle(Event::Leave { reason });
    let commands = steps(&mut worker, 1, 0, Trailer::Switch(g(2)));
    assert_eq!(said(&commands)[1..], ["progress g1.1 s1 []", "halted g1.2 at s1 with []"]);
    assert!(
        !commands.contains(&Command::Network(NetworkCommand::Abort { generation: g(1) })),
        "others may still wait for the last sum: {commands:?}"
    );
    assert_eq!(worker.next_work(), Work::Wait);
    assert_eq!(said(&halt(&mut worker, 2)), ["halted g1.2 at s1 with []"], "asked again");
}

#[test]
fn a_chief_that_is_left_out_tells_its_last_reports_first() {
    let mut worker = seated(0);
    steps(&mut worker, 0, 0, Trailer::Continue);
    let commands = steps(&mut worker, 0, 1, Trailer::Switch(g(2)));
    assert_eq!(said(&commands), ["progress g1.1 s2 [s1]", "halted g1.2 at s2 with []"]);
}

#[test]
fn a_wish_to_leave_is_said_again_with_every_heartbeat() {
    let mut worker = seated(1);
    let reason = "signal 15".to_owned();
    assert_eq!(said(&worker.handle(Event::Leave { reason })), ["leave: signal 15"]);
    assert_eq!(said(&beat(&mut worker, Heartbeat::NotDue)), [""; 0]);
    assert_eq!(
        said(&beat(&mut worker, Heartbeat::Due(None))),
        ["leave: signal 15", "progress g1.1 s0 []"]
    );
    compute(&mut worker, 2);
}

#[test]
fn the_last_update_before_a_halt_goes_on_in_the_generation_that_its_trailer_begins() {
    let mut worker = staying();
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 1, 0, Trailer::Switch(g(2)));
    assert_eq!(worker.next_work(), Work::Apply { step: s(0) });
    assert_eq!(
        halt(&mut worker, 3),
        [Command::Network(NetworkCommand::Abort { generation: g(1) })]
    );
    assert_eq!(halt(&mut worker, 4), [], "a further halt replaces the first");
    let commands = worker.handle(Event::Applied { report: report(0) });
    assert_eq!(
        said(&commands),
        ["halted g1.4 at s1 with [0..4]"],
        "it computes what it would have in g1.2"
    );
    compute(&mut worker, 0);
}

#[test]
fn a_halt_during_the_last_update_leaves_nothing_to_one_that_leaves() {
    let mut worker = seated(0);
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 1, 0, Trailer::Switch(g(2)));
    halt(&mut worker, 3);
    assert_eq!(said(&apply(&mut worker, 0)), ["halted g1.3 at s1 with []"]);
    assert_eq!(worker.next_work(), Work::Wait);
}

#[test]
fn a_switch_that_a_halt_has_outrun_changes_nothing() {
    let mut worker = staying();
    compute_all(&mut worker, shards(0, 2));
    halt(&mut worker, 3);
    form(&mut worker, pair(3, 0, 0));
    assert_eq!(said(&prepare(&mut worker, single(2, 0))), [""; 0], "GEN-3");
    let _ = summed(&mut worker, 3, 0, Trailer::Switch(g(2)));
    assert_eq!(apply(&mut worker, 0).last(), Some(&Command::Begin { step: s(1) }));
}

#[test]
fn a_state_that_is_loaded_at_the_end_is_concluded_anew() {
    let mut worker = worker();
    for count in 1..3 {
        form(&mut worker, lacks_state(pair(count, 0, 10), 1));
        let _ = fetched(&mut worker, count, 10);
        let _ = load(&mut worker, 10);
        assert_eq!(said(&conclude(&mut worker, 10)).len(), 1);
        halt(&mut worker, count + 1);
    }
}
