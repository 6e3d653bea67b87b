//! The end of a job: by its last step, or by a trailer that says stop.

use super::*;

/// A worker at rank 0 of two that has been told in a trailer to stop after its first step.
fn stopped() -> (Member, Vec<Command>) {
    let mut worker = seated(0);
    compute_all(&mut worker, shards(0, 2));
    assert_eq!(
        summed(&mut worker, 1, 0, Trailer::Stop),
        [Command::Accept { trailer: Trailer::Stop }]
    );
    let commands = apply(&mut worker, 0);
    (worker, commands)
}

#[test]
fn the_closer_of_the_current_generation_closes_with_stop() {
    let mut worker = seated(1);
    assert_eq!(close_with(&mut worker, 2, Trailer::Stop), []);
    assert_eq!(
        close_with(&mut worker, 1, Trailer::Stop),
        [Command::CloseWith { trailer: Trailer::Stop }]
    );
}

#[test]
fn a_trailer_that_says_stop_ends_the_job_after_its_update() {
    let (mut worker, commands) = stopped();
    assert_eq!(commands.last(), Some(&Command::Retain { pieces: vec![] }), "no step begins");
    assert_eq!(
        worker.introduction().standing.stop_at,
        Some(s(1)),
        "those behind learn it from here"
    );
    let finished = format!("finished g1.1 s1 {:?}", hash(1));
    assert_eq!(said(&conclude(&mut worker, 1)), std::slice::from_ref(&finished));
    assert_eq!(worker.next_work(), Work::Wait);
    // It may have been lost: it is said again with every heartbeat.
    assert_eq!(
        said(&beat(&mut worker, Heartbeat::Due(None))),
        ["progress g1.1 s1 []".to_owned(), finished]
    );
}

#[test]
fn a_worker_behind_the_stop_catches_up_and_stops_too() {
    let mut worker = worker();
    let behind = Form {
        stop_at: Some(s(1)),
        ..lacks_sum(pair(1, 1, 1), 0)
    };
    form(&mut worker, behind);
    let _ = fetched(&mut worker, 1, 0);
    let _ = apply(&mut worker, 0);
    assert_eq!(said(&conclude(&mut worker, 1)).len(), 1);
}

#[test]
fn the_only_worker_stops_at_the_next_boundary() {
    let mut worker = worker();
    form(&mut worker, single(1, 0));
    assert_eq!(close_with(&mut worker, 1, Trailer::Stop), [], "there is no ring");
    let _ = steps_alone(&mut worker, 0);
    assert_eq!(said(&conclude(&mut worker, 1)).len(), 1);
}

#[test]
fn the_last_step_ends_the_job() {
    let mut worker = worker();
    form(&mut worker, single(1, 0));
    for step in 0..10 {
        let _ = steps_alone(&mut worker, step);
    }
    // What the coordinator lacks is said before the end.
    let rest = "progress g1.1 s10 [s1, s2, s3, s4, s5, s6, s7, s8, s9]".to_owned();
    let finished = format!("finished g1.1 s10 {:?}", hash(10));
    assert_eq!(said(&conclude(&mut worker, 10)), [rest, finished]);
}

/// The next generation of two, which ends where it begins.
fn stops_at_one() -> Form {
    Form {
        stop_at: Some(s(1)),
        ..pair(2, 0, 1)
    }
}

#[test]
fn finished_is_said_again_in_a_new_generation() {
    let (mut worker, _) = stopped();
    let _ = conclude(&mut worker, 1);
    assert_eq!(said(&halt(&mut worker, 2)), ["halted g1.2 at s1 with []"]);
    assert_eq!(
        said(&beat(&mut worker, Heartbeat::Due(None))),
        ["progress g1.2 s1 []"],
        "it has no seat"
    );
    let again = form(&mut worker, stops_at_one());
    let reported = "progress g1.2 s1 [s0]".to_owned();
    assert_eq!(said(&again), [reported, format!("finished g1.2 s1 {:?}", hash(1))]);
    assert_eq!(worker.next_work(), Work::Wait, "it is concluded once");
}

#[test]
fn a_halt_before_the_conclusion_does_not_lose_it() {
    let (mut worker, _) = stopped();
    assert_eq!(worker.next_work(), Work::Conclude { step: s(1) });
    halt(&mut worker, 2);
    let concluded = Event::Concluded {
        hash: hash(1),
        results: vec![],
    };
    assert_eq!(said(&worker.handle(concluded)), [""; 0]);
    assert_eq!(said(&form(&mut worker, stops_at_one())).len(), 2);
}

/// A closer has told it so by itself: the coordinator, which an operator would tell, knows nothing of it.
#[test]
fn a_stop_that_no_operator_wants_is_forgotten() {
    let (mut worker, _) = stopped();
    let _ = conclude(&mut worker, 1);
    halt(&mut worker, 2);
    let finished = |commands: &[Command]| said(commands).into_iter().any(|text| text.starts_with("finished"));
    assert!(!finished(&form(&mut worker, pair(2, 0, 1))));
    assert!(!finished(&beat(&mut worker, Heartbeat::Due(None))));
    assert!(matches!(worker.next_work(), Work::Gradient { .. }), "it goes on");
}

/// A trailer reached only this worker, which was then cut off; the others computed the step again, without the stop, and more.
#[test]
fn an_end_that_the_others_went_beyond_is_forgotten() {
    for behind in [lacks_sum(pair(2, 0, 2), 1), lacks_state(pair(2, 0, 2), 1)] {
        let (mut worker, _) = stopped();
        let _ = conclude(&mut worker, 1);
        halt(&mut worker, 2);
        let catch_up = behind.catch_up;
        let beyond = Form {
            stop_at: Some(s(1)),
            ..behind
        };
        assert_eq!(said(&form(&mut worker, beyond)), [""; 0]);
        assert_eq!(
            said(&beat(&mut worker, Heartbeat::Due(None))).len(),
            1,
            "it is not finished while it catches up"
        );
        if let CatchUp::Sum { .. } = catch_up {
            let _ = fetched(&mut worker, 2, 1);
            assert_eq!(said(&apply(&mut worker, 1)), [""; 0]);
        } else {
            let _ = fetched(&mut worker, 2, 2);
            assert_eq!(said(&load(&mut worker, 2)), [""; 0]);
        }
        let last = said(&conclude(&mut worker, 2)).pop();
        assert_eq!(last, Some(format!("finished g1.2 s2 {:?}", hash(2))), "BITS-1");
    }
}
