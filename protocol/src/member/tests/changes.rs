//! How the state changes: by the ring's sums, alone, or by catching up; and what is reported of it.

use super::*;
use crate::limits::MAX_REPORTS;

#[test]
fn a_step_begins_offers_sums_and_applies() {
    let mut worker = worker();
    let formed = pair(1, 1, 0);
    let pieces = vec![shards(2, 3), shards(3, 4)];
    assert_eq!(
        form(&mut worker, formed.clone()),
        [
            Command::Connect(Box::new(formed)),
            Command::Retain { pieces: pieces.clone() },
            Command::Begin { step: s(0) },
        ]
    );
    assert_eq!(compute(&mut worker, 2), [], "the ring had it while it was computed");
    assert_eq!(compute(&mut worker, 3), []);
    assert_eq!(summed(&mut worker, 1, 0, Trailer::Continue), [accept()]);
    let commands = apply(&mut worker, 0);
    assert_eq!(said(&commands), ["progress g1.1 s1 []"], "the first update is told at once");
    assert_eq!(commands[1..], [Command::Retain { pieces }, Command::Begin { step: s(1) }]);
    assert_eq!(worker.introduction().standing.sum, Some(s(0)), "it can donate this sum");
    assert_eq!((worker.tally().this_step, worker.tally().previous_step), (0, 2));
}

/// Whether the ring is offered a piece as its last gradient is begun.
fn offered(worker: &mut Member) -> bool {
    let work = worker.next_work();
    let Work::Gradient { offered, .. } = work else {
        panic!("expected a gradient, found {work:?}");
    };
    offered
}

#[test]
fn the_ring_is_offered_a_piece_with_its_last_gradient_and_no_piece_is_where_there_is_no_ring() {
    let mut worker = worker();
    let _ = form(&mut worker, pair(1, 0, 0));
    assert!(!offered(&mut worker), "the running sum lacks one more");
    assert_eq!(compute(&mut worker, 0), []);
    assert!(offered(&mut worker));

    let mut alone = seated(0);
    let _ = halt(&mut alone, 2);
    assert!(!offered(&mut alone), "its ring is given up");
    let _ = form(&mut alone, single(2, 0));
    (0..3).for_each(|shard| drop(compute(&mut alone, shard)));
    assert!(!offered(&mut alone), "there is no ring");
}

#[test]
fn what_an_earlier_ring_was_offered_is_offered_to_the_next_one() {
    let mut worker = seated(1);
    assert!(offered(&mut worker));
    let _ = halt(&mut worker, 2);
    let _ = form(&mut worker, pair(2, 1, 0));
    let computed = Event::Computed {
        step: s(0),
        piece: shards(2, 3),
        shard: 2,
    };
    assert_eq!(worker.handle(computed), [Command::Offer { piece: shards(2, 3) }]);
}

#[test]
fn a_worker_one_step_behind_applies_the_sum_of_another() {
    let mut worker = worker();
    let behind = lacks_sum(pair(1, 0, 1), 1);
    assert_eq!(
        form(&mut worker, behind.clone()),
        [
            Command::Connect(Box::new(behind)),
            Command::Network(NetworkCommand::Fetch {
                generation: g(1),
                what: Lacking::Sum(sum_to_come(0)),
                donor: member(1)
            }),
        ]
    );
    assert_eq!(worker.next_work(), Work::Wait);
    assert_eq!(fetched(&mut worker, 2, 0), [], "GEN-3");
    assert_eq!(fetched(&mut worker, 1, 1), [], "not the sum it lacks");
    assert_eq!(fetched(&mut worker, 1, 0), [accept()]);
    let begun = apply(&mut worker, 0);
    assert_eq!(begun.last(), Some(&Command::Begin { step: s(1) }));
    assert_eq!(said(&begun), [""; 0], "the generation itself has not moved yet");
    assert_eq!(worker.step(), s(1));
}

#[test]
fn a_worker_without_the_state_loads_that_of_another() {
    let mut worker = worker();
    let commands = form(&mut worker, lacks_state(pair(1, 1, 7), 0));
    assert_eq!(
        commands[1],
        Command::Network(NetworkCommand::Fetch {
            generation: g(1),
            what: Lacking::State(s(7)),
            donor: member(0)
        })
    );
    let told = link_broken(&mut worker, 1, 1);
    assert_eq!(said(&told), ["link broken g1.1 w1"], "the donor is gone");
    halt(&mut worker, 2);
    assert_eq!(fetched(&mut worker, 1, 7), [], "GEN-3");

    form(&mut worker, lacks_state(pair(2, 1, 7), 0));
    assert_eq!(fetched(&mut worker, 2, 7), [accept()]);
    assert_eq!(worker.next_work(), Work::Load { step: s(7) });
    assert_eq!(worker.next_work(), Work::Wait);
    let commands = worker.handle(Event::Loaded);
    assert_eq!(commands.last(), Some(&Command::Begin { step: s(7) }));
    assert_eq!(worker.introduction().standing.sum, None, "it never had the sum that led here");
    compute(&mut worker, 2);
}

