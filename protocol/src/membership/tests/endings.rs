//! How jobs end: done, stopped, or failed.

use super::*;
use crate::limits::RESEND;
use crate::status::Stage;

/// A job of two workers, both of which have applied the last step; all sums are told.
fn at_the_end() -> Job {
    let mut job = Job::training(2, config());
    job.progress(1, 1, 10, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    job.progress(2, 1, 10, &[]);
    job
}

fn done() -> String {
    format!("done at s10 with {:?}", hash(10))
}

#[test]
fn a_job_is_done_when_all_members_have_said_so() {
    let mut job = at_the_end();
    assert_eq!(job.finishes(1, 1, 10), [""; 0]);
    let told = job.event(Event::Said {
        worker: w(2),
        message: finished(1, 10, hash(10)),
    });
    assert_eq!(words(&told), ["to w1: complete s10", "to w2: complete s10", &done()]);
    let Some(Command::Tell(JobEvent::Done(summary))) = told.last() else {
        panic!("expected a summary, found {told:?}");
    };
    // Two workers, two shards each, ten steps.
    assert_eq!((summary.computed, summary.recomputed, summary.unknown), (40, 0, 0));
    assert_eq!(job.passes(RESEND), ["to w1: complete s10", "to w2: complete s10"]);
    job.dies(1, 10);
    assert_eq!(job.passes(RESEND), ["to w2: complete s10"]);
}

#[test]
fn another_final_state_fails_the_job() {
    let mut job = at_the_end();
    job.finishes(1, 1, 10);
    let told = job.says(2, finished(1, 10, hash(11)));
    assert_eq!(told[..2], ["to w1: dismiss", "to w2: dismiss"]);
    let expected = [
        "failed: ".to_owned(),
        "BITS-1".to_owned(),
        format!("worker {} has {} at s10, as 1 of 2 do", w(1), hash(10)),
        format!("worker {} has {} at s10, as 1 of 2 do", w(2), hash(11)),
    ];
    for part in &expected {
        assert!(told[2].contains(part), "{part:?} in {:?}", told[2]);
    }
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn other_results_of_the_same_state_fail_the_job() {
    let mut job = at_the_end();
    let mut with = |worker, loss: f64| {
        let message = WorkerMessage::Finished {
            generation: g(1),
            step: s(10),
            hash: hash(10),
            results: vec![("loss".to_owned(), loss)],
            tally: tally(10),
        };
        job.says(worker, message)
    };
    with(1, 0.0);
    let reason = with(2, -0.0)[2].clone();
    for part in ["BITS-1", "their first result that differs: loss 0.0 and loss -0.0;"] {
        assert!(reason.contains(part), "{part:?} in {reason:?}");
    }
}

#[test]
fn a_late_arrival_does_not_hold_the_end_up() {
    let mut job = at_the_end();
    job.finishes(1, 1, 10);
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0"]);
    let told = job.finishes(2, 1, 10);
    assert_eq!(told.last(), Some(&done()));
    // The newcomer may go.
    has(&told, "to w3: complete s10");
}

#[test]
fn a_death_after_the_last_step_does_not_hold_the_end_up() {
    let mut job = at_the_end();
    job.finishes(1, 1, 10);
    assert_eq!(
        job.dies(2, 10),
        [
            "lost w2 while running: its agent saw it end (signal 9)",
            "to w1: complete s10",
            &done(),
        ]
    );
}

#[test]
fn sums_that_died_with_their_teller_are_told_by_another() {
    let mut job = Job::training(2, config());
    job.progress(1, 1, 10, &[0, 1, 2]);
    job.finishes(2, 1, 10);
    let told = job.dies(1, 10);
    assert_eq!(told[1..], ["halting for g1.2", "to w2: halt g1.2"]);
    job.halted(2, 2, 10);
    job.ready(2, 2);
    // It says what it knows before it says that it is done; if it knows nothing, the job ends all the same.
    let told = job.finishes(2, 2, 10);
    assert_eq!(told.last(), Some(&done()));
}

#[test]
fn a_death_before_any_member_has_finished_forms_once_more() {
    let mut job = at_the_end();
    job.dies(2, 10);
    job.halted(1, 2, 10);
    job.ready(1, 2);
    assert_eq!(job.finishes(1, 1, 10), [""; 0], "GEN-3");
    let told = job.finishes(1, 2, 10);
    assert_eq!(told.last(), Some(&done()));
}

#[test]
fn a_stop_is_passed_to_the_closer_and_again_until_it_works() {
    let mut job = Job::training(2, config());
    let close = ["to w2: close g1.1 with stop"];
    assert_eq!(words(&job.event(Event::StopRequested)), close);
    assert_eq!(job.passes(RESEND - Duration::from_millis(1)), [""; 0]);
    assert_eq!(job.passes(Duration::from_millis(1)), close);
    // The closer dies; the next generation's closer is asked as soon as it trains.
    job.dies(2, 3);
    job.halted(1, 2, 3);
    assert_eq!(job.ready(1, 2), ["formed g1.2", "to w1: close g1.2 with stop"]);
    let told = job.finishes(1, 2, 4);
    assert_eq!(told.last(), Some(&format!("done at s4 with {:?}", hash(4))));
    assert_eq!(
        job.passes(RESEND),
        ["to w1: complete s4"],
        "no closer is asked to stop any more"
    );
}

#[test]
fn a_stop_that_a_trailer_has_told_is_passed_on_to_all() {
    let mut job = Job::training(4, config());
    let _ = job.event(Event::StopRequested);
    job.dies(4, 3);
    job.all_halted([1, 3], 2, 3);
    let stopped = Standing {
        stop_at: Some(s(4)),
        ..standing(4)
    };
    let forms = forms(&job.halts(2, g(2), stopped));
    assert_eq!(forms.len(), 3);
    assert!(forms.iter().all(|(_, form)| (form.step, form.stop_at) == (s(4), Some(s(4)))));
    job.all_ready([1, 2], 2);
    assert_eq!(job.ready(3, 2), ["formed g1.2"], "no closer needs to be asked");
}

/// Of three workers that need each other the last has halted at s3.
fn waits_for_workers() -> Job {
    let mut job = Job::training(3, Config { min: 3, ..config() });
    job.progress(1, 1, 3, &[0, 1, 2]);
    job.dies(2, 3);
    job.halted(1, 2, 3);
    job.dies(3, 3);
    job
}

#[test]
fn a_stop_while_those_who_have_the_state_wait_for_others_ends_the_job_with_it() {
    let mut job = waits_for_workers();
    let forms = forms(&job.event(Event::StopRequested));
    let stands = |(worker, form): &(u64, Form)| (*worker, form.step, form.stop_at);
    assert_eq!(forms.iter().map(stands).collect::<Vec<_>>(), [(1, s(3), Some(s(3)))]);
    assert_eq!(job.ready(1, 2), ["formed g1.2"], "nothing is trained any more");
    let told = job.finishes(1, 2, 3);
    assert_eq!(told.last(), Some(&format!("done at s3 with {:?}", hash(3))));
}

#[test]
fn a_stop_that_came_while_others_halted_ends_where_too_few_are_left() {
    let mut job = Job::training(3, Config { min: 2, ..config() });
    job.progress(1, 1, 3, &[0, 1, 2]);
    job.dies(2, 3);
    assert_eq!(job.event(Event::StopRequested), []);
    job.dies(3, 3);
    let told = job.halted(1, 2, 3);
    assert_eq!(told, ["forming g1.2 of [1] at s3", "to w1: form g1.2 r0 at s3"]);
}

#[test]
fn where_memory_does_not_hold_the_shards_a_stop_ends_the_job_all_the_same() {
    let shards = 60;
    let mut job = Job::training(3, Config { shards, ..config() });
    job.progress(1, 1, 3, &[0, 1, 2]);
    job.dies(2, 3);
    job.halted(1, 2, 3);
    assert_eq!(
        job.halted(3, 2, 3).last(),
        Some(&"waiting: 2 here, needs room for 60 shards, there is room for 48 (3.7 GiB and 3 GiB of gradients)".to_owned())
    );
    assert_eq!(forms(&job.event(Event::StopRequested)).len(), 2);
}

#[test]
fn a_stop_where_no_worker_has_the_state_says_what_is_lost() {
    let mut job = waits_for_workers();
    job.dies(1, 3);
    job.arrives(4, 0);
    let told = words(&job.event(Event::StopRequested));
    assert_eq!(
        told,
        ["held for w4", "to w4: halt g1.2"],
        "what a joiner has it says when it halts"
    );
    let lost = "failed: stopped while the job waited for workers; none that has the state at s3 is connected, and no checkpoint is there";
    assert_eq!(job.halted(4, 2, 0), ["to w4: dismiss", lost]);
}

/// It has followed further than it has said, and all members that trained are gone.
#[test]
fn a_stop_where_only_a_joiner_has_the_state_ends_with_that() {
    let mut job = Job::joined(Config { min: 2, ..config() });
    job.progress(1, 1, 7, &[]);
    job.progress(3, 1, 5, &[]);
    job.dies(1, 7);
    assert_eq!(
        job.dies(2, 7).last(),
        Some(&"waiting: 1 here, needs at least 2 workers".to_owned())
    );
    let told = words(&job.event(Event::StopRequested));
    assert_eq!(told, ["held for w3", "to w3: halt g1.2"]);
    assert_eq!(job.halted(3, 2, 7).first(), Some(&"forming g1.2 of [3] at s7".to_owned()));
}

#[test]
fn a_stop_while_waiting_ends_the_job_at_once() {
    let mut job = Job::new(config());
    job.arrives(1, 0);
    let told = words(&job.event(Event::StopRequested));
    assert_eq!(told, ["to w1: dismiss", "failed: stopped while the job waited for workers"]);
}

#[test]
fn a_stop_before_it_is_known_whether_there_was_an_earlier_life_ends_a_job_that_never_began() {
    let mut job = Job::training(2, config());
    job.membership = Membership::resume(config(), Incarnation::new(2), job.now, None);
    job.event(Event::StopRequested);
    assert_eq!(
        job.membership.stage(),
        Stage::Gathering,
        "members of an earlier life may come"
    );
    job.now += crate::limits::ADOPTION_PATIENCE;
    let told = job.event(Event::Tick);
    assert_eq!(job.membership.stage(), Stage::Done);
    let failed = |command: &Command| matches!(command, Command::Tell(JobEvent::Failed { reason }) if reason.contains("stopped while"));
    assert!(told.iter().any(failed), "{told:?}");
}
