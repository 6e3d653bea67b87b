//! Checkpoints under way: which holder writes what, when a manifest is made, and what happens when a worker is lost meanwhile.

use super::checkpointed::*;
use super::refusing::targets;
use super::*;
use crate::checkpoint::{Condition, Every, Head, PieceHash};
use crate::limits::{COMMIT_MOST, LAG_GRACE, SAVE_ATTEMPTS, SAVE_PATIENCE};
use crate::messages::DepotMessage;
use crate::state::{StateSize, share_hash};

#[test]
fn one_is_due_by_steps_and_commits_once_all_shares_and_then_all_manifests_are_durable() {
    let mut job = Job::saved(saved_config());
    none_contains(&job.progress(1, 1, 1, &[]), "serve");
    let due = job.progress(1, 1, 2, &[]);
    let find_room = ["to w1: serve []", "to w2: serve []"];
    assert_eq!(due, find_room, "members find room for a snapshot");
    assert_eq!(job.both_make_room(), ["to w2: close g1.1 with snapshot"]);
    let orders = about_saves(&job.copied(3));
    assert_eq!(
        orders,
        ["to w1: save [0] of g1.1@s3 to [7, 8]", "to w2: save [1] of g1.1@s3 to [7, 8]"]
    );
    assert_eq!(job.says_saved(1, 1, 0, 3), [""; 0]);
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    assert_eq!(job.committed(7, 3, &[7, 8]), [""; 0]);
    let done = about_saves(&job.committed(8, 3, &[7, 8]));
    assert_eq!(
        done,
        [
            "to w1: save of g1.1@s3 over",
            "to w2: save of g1.1@s3 over",
            "saved s3 on 2 of 2"
        ]
    );
    let counts = job.membership.save_counts();
    assert_eq!((counts.committed, counts.merged, counts.given_up), (1, 0, 0));
}

#[test]
fn what_becomes_due_while_one_is_written_is_one_with_the_next_and_counted() {
    let mut job = Job::saving(3, saved_config());
    // Four more become due, and none of them is begun.
    for step in 4..=11 {
        assert_eq!(about_saves(&job.progress(1, 1, step, &[])), [""; 0], "one is under way");
    }
    let write = |job: &mut Job, step, attempt| {
        job.both_saved(attempt, step);
        job.both_committed(step);
        let counts = job.membership.save_counts();
        (counts.committed, counts.merged, counts.largest_lag)
    };
    assert_eq!(write(&mut job, 3, 1), (1, 0, 8), "training was eight steps further");
    job.progress(1, 1, 12, &[]);
    job.both_make_room();
    assert_eq!(about_saves(&job.copied(12)).len(), 2);
    assert_eq!(write(&mut job, 12, 2), (2, 4, 8), "s4, s6, s8 and s10 are one with s12");
}

#[test]
fn one_is_due_by_time() {
    let mut config = saved_config();
    let saves = config.saves.as_mut().expect("it is saved");
    saves.every = Every::Time(Duration::from_secs(60));
    let mut job = Job::saved(config);
    job.now += Duration::from_secs(59);
    none_contains(&job.progress(1, 1, 5, &[]), "serve");
    job.now += Duration::from_secs(1);
    has(&job.progress(1, 1, 6, &[]), "to w1: serve []");
}

#[test]
fn the_other_holder_writes_what_a_dead_one_has_not() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.dies(2, 3));
    assert_eq!(found, ["to w1: save [0, 1] of g1.1@s3 to [7, 8]"]);
    job.says_saved(1, 1, 0, 3);
    assert_eq!(
        job.says_saved(1, 1, 1, 3),
        ["commit g1.1@s3 to [7, 8]"],
        "in whatever phase the ring is"
    );
}

#[test]
fn who_is_cut_off_from_a_depot_lets_another_write_to_it() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.not_saved(1, 1, 3, Some(8)));
    assert_eq!(
        found,
        [
            "to w1: save [] of g1.1@s3 to [7, 8]",
            "to w2: save [0, 1] of g1.1@s3 to [7, 8]"
        ]
    );
    assert_eq!(job.says_saved(1, 1, 0, 3), [""; 0], "it was not asked any more");
    job.says_saved(2, 1, 0, 3);
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    job.committed(7, 3, &[7, 8]);
    has(&job.committed(8, 3, &[7, 8]), "saved s3 on 2 of 2");
    assert_eq!(targets(&job), [7, 8], "the depot is not to blame");
    // The other has nothing of it any more: it is done without that depot.
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, Some(8));
    let found = about_saves(&job.not_saved(2, 1, 3, None));
    assert_eq!(
        found[0],
        "depot 8 refused: the only workers that have a share cannot reach it"
    );
    assert_eq!(found[1], "to w1: save [0, 1] of g1.1@s3 to [7]");
}

