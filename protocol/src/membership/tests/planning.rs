//! Planned changes: prepared while the others train, begun at a boundary.

use super::*;
use crate::limits::RESEND;
use crate::status::Stage;

#[test]
fn a_joiner_that_has_caught_up_is_planned_in_and_switched_to() {
    let mut job = Job::joined(config());
    assert_eq!(
        job.caught_up(3, snapshot(1, 5), 6),
        [
            "caught up w3 at s6",
            "to w1: prepare g1.2 r0",
            "to w2: prepare g1.2 r1",
            "to w3: prepare g1.2 r2",
        ]
    );
    assert_eq!(job.ready(1, 2), [""; 0]);
    assert_eq!(job.ready(3, 2), [""; 0]);
    assert_eq!(job.ready(2, 2), ["to w2: close g1.1 with switch to g1.2"]);
    assert_eq!(
        job.progress(1, 1, 8, &[7]),
        ["steps [s7]"],
        "the old one goes on until the boundary"
    );
    assert_eq!(job.switched(1, 2, 9), ["switched to g1.2 of [1, 2, 3] at s9"]);
    assert_eq!(job.membership.stage(), Stage::Running);
    assert_eq!(job.switched(3, 2, 9), [""; 0]);
    let told = job.switched(2, 2, 9);
    assert!(
        told.iter().all(|words| words.contains("serve [] g1.1@s5")),
        "the snapshot has served: {told:?}"
    );
    assert_eq!(job.membership.generation(), g(2));
}

/// All three halt.
fn all_halt(told: &[String]) {
    assert_eq!(told[..2], ["halting for g1.3", "to w1: halt g1.3"], "{told:?}");
    assert_eq!(told.len(), 4, "{told:?}");
}

/// A keeper has handed it a trailer that the members did not have, or has lied to the coordinator of where they begin.
#[test]
fn a_joiner_that_begins_at_another_step_than_the_members_makes_all_halt() {
    for (first, then) in [(8, 9), (9, 8)] {
        let mut job = Job::ordered(config());
        job.switched(3, 2, first);
        all_halt(&job.switched(1, 2, then));
        assert_eq!(job.switched(2, 2, then), [""; 0], "once");
        job.all_halted([1, 2], 3, 9);
        assert_eq!(job.halted(3, 3, 8)[0], "forming g1.3 of [1, 2, 3] at s9");
    }
}

#[test]
fn a_joiner_that_makes_progress_before_the_step_where_the_members_begin_makes_all_halt() {
    let mut job = Job::ordered(config());
    job.switched(1, 2, 9);
    all_halt(&job.progress(3, 2, 8, &[]));
    let mut job = Job::ordered(config());
    job.progress(3, 2, 8, &[]);
    all_halt(&job.switched(1, 2, 9));
    // It may be beyond it.
    let mut job = Job::ordered(config());
    job.progress(3, 2, 10, &[]);
    none_contains(&job.switched(1, 2, 9), "halt");
    none_contains(&job.switched(2, 2, 9), "halt");
}

/// Where its word were the one that counts, none would be behind it.
#[test]
fn who_says_first_that_a_generation_has_begun_is_not_believed_to_be_far_beyond_the_others() {
    let mut job = Job::ordered(config());
    job.progress(3, 2, 10, &[]);
    job.switched(1, 2, 6);
    job.switched(2, 2, 6);
    has(&job.link_broken(1, 2, 2), "halting for g1.3");
    job.all_halted([1, 2], 3, 6);
    let told = job.halted(3, 3, 10);
    let refuted = "it says step s10, which cannot be: expected a step up to s7, as the others say";
    assert!(told[1].contains(refuted), "{told:?}");
}

/// Worker 3 of four leaves; the order to switch has gone out, and none is known to have begun without it when all are told to halt.
fn halted_while_it_leaves() -> Job {
    let mut job = Job::training(4, config());
    job.leaves(3);
    has(&job.all_ready([1, 2, 4], 2), "to w4: close g1.1 with switch to g1.2");
    has(&job.link_broken(1, 1, 2), "halting for g1.3");
    job
}

