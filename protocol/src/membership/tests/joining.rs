//! Joins that stop no member: the snapshot, its holders, and the joiners that copy it.

use super::*;
use crate::limits::{MAX_COPY_ATTEMPTS, RESEND, ROOM_PATIENCE, SNAPSHOT_PATIENCE};
use crate::status::Stage;

const MAKE_ROOM: [&str; 2] = ["to w1: serve [3]", "to w2: serve [3]"];
const ASK: &str = "to w2: close g1.1 with snapshot";

#[test]
fn a_joiner_copies_once_all_holders_have_told_what_they_have() {
    let mut job = Job::training(2, config());
    assert_eq!(job.arrives(3, 0)[1..], MAKE_ROOM);
    assert_eq!(job.room_made(1, 1), [""; 0]);
    assert_eq!(job.room_made(1, 1), [""; 0], "it is one of two");
    assert_eq!(job.room_made(2, 1), [ASK]);
    assert_eq!(job.snapshotted(1, shares_of(0, 2), snapshot(1, 5)), [""; 0]);
    assert_eq!(
        job.snapshotted(2, shares_of(1, 2), snapshot(1, 5)),
        [
            "snapshot of s5 with 2",
            "to w1: serve [3] g1.1@s5, all, sums from s5",
            "to w2: serve [3] g1.1@s5, all, sums from s5",
            "to w3: copy g1.1@s5 from [1, 2]",
        ]
    );
    assert_eq!(job.membership.stage(), Stage::Running);
}

/// Time passes in which all are heard of.
fn patience(job: &mut Job, patience: Duration) -> Vec<String> {
    for (worker, step) in [(1, 1), (2, 1), (3, 0)] {
        job.progress(worker, 1, step, &[]);
    }
    job.now += patience;
    for (worker, step) in [(1, 2), (2, 2), (3, 0)] {
        job.progress(worker, 1, step, &[]);
    }
    job.passes(Duration::ZERO)
}

#[test]
fn a_snapshot_that_no_holder_has_told_of_is_asked_for_again() {
    let mut job = Job::training(2, config());
    job.arrives(3, 0);
    job.both_make_room();
    assert_eq!(patience(&mut job, SNAPSHOT_PATIENCE), MAKE_ROOM);
    // Hashing may take longer than that: the next one is waited for twice as long.
    job.both_make_room();
    assert_eq!(patience(&mut job, SNAPSHOT_PATIENCE), [""; 0]);
    assert_eq!(patience(&mut job, SNAPSHOT_PATIENCE), MAKE_ROOM);
    // The closer of another generation knows nothing of it.
    job.link_broken(1, 1, 2);
    job.all_halted([1, 2], 2, 5);
    job.ready(1, 2);
    let told = job.ready(2, 2);
    assert_eq!(told[0], "formed g1.2");
    assert!(told.ends_with(&MAKE_ROOM.map(str::to_owned)), "{told:?}");
    job.room_made(1, 1);
    assert_eq!(job.room_made(2, 2), [""; 0], "what w1 said was of the generation before");
    assert_eq!(job.room_made(1, 2), ["to w2: close g1.2 with snapshot"]);
}

#[test]
fn a_member_that_finds_no_room_is_not_waited_for_for_ever() {
    let mut job = Job::training(2, config());
    job.arrives(3, 0);
    job.room_made(2, 1);
    assert_eq!(patience(&mut job, ROOM_PATIENCE - Duration::from_millis(1)), [""; 0]);
    assert_eq!(patience(&mut job, Duration::from_millis(1)), [ASK]);
    assert_eq!(job.room_made(1, 1), [""; 0], "it was asked for already");
}

#[test]
fn who_dies_before_there_is_room_leaves_nothing_to_be_made() {
    let mut job = Job::training(2, config());
    job.arrives(3, 0);
    let told = job.dies(3, 0);
    assert!(
        told.ends_with(&["to w1: serve []".to_owned(), "to w2: serve []".to_owned()]),
        "{told:?}"
    );
    assert_eq!((job.room_made(1, 1), job.room_made(2, 1)), (vec![], vec![]));
}

