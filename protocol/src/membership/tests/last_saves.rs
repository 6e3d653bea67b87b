//! The last checkpoint: a job does not end before it.

use super::checkpointed::{about_saves, head, piece, saved_config, saved_until};
use super::*;
use crate::checkpoint::{Head, PieceHash};
use crate::limits::{DEPOT_TELLS, HASH_MOST, LAST_SAVE_PATIENCE};
use crate::messages::DepotMessage;
use crate::state::{StateSize, share_hash};
use crate::status::Stage;

#[test]
fn the_job_ends_only_once_its_last_state_is_saved() {
    let mut job = Job::saved(saved_until(5));
    assert_eq!(about_saves(&job.both_finish(5)), [""; 0]);
    let orders = about_saves(&job.copied(5));
    assert_eq!(orders.len(), 2, "{orders:?}");
    job.passes(LAST_SAVE_PATIENCE + Duration::from_millis(1));
    job.both_saved(1, 5);
    let found = job.both_committed(5);
    has(&found, "saved s5 on 2 of 2");
    any_begins(&found, "done at s5");
}

/// A job at whose end one depot is there, and another has come and has told nothing yet.
fn at_the_end_with_a_depot_that_comes() -> Job {
    let mut job = Job::saved(saved_until(5));
    job.depot_goes(8);
    job.arriving(8, "b");
    job.both_finish(5);
    assert_eq!(about_saves(&job.copied(5)), [""; 0], "it would be on one host");
    job
}

#[test]
fn the_last_state_is_saved_on_hosts_that_have_just_come_too() {
    let mut job = at_the_end_with_a_depot_that_comes();
    let early = job.passes(DEPOT_TELLS - Duration::from_millis(200));
    assert_eq!(about_saves(&early), [""; 0]);
    job.holds(8, vec![]);
    let orders = about_saves(&job.passes(Duration::from_millis(100)));
    let both = ["to w1: save [0] of g1.1@s5 to [7, 8]", "to w2: save [1] of g1.1@s5 to [7, 8]"];
    assert_eq!(orders, both);
}

#[test]
fn the_last_state_waits_no_longer_than_it_may_for_a_depot_that_tells_nothing() {
    let mut job = at_the_end_with_a_depot_that_comes();
    let orders = about_saves(&job.passes(DEPOT_TELLS + Duration::from_millis(200)));
    let one = ["to w1: save [0] of g1.1@s5 to [7]", "to w2: save [1] of g1.1@s5 to [7]"];
    assert_eq!(orders, one);
    // Another depot that comes does not make it wait again.
    job.arriving(9, "c");
    job.both_saved(1, 5);
    let found = job.committed(7, 5, &[7]);
    any_begins(&found, "done at s5");
}

#[test]
fn the_last_state_is_saved_after_the_one_that_is_under_way() {
    let mut job = Job::saving(3, saved_until(5));
    job.both_finish(5);
    assert_eq!(about_saves(&job.copied(5)), [""; 0], "one at a time");
    job.both_saved(1, 3);
    let found = job.both_committed(3);
    none_contains(&found, "done");
    let orders = about_saves(&job.passes(Duration::from_millis(100)));
    assert_eq!(
        orders,
        ["to w1: save [0] of g1.1@s5 to [7, 8]", "to w2: save [1] of g1.1@s5 to [7, 8]"]
    );
}

#[test]
fn a_job_that_is_stopped_saves_its_last_state_and_waits_no_longer_than_it_may() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 1, &[]);
    assert_eq!(words(&job.event(Event::StopRequested)), ["to w2: close g1.1 with stop"]);
    let found = job.both_finish(2);
    none_contains(&found, "done");
    // No snapshot of it comes.
    job.now += LAST_SAVE_PATIENCE;
    let found = job.finishes(1, 1, 2);
    let told = |what: &str| found.iter().any(|text| text.starts_with(what));
    assert!(told("not saved s2") && told("done at s2"), "{found:?}");
    assert_eq!(job.membership.stage(), Stage::Done);
}

/// The only member of g1.2 has copied the state at `step`.
fn copies_alone(job: &mut Job, worker: u64, step: u64) -> Vec<String> {
    let snapshotted = WorkerMessage::Snapshotted {
        snapshot: snapshot(2, step),
        shares: vec![(0, share_hash(8, &[piece(step, 0)]))],
    };
    job.says(worker, snapshotted)
}

