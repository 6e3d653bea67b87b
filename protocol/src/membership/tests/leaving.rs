//! Leaves that were announced: no work is lost, and no leaver is let go too early.

use super::*;
use crate::limits::{CATCH_UP_PATIENCE, LEAVE_GRACE, LEAVERS_CATCH_UP_PATIENCE, RESEND};
use crate::status::Stage;

/// Worker 3 of three is to leave, and the closer is asked to switch to g2 without it.
fn leaving() -> Job {
    let mut job = Job::training(3, config());
    job.leaves(3);
    job.all_ready([1, 2], 2);
    job
}

#[test]
fn a_leaver_is_planned_out() {
    let mut job = Job::training(3, config());
    assert_eq!(
        job.leaves(3),
        ["leaving w3", "to w1: prepare g1.2 r0", "to w2: prepare g1.2 r1"]
    );
    assert_eq!(job.leaves(3), [""; 0], "once is enough");
    job.ready(1, 2);
    assert_eq!(job.ready(2, 2), ["to w3: close g1.1 with switch to g1.2"]);
}

#[test]
fn a_leaver_is_released_once_all_others_have_begun() {
    let mut job = leaving();
    // It stands at the boundary: so the switch has happened.
    assert_eq!(job.halted(3, 2, 7), ["switched to g1.2 of [1, 2] at s7"]);
    assert_eq!(job.switched(1, 2, 7), [""; 0], "worker 2 may need its links for the last sum");
    assert_eq!(job.switched(2, 2, 7), ["to w3: released at s7", "left w3 at s7"]);
    assert!(!job.membership.knows(w(3)));
}

#[test]
fn a_leaver_whose_answer_was_lost_is_asked_again() {
    let mut job = leaving();
    assert_eq!(job.switched(1, 2, 7), ["switched to g1.2 of [1, 2] at s7"]);
    assert_eq!(job.passes(RESEND)[0], "to w2: prepare g1.2 r1", "first all others begin");
    job.switched(2, 2, 7);
    assert_eq!(job.passes(RESEND), ["to w3: halt g1.2"]);
    assert_eq!(job.halted(3, 1, 0), [""; 0], "GEN-3");
    assert_eq!(job.halted(3, 2, 7), ["to w3: released at s7", "left w3 at s7"]);
}

#[test]
fn a_leave_that_was_asked_for_is_not_forgotten_while_its_worker_is_away() {
    let mut job = leaving();
    has(&job.is_cut_off(3), "lost w3 while running: its connection broke (reset)");
    let before = job.membership.record();
    assert!(
        before.leaving.contains(&w(3)),
        "nor by the coordinator's next life: {before:?}"
    );
    has(&job.arrives(3, 0), "leaving w3");
    let mut job = leaving();
    job.dies(3, 0);
    none_contains(&job.arrives(3, 0), "leaving w3");
}

#[test]
fn the_job_ends_only_with_the_count_of_those_left_out() {
    let mut job = leaving();
    job.switched(1, 2, 10);
    job.switched(2, 2, 10);
    job.finishes(1, 2, 10);
    assert_eq!(job.finishes(2, 2, 10), [""; 0]);
    let told = job.halts(3, g(2), standing(10));
    let Some(Command::Tell(JobEvent::Done(summary))) = told.last() else {
        panic!("expected the end, found {told:?}");
    };
    assert_eq!((summary.computed, summary.unknown), (60, 0));
}