#[test]
fn who_comes_before_anything_is_let_go_copies_the_same_snapshot() {
    let mut job = Job::joined(config());
    assert_eq!(
        job.arrives(4, 0),
        ["joined w4 at s0"],
        "those who come at once are told of at once"
    );
    assert_eq!(job.arrives(5, 0), ["joined w5 at s0"]);
    assert_eq!(
        job.passes(Duration::ZERO),
        [
            "to w1: serve +[4, 5] -[] g1.1@s5, all, sums from s5",
            "to w2: serve +[4, 5] -[] g1.1@s5, all, sums from s5",
            "to w4: copy g1.1@s5 from [1, 2]",
            "to w5: copy g1.1@s5 from [1, 2]",
        ]
    );
    assert_eq!(
        job.dies(5, 0)[1..],
        [""; 0],
        "what holders are told of it can wait, too: no holder dials for one that is gone"
    );
    for joiner in [3, 4] {
        job.progress(joiner, 1, 6, &[]);
    }
    assert_eq!(
        job.passes(Duration::ZERO),
        [
            "to w1: serve +[] -[5] g1.1@s5, no shares, sums from s6",
            "to w2: serve +[] -[5] g1.1@s5, no shares, sums from s6",
        ]
    );
    assert_eq!(job.arrives(6, 0), ["joined w6 at s0"]);
    let told = job.passes(Duration::ZERO);
    let copy = |told: &&String| told.contains("copy");
    assert_eq!(told.iter().find(copy), None, "it waits for the next snapshot");
}

#[test]
fn sums_are_kept_from_the_step_of_the_slowest_joiner() {
    let mut job = Job::joined(config());
    job.arrives(4, 0);
    job.passes(Duration::ZERO);
    job.progress(3, 1, 8, &[]);
    assert_eq!(job.passes(Duration::ZERO), [""; 0], "w4 still copies shares");
    job.progress(4, 1, 5, &[]);
    assert_eq!(
        job.passes(Duration::ZERO)[0],
        "to w1: serve +[] -[] g1.1@s5, no shares, sums from s5"
    );
    job.progress(4, 1, 7, &[]);
    assert_eq!(
        job.passes(Duration::ZERO)[0],
        "to w1: serve +[] -[] g1.1@s5, no shares, sums from s7"
    );
    assert_eq!(job.passes(Duration::ZERO), [""; 0], "it is said once");
}

#[test]
fn a_copy_that_is_not_answered_is_ordered_again() {
    let mut job = Job::joined(config());
    let again = ["to w3: copy g1.1@s5 from [1, 2]"];
    assert_eq!(job.passes(RESEND), again);
    assert_eq!(job.passes(RESEND - Duration::from_millis(1)), [""; 0]);
    job.progress(3, 1, 5, &[]);
    let told = job.passes(Duration::from_millis(1));
    assert_eq!(told.last().map(String::as_str), Some(again[0]), "loaded is not answered");
    let snapshot = snapshot(1, 5);
    let message = WorkerMessage::Copying { snapshot };
    let _ = job.event(Event::Said { worker: w(3), message });
    assert_eq!(job.passes(RESEND * 3), [""; 0], "it has its order");
    let told = job.dies(2, 5);
    has(&told, "to w3: copy g1.1@s5 from [1]");
    job.passes(Duration::ZERO);
    assert_eq!(
        job.passes(RESEND).last().map(String::as_str),
        Some("to w3: copy g1.1@s5 from [1]")
    );
}

#[test]
fn a_share_lives_on_with_one_holder() {
    let mut job = Job::joined(config());
    let told = job.dies(2, 5);
    has(&told, "to w3: copy g1.1@s5 from [1]");
    job.halted(1, 2, 5);
    job.ready(1, 2);
    assert_eq!(job.membership.stage(), Stage::Running, "the join outlives the generation");
    assert_eq!(job.caught_up(3, snapshot(1, 5), 6)[0], "caught up w3 at s6");
}