#[test]
fn who_says_that_it_went_on_without_those_that_would_have_gone_with_it_is_left_out() {
    let mut job = halted_while_it_leaves();
    job.all_halted([1, 2, 3], 3, 6);
    let told = job.halted(4, 3, 10);
    has(&told, "to w4: dismiss");
    let refuted = |line: &String| line.contains("expected a step up to s7, as the others say");
    assert!(told.iter().any(refuted), "{told:?}");
}

#[test]
fn those_that_went_on_without_one_that_leaves_are_believed() {
    let mut job = halted_while_it_leaves();
    job.all_halted([1, 2], 3, 9);
    job.halted(3, 3, 6);
    let told = job.halted(4, 3, 10);
    none_contains(&told, "dismiss");
    has(&told, "forming g1.3 of [1, 2, 4] at s10");
}

#[test]
fn what_is_said_of_a_switch_after_a_failure_changes_nothing() {
    let mut job = Job::ordered(config());
    job.switched(3, 2, 9);
    job.membership.fail("test".to_owned());
    none_contains(&job.switched(1, 2, 8), "halt");
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn what_is_not_answered_is_said_again() {
    let mut job = Job::planned(config());
    job.ready(1, 2);
    let told = job.passes(RESEND);
    assert_eq!(told[..2], ["to w2: prepare g1.2 r1", "to w3: prepare g1.2 r2"]);
    job.all_ready([2, 3], 2);
    let told = job.passes(RESEND);
    assert_eq!(told, ["to w2: close g1.1 with switch to g1.2", "to w3: prepare g1.2 r2"]);
    job.switched(2, 2, 9);
    job.switched(1, 2, 9);
    // A joiner that stands at s9 already will not see the trailer.
    assert_eq!(job.passes(RESEND), ["to w3: prepare g1.2 r2"]);
    job.switched(3, 2, 9);
    assert_eq!(job.passes(RESEND), [""; 0]);
}

#[test]
fn a_worker_that_makes_progress_in_a_planned_generation_has_begun_it() {
    let mut job = Job::ordered(config());
    assert_eq!(
        job.progress(3, 2, 9, &[])[0],
        "switched to g1.2 of [1, 2, 3] at s9",
        "its own word was lost"
    );
    let mut job = Job::ordered(config());
    let told = job.finishes(1, 2, 10);
    assert_eq!(told[0], "switched to g1.2 of [1, 2, 3] at s10");
    assert_eq!(job.membership.stage(), Stage::Running);
    job.finishes(2, 2, 10);
    let told = job.finishes(3, 2, 10);
    assert_eq!(told.last(), Some(&format!("done at s10 with {:?}", hash(10))));
}

#[test]
fn none_has_begun_a_plan_that_is_not_ordered() {
    all_halt(&Job::planned(config()).switched(3, 2, 9));
    all_halt(&Job::planned(config()).finishes(3, 2, 10));
    all_halt(&Job::planned(config()).switched(1, 2, 9));
}

#[test]
fn a_joiner_that_dies_before_the_order_costs_nothing() {
    let mut job = Job::planned(config());
    let told = job.dies(3, 6);
    none_contains(&told, "halt");
    assert_eq!(job.ready(1, 2), [""; 0], "the plan is gone");
    assert_eq!(job.ready(2, 2), [""; 0]);
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn a_joiner_that_dies_after_the_order_is_missed() {
    let mut job = Job::ordered(config());
    let told = job.dies(3, 6);
    has(&told, "halting for g1.3");
    // It may have begun g1.2, so that number is never used again.
    job.halted(1, 3, 9);
    assert_eq!(job.halted(2, 3, 9)[0], "forming g1.3 of [1, 2] at s9", "GEN-1");
}

#[test]
fn a_member_that_dies_halts_those_who_may_have_begun() {
    let mut job = Job::ordered(config());
    let told = job.dies(1, 8);
    // It may take part already.
    has(&told, "to w3: halt g1.3");
    let mut job = Job::planned(config());
    let told = job.dies(1, 8);
    assert!(
        told.contains(&"halting for g1.3".to_owned()) && !told.contains(&"to w3: halt g1.3".to_owned()),
        "{told:?}"
    );
}

#[test]
fn a_joiner_that_gives_up_before_the_order_begins_anew_and_after_it_halts_all() {
    let mut job = Job::planned(config());
    let told = job.copy_failed(3, snapshot(1, 5));
    assert_eq!(told[0], "joins anew w3: no holder has it");
    none_contains(&told, "halt");
    let mut job = Job::ordered(config());
    assert_eq!(job.copy_failed(3, snapshot(1, 5))[0], "halting for g1.3");
    let mut job = Job::ordered(config());
    job.switched(1, 2, 9);
    assert_eq!(job.copy_failed(3, snapshot(1, 5))[0], "halting for g1.3", "it is awaited");
}

#[test]
fn a_plan_whose_snapshot_is_gone_is_given_up() {
    let mut job = Job::planned(config());
    let dropped = |job: &mut Job, worker| {
        let snapshot = snapshot(1, 5);
        job.says(worker, WorkerMessage::Dropped { snapshot })
    };
    dropped(&mut job, 1);
    assert_eq!(dropped(&mut job, 2)[0], "joins anew w3: both holders of a share are gone");
    for worker in 1..=3 {
        assert_eq!(job.ready(worker, 2), [""; 0]);
    }
}

#[test]
fn a_link_that_cannot_be_made_for_a_plan_halts_no_member() {
    let mut job = Job::planned(config());
    let told = job.link_broken(2, 2, 3);
    assert_eq!(
        told[0], "to w3: prepare g1.3 r0",
        "it is planned anew, with another neighbour: {told:?}"
    );
    assert_eq!(job.membership.stage(), Stage::Running);
    let mut job = Job::ordered(config());
    assert_eq!(job.link_broken(2, 2, 3)[0], "halting for g1.3");
}

#[test]
fn a_joiner_out_of_reach_is_left_out_whichever_end_says_so() {
    for told_by_joiner in [false, true] {
        let mut job = Job::planned(config());
        let mut told = vec![];
        for (count, neighbour) in [(2, 2), (3, 1), (4, 2)] {
            let (teller, peer) = if told_by_joiner { (3, neighbour) } else { (neighbour, 3) };
            told = job.link_broken(teller, count, peer);
        }
        assert_eq!(told[0], "to w3: dismiss", "{told:?}");
        assert_eq!(job.membership.stage(), Stage::Running);
        assert!(job.membership.knows(w(1)) && job.membership.knows(w(2)));
    }
}

#[test]
fn a_stop_outranks_a_plan() {
    let mut job = Job::ordered(config());
    assert_eq!(words(&job.event(Event::StopRequested)), ["to w2: close g1.1 with stop"]);
    // The trailer had said switch already: the closer of the next generation is asked.
    let told = job.switched(2, 2, 9);
    assert_eq!(told, ["switched to g1.2 of [1, 2, 3] at s9", "to w3: close g1.2 with stop"]);
    // It had not: all stop.
    let mut job = Job::ordered(config());
    let _ = job.event(Event::StopRequested);
    job.finishes(1, 1, 9);
    let told = job.finishes(2, 1, 9);
    assert_eq!(told.last(), Some(&format!("done at s9 with {:?}", hash(9))));
}

#[test]
fn a_job_that_ends_during_a_plan_ends() {
    let mut job = Job::planned(config());
    job.finishes(1, 1, 10);
    let told = job.finishes(2, 1, 10);
    // The joiner may go.
    has(&told, "to w3: complete s10");
}

#[test]
fn a_worker_that_stands_elsewhere_than_its_form_says_halts_all() {
    let mut job = Job::training(3, config());
    job.dies(3, 5);
    job.all_halted([1, 2], 2, 5);
    assert_eq!(job.halted(2, 2, 5), [""; 0], "an old answer");
    assert_eq!(job.halted(2, 2, 6)[0], "halting for g1.3", "STEP-2");
}

#[test]
fn a_returning_member_during_a_plan_is_halted_like_all() {
    let mut job = Job::ordered(config());
    job.is_cut_off(2);
    job.halted(1, 3, 9);
    let told = job.halted(3, 3, 9);
    assert_eq!(
        told[0], "forming g1.3 of [1, 3] at s9",
        "the joiner is a member now: {told:?}"
    );
}