#[test]
fn a_leaver_that_dies_while_others_need_it_is_a_loss() {
    let mut job = leaving();
    job.halted(3, 2, 7);
    job.switched(1, 2, 7);
    let told = job.dies(3, 7);
    assert_eq!(told[1], "halting for g1.3", "worker 2 may wait for the last sum: {told:?}");
    let mut job = leaving();
    job.switched(1, 2, 7);
    job.switched(2, 2, 7);
    assert_eq!(job.dies(3, 7).len(), 1, "no member waits for it any more");
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn a_leaver_that_has_not_gone_when_something_breaks_takes_part_once_more() {
    let mut job = leaving();
    job.halted(3, 2, 7);
    job.dies(2, 6);
    assert_eq!(
        job.halted(1, 3, 6),
        [
            "forming g1.3 of [1, 3] at s7",
            "to w1: form g1.3 r0 at s7, sum from r1",
            "to w3: form g1.3 r1 at s7",
        ]
    );
    job.ready(1, 3);
    let told = job.ready(3, 3);
    assert_eq!(told, ["formed g1.3", "to w1: prepare g1.4 r0"], "and leaves then");
}

#[test]
fn a_leaver_whose_answer_comes_after_a_halt_takes_part_once_more() {
    let mut job = leaving();
    job.switched(1, 2, 7);
    job.dies(2, 6);
    assert_eq!(job.halted(3, 2, 7), [""; 0], "it was asked to halt for g1.3 since");
    job.dies(1, 7);
    let told = job.halted(3, 3, 7);
    assert!(job.membership.knows(w(3)), "no other worker has its state: {told:?}");
}

#[test]
fn a_joiner_that_is_to_leave_goes_at_once() {
    let mut job = Job::joined(config());
    let told = job.leaves(3);
    assert_eq!(told[..3], ["leaving w3", "to w3: released at s0", "left w3 at s0"]);
    // Once it is planned in, it first comes in.
    let mut job = Job::ordered(config());
    assert_eq!(job.leaves(3), ["leaving w3"]);
    for worker in 1..=3 {
        job.switched(worker, 2, 9);
    }
    assert_eq!(job.passes(RESEND)[..2], ["to w1: prepare g1.3 r0", "to w2: prepare g1.3 r1"]);
}

#[test]
fn a_joiner_that_has_more_than_the_members_stays_until_they_are_as_far_or_the_grace_is_over() {
    let ahead = || {
        let mut job = Job::training(2, config());
        // It was cut off, and the others began anew without what it has.
        job.arrives(3, 9);
        let told = job.leaves(3);
        // Two steps would be computed again.
        none_contains(&told, "left");
        job
    };
    let gone = ["to w3: released at s9", "left w3 at s9"];
    let mut job = ahead();
    assert!(!job.progress(1, 1, 7, &[]).iter().any(|said| said.starts_with("left")));
    assert_eq!(job.progress(1, 1, 8, &[])[..2], gone, "one step is");
    let mut job = ahead();
    let told = job.passes(LEAVE_GRACE);
    assert!(gone.iter().all(|said| told.iter().any(|one| one == said)), "{told:?}");
}

#[test]
fn a_leaver_waits_for_a_joiner_that_is_needed_in_its_place() {
    let mut job = Job::training(2, Config { min: 2, ..config() });
    // Too few would be left: they halt at a boundary and lose no work.
    assert_eq!(job.leaves(2), ["leaving w2", "to w2: close g1.1 with switch to g1.2"]);
    assert_eq!(job.halted(2, 2, 7), [""; 0]);
    let told = job.halted(1, 2, 7);
    assert_eq!(
        told,
        [
            "to w2: released at s7",
            "left w2 at s7",
            "waiting: 1 here, needs at least 2 workers"
        ]
    );
}

#[test]
fn a_joiner_that_has_caught_up_takes_the_place_of_a_leaver() {
    let mut job = Job::joined(Config { min: 2, ..config() });
    job.leaves(2);
    let told = job.caught_up(3, snapshot(1, 5), 6);
    assert_eq!(told[0], "caught up w3 at s6");
    let mut job = Job::joined(config());
    job.leaves(1);
    let told = job.ready(1, 2);
    assert_eq!(told, [""; 0], "it is no part of the plan");
    job.ready(2, 2);
    job.halted(1, 2, 7);
    job.switched(2, 2, 7);
    assert_eq!(
        job.caught_up(3, snapshot(1, 5), 7)[1..],
        ["to w2: prepare g1.3 r0", "to w3: prepare g1.3 r1"]
    );
}

#[test]
fn a_pause_whose_halts_were_lost_is_noticed() {
    let mut job = Job::training(2, Config { min: 2, ..config() });
    job.leaves(2);
    assert_eq!(job.passes(RESEND), ["to w2: close g1.1 with switch to g1.2"]);
    assert_eq!(job.progress(1, 2, 7, &[]), [""; 0], "it has halted for g1.2");
    assert_eq!(job.membership.stage(), Stage::Halting);
    assert_eq!(job.passes(RESEND), ["to w1: halt g1.2", "to w2: halt g1.2"]);
}

#[test]
fn members_that_all_leave_wait_for_a_joiner_that_lags_before_their_grace_is_over() {
    for (leaves, patience) in [(true, LEAVERS_CATCH_UP_PATIENCE), (false, CATCH_UP_PATIENCE)] {
        let mut job = Job::training(1, config());
        if leaves {
            job.leaves(1);
        }
        job.arrives(2, 0);
        job.snapshotted(1, shares_of(0, 1), snapshot(1, 3));
        let begun = job.now;
        let mut told = job.progress(2, 1, 3, &[]);
        while !told.contains(&"held for w2".to_owned()) {
            told = job.progress(1, 1, 8, &[]);
            told.extend(job.progress(2, 1, 5, &[]));
            told.extend(job.passes(Duration::from_millis(500)));
            assert!(job.now - begun < patience + Duration::from_secs(1), "{told:?}");
            none_contains(&told, "released");
        }
        assert!(
            job.now - begun >= patience,
            "leaves: {leaves}, {:?}: {told:?}",
            job.now - begun
        );
    }
}

#[test]
fn the_last_holder_of_the_state_waits_for_a_joiner_or_its_deadline() {
    let mut job = Job::training(1, config());
    assert_eq!(job.leaves(1), ["leaving w1"], "it trains on");
    let mut waits = |time| {
        job.now += time;
        job.progress(1, 1, 1, &[])
    };
    assert_eq!(waits(LEAVE_GRACE - Duration::from_millis(1)), [""; 0]);
    assert_eq!(waits(Duration::from_millis(1)), ["to w1: close g1.1 with switch to g1.2"]);
    assert_eq!(
        job.halted(1, 2, 2),
        [
            "to w1: released at s2",
            "left w1 at s2",
            "waiting: 0 here, needs at least 1 worker"
        ]
    );
    // A joiner that has the state comes in its place.
    let mut job = Job::training(1, config());
    job.leaves(1);
    job.arrives(2, 0);
    job.snapshotted(1, shares_of(0, 1), snapshot(1, 3));
    assert_eq!(job.caught_up(2, snapshot(1, 3), 4)[1..], ["to w2: prepare g1.2 r0"]);
    assert_eq!(job.ready(2, 2), ["to w1: close g1.1 with switch to g1.2"]);
    job.halted(1, 2, 5);
    assert_eq!(job.switched(2, 2, 5)[..2], ["to w1: released at s5", "left w1 at s5"]);
}

#[test]
fn a_leaver_in_a_job_that_waits_goes_when_another_has_the_state() {
    let mut job = Job::training(3, Config { min: 3, ..config() });
    job.dies(3, 4);
    job.all_halted([1, 2], 2, 4);
    assert_eq!(job.leaves(2)[..3], ["leaving w2", "to w2: released at s4", "left w2 at s4"]);
    assert_eq!(job.leaves(1), ["leaving w1"], "no other worker has the state");
    job.now += LEAVE_GRACE;
    assert_eq!(job.progress(1, 2, 4, &[])[0], "to w1: released at s4");
}

#[test]
fn a_leaver_while_halting_goes_before_the_next_generation() {
    let mut job = Job::training(3, config());
    job.dies(3, 0);
    assert_eq!(job.leaves(2), ["leaving w2"]);
    job.halted(1, 2, 0);
    assert_eq!(
        job.halted(2, 2, 0)[..3],
        ["to w2: released at s0", "left w2 at s0", "forming g1.2 of [1] at s0"]
    );
}

#[test]
fn a_leaver_while_forming_leaves_once_training_goes_on() {
    let mut job = Job::training(3, config());
    job.dies(3, 0);
    job.all_halted([1, 2], 2, 0);
    assert_eq!(job.leaves(2), ["leaving w2"]);
    job.ready(1, 2);
    assert_eq!(job.ready(2, 2), ["formed g1.2", "to w1: prepare g1.3 r0"]);
}

#[test]
fn no_worker_leaves_a_job_that_is_to_end() {
    let mut job = Job::training(2, config());
    let _ = job.event(Event::StopRequested);
    assert_eq!(job.leaves(2), ["leaving w2"]);
    let mut job = Job::training(2, config());
    job.finishes(1, 1, 10);
    assert_eq!(job.leaves(2), ["leaving w2"]);
    assert_eq!(job.leaves(9), [""; 0], "no such worker is known");
}