#[test]
fn who_accuses_a_depot_that_it_was_not_to_write_to_or_has_accused_before_costs_no_work() {
    let mut job = Job::saving(3, saved_config());
    for stranger in [(1, 99), (77, 8)] {
        assert_eq!(job.not_saved(stranger.0, 1, 3, Some(stranger.1)), [""; 0], "{stranger:?}");
    }
    assert_ne!(job.not_saved(1, 1, 3, Some(8)), [""; 0]);
    assert_eq!(job.not_saved(1, 1, 3, Some(8)), [""; 0], "it has said so");
}

#[test]
fn a_depot_that_does_not_say_whether_a_manifest_is_durable_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.both_saved(1, 3);
    job.committed(7, 3, &[7, 8]);
    job.now += SAVE_PATIENCE;
    job.progress(1, 1, 2, &[]);
    job.progress(2, 1, 2, &[]);
    let found = about_saves(&words(&job.event(Event::Tick)));
    assert!(found[0].starts_with("depot 8 refused: it has not said for 30 s"), "{found:?}");
    assert!(found[1..].iter().all(|text| text.ends_with("to [7]")), "{found:?}");
    job.both_saved(2, 3);
    has(&job.committed(7, 3, &[7]), "saved s3 on 1 of 2");
}

/// It says that it goes on: manifests may be long, but no depot is waited for for ever.
#[test]
fn a_depot_that_makes_a_manifest_durable_for_long_is_waited_for_while_it_says_so() {
    let mut job = Job::saving(3, saved_config());
    job.both_saved(1, 3);
    job.committed(7, 3, &[7, 8]);
    let waits = |job: &mut Job, depot: u64| {
        let (snapshot, placing) = (snapshot(1, 3), placed(1));
        job.depot_says(depot, DepotMessage::Fetching { snapshot, placing });
        job.now += SAVE_PATIENCE / 2;
        job.progress(1, 1, 2, &[]);
        job.progress(2, 1, 2, &[]);
        about_saves(&words(&job.event(Event::Tick)))
    };
    let mut waited = Duration::ZERO;
    while waited < COMMIT_MOST {
        assert_eq!(waits(&mut job, 8), [""; 0]);
        waited += SAVE_PATIENCE / 2;
    }
    let found = waits(&mut job, 8);
    assert!(found[0].starts_with("depot 8 refused"), "{found:?}");
    let mut job = Job::saving(3, saved_config());
    job.both_saved(1, 3);
    job.committed(7, 3, &[7, 8]);
    waits(&mut job, 7);
    assert!(
        waits(&mut job, 7)[0].starts_with("depot 8 refused"),
        "of the other depot it is no word"
    );
}

/// One that has written its share, and one that has not and says for ever that it goes on.
#[test]
fn a_writer_that_says_for_ever_that_it_goes_on_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    let goes_on = |job: &mut Job, worker: u64| {
        let snapshot = snapshot(1, 3);
        job.says(worker, WorkerMessage::Saving { snapshot, attempt: 1 });
        job.now += SAVE_PATIENCE / 2;
        job.progress(1, 1, 2, &[]);
        job.progress(2, 1, 2, &[]);
        about_saves(&words(&job.event(Event::Tick)))
    };
    let mut waited = Duration::ZERO;
    while waited + SAVE_PATIENCE / 2 < LAG_GRACE {
        none_contains(&goes_on(&mut job, 2), "to w1: save [1");
        waited += SAVE_PATIENCE / 2;
    }
    has(&goes_on(&mut job, 2), "to w1: save [1] of g1.1@s3 to [7, 8]");
    assert_eq!(job.says_saved(1, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    // A worker for which none can stand in is waited for.
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.dies(1, 3);
    let mut waited = Duration::ZERO;
    while waited < LAG_GRACE * 2 {
        let snapshot = snapshot(1, 3);
        job.says(2, WorkerMessage::Saving { snapshot, attempt: 1 });
        job.now += SAVE_PATIENCE / 2;
        waited += SAVE_PATIENCE / 2;
        job.progress(2, 1, 2, &[]);
        none_contains(&words(&job.event(Event::Tick)), "not saved");
    }
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    // A worker that has nothing to write any more says nothing of those that have.
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    goes_on(&mut job, 1);
    let found = goes_on(&mut job, 1);
    has(&found, "to w1: save [0] of g1.1@s3 to [7, 8]");
}

#[test]
fn a_depot_that_lacks_again_what_it_has_committed_is_done_without() {
    for lost in [
        vec![],
        vec![Head {
            condition: Condition::Lacking,
            ..head(3, &[7, 8])
        }],
    ] {
        let mut job = Job::saving(3, saved_config());
        job.both_saved(1, 3);
        job.committed(7, 3, &[7, 8]);
        assert_eq!(job.holds(7, vec![head(3, &[7, 8])]), [""; 0], "it has it still");
        let found = about_saves(&job.holds(7, lost));
        assert!(
            found[0].starts_with("depot 7 refused: it lacks some of the checkpoint again"),
            "{found:?}"
        );
        assert!(found[1..].iter().all(|text| text.ends_with("to [8]")), "{found:?}");
        assert_eq!(job.committed(8, 3, &[7, 8]), [""; 0], "of the first attempt");
        job.both_saved(2, 3);
        has(&job.committed(8, 3, &[8]), "saved s3 on 1 of 2");
    }
}

#[test]
fn what_a_dead_one_has_written_counts() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(2, 1, 1, 3);
    job.dies(2, 3);
    assert_eq!(job.says_saved(1, 1, 0, 3), ["commit g1.1@s3 to [7, 8]"]);
}