#[test]
fn a_job_that_is_stopped_while_it_waits_for_workers_saves_the_state_that_is_there() {
    let mut job = Job::saved(Config {
        min: 2,
        ..saved_config()
    });
    job.progress(1, 1, 7, &[]);
    job.dies(2, 7);
    job.halted(1, 2, 7);
    assert_eq!(forms(&job.event(Event::StopRequested)).len(), 1);
    job.ready(1, 2);
    let found = job.finishes(1, 2, 7);
    none_contains(&found, "done");
    assert_eq!(
        about_saves(&copies_alone(&mut job, 1, 7)),
        ["to w1: save [0] of g1.2@s7 to [7, 8]"]
    );
}

#[test]
fn the_last_state_is_saved_where_a_member_has_copied_it_before_another_is_ready() {
    let mut job = Job::saved(saved_until(5));
    job.progress(1, 1, 5, &[]);
    job.link_broken(1, 1, 2);
    job.halted(1, 2, 5);
    any_begins(&job.halted(2, 2, 5), "forming g1.2");
    job.ready(1, 2);
    let copied = WorkerMessage::Snapshotted {
        snapshot: snapshot(2, 5),
        shares: [0, 1].map(|share| (share, share_hash(8, &[piece(5, share)]))).to_vec(),
    };
    job.says(1, copied.clone());
    job.ready(2, 2);
    let orders = about_saves(&job.says(2, copied));
    assert_eq!(orders.len(), 2, "{orders:?}");
}

#[test]
fn the_last_state_is_waited_for_as_long_as_holders_come_further_with_hashing_it() {
    let mut job = Job::saved(saved_until(5));
    job.both_finish(5);
    for _ in 0..5 {
        job.now += LAST_SAVE_PATIENCE - Duration::from_millis(1);
        let snapshot = snapshot(1, 5);
        let found = job.says(2, WorkerMessage::Hashing { snapshot });
        assert_eq!(found, [""; 0]);
        assert_eq!(job.finishes(1, 1, 5), [""; 0]);
    }
    assert_eq!(about_saves(&job.copied(5)).len(), 2, "it is not too late");
    // Not for ever.
    let mut job = Job::saved(saved_until(5));
    job.both_finish(5);
    let mut ended = false;
    let mut waited = Duration::ZERO;
    while waited < HASH_MOST + LAST_SAVE_PATIENCE {
        assert!(!ended, "after {waited:?}");
        waited += LAST_SAVE_PATIENCE / 2;
        job.now += LAST_SAVE_PATIENCE / 2;
        let snapshot = snapshot(1, 5);
        job.says(2, WorkerMessage::Hashing { snapshot });
        ended = job.finishes(1, 1, 5).iter().any(|said| said.starts_with("done at s5"));
    }
    assert!(ended);
    let mut job = Job::saved(saved_until(5));
    job.both_finish(5);
    let snapshot = snapshot(1, 5);
    job.says(2, WorkerMessage::Hashing { snapshot });
    job.now += LAST_SAVE_PATIENCE;
    let found = job.finishes(1, 1, 5);
    assert!(found[0].starts_with("not saved s5"), "it has come no further: {found:?}");
}

#[test]
fn who_leaves_last_is_let_go_once_its_state_is_saved() {
    let mut job = Job::saved(saved_config());
    job.leaves(1);
    job.leaves(2);
    job.ready(2, 2);
    job.halted(1, 2, 7);
    let found = job.switched(2, 2, 7);
    has(&found, "to w2: close g1.2 with switch to g1.3");
    assert_eq!(job.halted(2, 3, 8), [""; 0], "its state is not kept yet");
    assert_eq!(
        about_saves(&copies_alone(&mut job, 2, 8)),
        ["to w2: save [0] of g1.2@s8 to [7, 8]"]
    );
    let saved = WorkerMessage::Saved {
        snapshot: snapshot(2, 8),
        attempt: 1,
        share: 0,
        bytes: 8,
        description: vec![PieceHash::of(b"names")],
        state: StateSize { pieces: 1, bytes: 8 },
        start: 0,
        pieces: vec![piece(8, 0)],
        is_last: true,
    };
    assert_eq!(about_saves(&job.says(2, saved)), ["commit g1.2@s8 to [7, 8]"]);
    let snapshot = snapshot(2, 8);
    let head = Head {
        snapshot,
        ..head(8, &[7, 8])
    };
    let committed = DepotMessage::Committed { snapshot, head };
    job.depot_says(7, committed.clone());
    let found = job.depot_says(8, committed);
    let told = |what: &str| found.iter().any(|text| text == what);
    assert!(told("saved s8 on 2 of 2") && told("to w2: released at s8"), "{found:?}");
}

#[test]
fn the_last_snapshot_is_kept_while_another_is_written_and_no_member_has_finished() {
    let mut job = Job::saving(3, saved_until(5));
    let found = job.copied(5);
    none_contains(&found, "no shares");
    none_contains(&job.passes(Duration::from_millis(100)), "no shares");
}