#[test]
fn a_halt_while_loading_is_answered_with_the_loaded_state() {
    let mut worker = worker();
    form(&mut worker, lacks_state(pair(1, 1, 7), 0));
    let _ = fetched(&mut worker, 1, 7);
    assert_eq!(worker.next_work(), Work::Load { step: s(7) });
    assert_eq!(said(&halt(&mut worker, 2)), [""; 0]);
    let commands = worker.handle(Event::Loaded);
    assert_eq!(said(&commands), ["halted g1.2 at s7 with [2..3, 3..4]"]);
}

#[test]
fn the_only_worker_sums_alone() {
    let mut worker = worker();
    let commands = form(&mut worker, single(1, 0));
    assert_eq!(said(&commands), ["ready g1.1"], "there are no links to make");
    assert_eq!(compute_all(&mut worker, shards(0, 3)), []);
    let pieces = vec![shards(0, 4)];
    assert_eq!(
        compute(&mut worker, 3),
        [Command::SumAlone {
            pieces: pieces.clone(),
            trailer: Trailer::Continue
        }]
    );
    let commands = apply(&mut worker, 0);
    assert_eq!(commands.last(), Some(&Command::Retain { pieces }));
    assert_eq!(said(&commands), ["progress g1.1 s1 [s0]"]);
    compute(&mut worker, 0);
}

#[test]
fn who_is_left_alone_with_all_gradients_sums_at_once() {
    let mut worker = worker();
    let first = part(0, &[(0, shards(0, 4)), (1, shards(4, 4))]);
    form(&mut worker, Form { first, ..pair(1, 0, 0) });
    compute_all(&mut worker, shards(0, 4));
    halt(&mut worker, 2);
    let commands = form(&mut worker, single(2, 0));
    assert_eq!(
        commands.last(),
        Some(&Command::SumAlone {
            pieces: vec![shards(0, 4)],
            trailer: Trailer::Continue,
        })
    );
    apply(&mut worker, 0);
}

#[test]
fn the_chief_reports_each_step_once_and_again_if_asked() {
    let mut worker = worker();
    form(&mut worker, single(1, 0));
    for step in 0..3 {
        let _ = steps_alone(&mut worker, step);
    }
    // The first step was told with the progress of the generation.
    assert_eq!(said(&beat(&mut worker, Heartbeat::NotDue)), ["progress g1.1 s3 [s1, s2]"]);
    assert_eq!(beat(&mut worker, Heartbeat::NotDue), []);
    assert_eq!(said(&beat(&mut worker, Heartbeat::Due(None))), ["progress g1.1 s3 []"]);
    halt(&mut worker, 2);
    let from_s1 = Form {
        report_from: s(1),
        ..single(2, 3)
    };
    form(&mut worker, from_s1);
    assert_eq!(said(&beat(&mut worker, Heartbeat::NotDue)), ["progress g1.2 s3 [s1, s2]"]);
}

#[test]
fn a_new_chief_reports_what_the_old_one_did_not() {
    let mut worker = seated(1);
    for step in 0..2 {
        let _ = steps(&mut worker, 1, step, Trailer::Continue);
    }
    assert_eq!(beat(&mut worker, Heartbeat::NotDue), [], "it is not the chief");
    halt(&mut worker, 2);
    let from_s1 = Form {
        report_from: s(1),
        ..pair(2, 0, 2)
    };
    form(&mut worker, from_s1);
    assert_eq!(said(&beat(&mut worker, Heartbeat::NotDue)), ["progress g1.2 s2 [s1]"]);
}

#[test]
fn many_reports_go_out_in_several_messages() {
    let many = 2 * u64::try_from(MAX_REPORTS).expect("a small number") + 1;
    let job = JobSpec {
        steps: s(many + 1),
        ..spec()
    };
    let mut worker = Member::new(&job, KEEPS);
    form(&mut worker, pair(1, 1, 0));
    for step in 0..many {
        let _ = steps(&mut worker, 1, step, Trailer::Continue);
    }
    halt(&mut worker, 2);
    form(&mut worker, single(2, many));
    let commands = beat(&mut worker, Heartbeat::NotDue);
    let reported = |command: &Command| {
        let Command::Send(WorkerMessage::Progress { reports, .. }) = command else {
            panic!("expected reports, found {command:?}");
        };
        reports.len()
    };
    let sizes: Vec<usize> = commands.iter().map(reported).collect();
    assert_eq!(sizes, [MAX_REPORTS, MAX_REPORTS, 1]);
}