#[test]
fn without_both_holders_of_a_share_it_is_given_up_and_due_again() {
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, None);
    let found = job.not_saved(2, 1, 3, None);
    has(&found, "not saved s3: both holders of a share are gone");
    // The next snapshot is on its way.
    has(&found, "to w1: serve []");
}

#[test]
fn a_depot_that_dies_while_shares_are_written_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot_goes(8));
    assert_eq!(
        found,
        ["to w1: save [0] of g1.1@s3 to [7]", "to w2: save [1] of g1.1@s3 to [7]"]
    );
    assert_eq!(job.says_saved(2, 1, 1, 3), [""; 0], "of the first attempt");
    job.says_saved(2, 2, 1, 3);
    assert_eq!(job.says_saved(1, 2, 0, 3), ["commit g1.1@s3 to [7]"]);
    let found = about_saves(&job.committed(7, 3, &[7]));
    // People are told that it is on too few.
    has(&found, "saved s3 on 1 of 2");
}

#[test]
fn a_depot_that_dies_while_the_manifest_is_written_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.both_saved(1, 3);
    job.committed(8, 3, &[7, 8]);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot_goes(8));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(job.committed(7, 3, &[7, 8]), [""; 0], "of the first attempt");
    job.both_saved(2, 3);
    let found = about_saves(&job.committed(7, 3, &[7]));
    has(&found, "saved s3 on 1 of 2");
}

#[test]
fn pieces_that_are_not_those_that_were_copied_are_written_by_another_holder_and_commit_nothing() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.says_saved_with(1, 1, 0, 3, piece(3, 9)));
    assert_eq!(found, ["to w2: save [0, 1] of g1.1@s3 to [7, 8]"]);
    let found = job.says_saved_with(2, 1, 0, 3, piece(3, 9));
    let told = found
        .iter()
        .find(|text| text.starts_with("not saved"))
        .expect("it is given up");
    assert!(told.contains("with other bytes than it had copied"), "{told}");
    none_contains(&found, "commit");
}

#[test]
fn a_share_in_parts_is_put_together() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 2, &[]);
    job.both_make_room();
    let pieces = [piece(3, 0), piece(3, 1), piece(3, 2)];
    let hash = share_hash(24, &pieces);
    for worker in [1, 2] {
        let (snapshot, shares) = (snapshot(1, 3), vec![(0, hash), (1, hash)]);
        job.says(worker, WorkerMessage::Snapshotted { snapshot, shares });
    }
    let part = |share, start: u64, pieces: &[PieceHash], is_last| WorkerMessage::Saved {
        snapshot: snapshot(1, 3),
        attempt: 1,
        share,
        bytes: 24,
        description: vec![],
        state: StateSize { pieces: 6, bytes: 48 },
        start,
        pieces: pieces.to_vec(),
        is_last,
    };
    job.says(2, part(1, 0, &pieces, true));
    job.says(1, part(0, 0, &pieces[..2], false));
    // Said twice, as after a connection that broke.
    job.says(1, part(0, 0, &pieces[..2], false));
    assert_eq!(job.says(1, part(0, 2, &pieces[2..], true)), ["commit g1.1@s3 to [7, 8]"]);
}

#[test]
fn silence_of_all_begins_it_anew_and_it_is_given_up_in_the_end() {
    let mut job = Job::saving(3, saved_config());
    let (snapshot, attempt) = (snapshot(1, 3), 1);
    job.says(1, WorkerMessage::Saving { snapshot, attempt });
    let mut orders = 0;
    for _ in 0..SAVE_ATTEMPTS {
        job.now += SAVE_PATIENCE;
        // They live, and train.
        job.progress(1, 1, 2, &[]);
        job.progress(2, 1, 2, &[]);
        let found = words(&job.event(Event::Tick));
        orders += found.iter().filter(|text| text.starts_with("to w1: save [0]")).count();
        if found.iter().any(|text| text == "not saved s3: it failed time and again") {
            assert!(orders > 1);
            return;
        }
    }
    panic!("it was never given up, after {orders} orders");
}