#[test]
fn a_share_without_holders_lets_the_joiner_begin_anew() {
    let mut job = Job::joined(config());
    job.dies(2, 5);
    job.halted(1, 2, 5);
    job.ready(1, 2);
    let message = WorkerMessage::Dropped {
        snapshot: snapshot(1, 5),
    };
    assert_eq!(
        job.says(1, message),
        [
            "joins anew w3: both holders of a share are gone",
            "to w1: serve [] g1.1@s5, no shares, sums from s0",
            "to w1: serve [3]",
        ]
    );
    assert_eq!(job.room_made(1, 2), ["to w1: close g1.2 with snapshot"]);
    assert_eq!(job.caught_up(3, snapshot(1, 5), 6), [""; 0], "that snapshot is gone");
}

#[test]
fn a_holder_that_dies_while_others_still_copy_is_not_waited_for() {
    let mut job = Job::training(3, config());
    job.arrives(4, 0);
    job.snapshotted(1, shares_of(0, 3), snapshot(1, 5));
    job.snapshotted(2, shares_of(1, 3), snapshot(1, 5));
    let told = job.dies(3, 5);
    has(&told, "snapshot of s5 with 3");
    has(&told, "to w4: copy g1.1@s5 from [1, 2]");
}

#[test]
fn a_snapshot_tells_how_far_the_job_is() {
    let mut job = Job::training(1, config());
    job.arrives(2, 0);
    job.snapshotted(1, shares_of(0, 1), snapshot(1, 7));
    assert_eq!(
        job.membership.reached(),
        s(7),
        "its only holder may be lost before it is heard of again"
    );
}

#[test]
fn who_has_copied_what_no_joiner_asks_for_any_more_is_told_to_let_go_of_it() {
    let mut job = Job::training(2, config());
    let over = "to w1: serve [] g1.1@s5, no shares, sums from s0";
    assert_eq!(
        job.snapshotted(1, shares_of(0, 2), snapshot(1, 5)),
        [over],
        "no worker joins, and nothing is saved"
    );
    job.arrives(3, 0);
    let over = "to w1: serve [3] g1.9@s5, no shares, sums from s0";
    assert_eq!(
        job.snapshotted(1, shares_of(0, 2), snapshot(9, 5)),
        [over],
        "of another generation"
    );
}

#[test]
fn two_holders_with_different_bytes_fail_the_job() {
    let mut job = Job::training(2, config());
    job.arrives(3, 0);
    job.snapshotted(1, shares_of(0, 2), snapshot(1, 5));
    let message = WorkerMessage::Snapshotted {
        snapshot: snapshot(1, 5),
        shares: vec![(1, hash(1)), (0, hash(9))],
    };
    let told = job.says(2, message);
    let failed = told.last().expect("people are told");
    assert!(
        failed.starts_with("failed: two holders of share 0") && failed.contains("BITS-1"),
        "{failed}"
    );
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn a_copy_that_fails_waits_for_another_snapshot_and_in_the_end_all_wait_for_it() {
    let mut job = Job::joined(config());
    for attempt in 1..MAX_COPY_ATTEMPTS {
        let from = 4 + u64::from(attempt);
        let told = job.copy_failed(3, snapshot(1, from));
        assert_eq!(told[0], "joins anew w3: no holder has it");
        assert!(told.ends_with(&MAKE_ROOM.map(str::to_owned)), "{told:?}");
        assert_eq!(job.both_make_room(), [ASK]);
        job.both_snapshotted(from + 1);
    }
    let last = 4 + u64::from(MAX_COPY_ATTEMPTS);
    let told = job.copy_failed(3, snapshot(1, last));
    assert_eq!(
        told[..5],
        [
            "joins anew w3: no holder has it",
            "halting for g1.2",
            "to w1: halt g1.2",
            "to w2: halt g1.2",
            "held for w3",
        ]
    );
    has(&told, "to w3: halt g1.2");
    job.all_halted([1, 2], 2, 9);
    assert_eq!(
        job.halted(3, 2, 6).last(),
        Some(&"to w3: form g1.2 r2 at s9, state from r0".to_owned())
    );
}

#[test]
fn a_joiner_whose_holders_drop_what_it_copies_time_and_again_is_waited_for() {
    let mut job = Job::joined(config());
    let drops = |job: &mut Job, from| {
        let snapshot = snapshot(1, from);
        job.says(1, WorkerMessage::Dropped { snapshot });
        job.says(2, WorkerMessage::Dropped { snapshot })
    };
    for attempt in 1..MAX_COPY_ATTEMPTS {
        let from = 4 + u64::from(attempt);
        let told = drops(&mut job, from);
        assert_eq!(told[0], "joins anew w3: both holders of a share are gone");
        none_contains(&told, "halting for g1.2");
        assert_eq!(job.both_make_room(), [ASK]);
        job.both_snapshotted(from + 1);
    }
    let told = drops(&mut job, 4 + u64::from(MAX_COPY_ATTEMPTS));
    for what in ["halting for g1.2", "held for w3", "to w3: halt g1.2"] {
        assert!(told.contains(&what.to_owned()), "{told:?}");
    }
    job.all_halted([1, 2], 2, 9);
    let told = job.halted(3, 2, 0);
    has(&told, "to w3: form g1.2 r2 at s9, state from r0");
}

#[test]
fn the_last_holder_waits_for_a_joiner_whose_snapshot_was_broken_off() {
    let mut job = Job::training(2, config());
    job.progress(1, 1, 5, &[]);
    job.arrives(3, 0);
    job.room_made(1, 1);
    job.dies(2, 5);
    let told = job.halted(1, 2, 5);
    assert_eq!(
        told,
        ["held for w3", "to w3: halt g1.2"],
        "it would be lost with the state's last holder"
    );
    assert_eq!(
        job.halted(3, 2, 0),
        [
            "forming g1.2 of [1, 3] at s5",
            "to w1: form g1.2 r0 at s5",
            "to w3: form g1.2 r1 at s5, state from r0"
        ]
    );
}

#[test]
fn while_several_have_the_state_a_joiner_waits_in_vain_some_times_before_it_is_waited_for() {
    let mut job = Job::training(3 + u64::from(MAX_COPY_ATTEMPTS), config());
    job.progress(1, 1, 5, &[]);
    job.arrives(9, 0);
    for attempt in 1..=MAX_COPY_ATTEMPTS {
        let (lost, next) = (7 - u64::from(attempt), 1 + u64::from(attempt));
        job.dies(lost, 5);
        let told: Vec<String> = (1..lost).flat_map(|worker| job.halted(worker, next, 5)).collect();
        let waited_for = told.contains(&"held for w9".to_owned());
        assert_eq!(waited_for, attempt == MAX_COPY_ATTEMPTS, "{told:?}");
        (1..lost).for_each(|worker| drop(job.ready(worker, next)));
    }
}

#[test]
fn a_joiner_that_dies_stops_no_member() {
    let mut job = Job::joined(config());
    let told = job.dies(3, 0);
    assert!(told[0].starts_with("lost w3 while running"));
    assert_eq!(told[1..].len(), 2, "its snapshot is let go: {told:?}");
    assert!(
        told[1..]
            .iter()
            .all(|words| words.ends_with("serve [] g1.1@s5, no shares, sums from s0"))
    );
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn a_joiner_whose_model_fails_fails_only_itself() {
    let mut job = Job::joined(config());
    let reason = "no such file".to_owned();
    let told = job.says(3, WorkerMessage::Failed { reason });
    assert_eq!(
        told[..2],
        [
            "to w3: dismiss",
            "lost w3 while running: its model or its data failed (no such file)"
        ]
    );
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn no_joiner_is_taken_in_once_the_job_is_to_end() {
    let mut job = Job::training(2, config());
    let _ = job.event(Event::StopRequested);
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0"]);
    let mut job = Job::joined(config());
    let _ = job.event(Event::StopRequested);
    assert_eq!(
        job.caught_up(3, snapshot(1, 5), 6),
        ["caught up w3 at s6"],
        "it is not planned in"
    );
}
