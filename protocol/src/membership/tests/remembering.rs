//! What is remembered of workers that are gone: bounded, and still right for a worker that comes back late.

use super::*;
use crate::limits::{MISSED_KEPT, OPEN_TALLIES, RELEASED_KEPT};
use crate::membership::JobRecord;

/// Worker 3 of three has left g1.1, at step 7.
fn left() -> Job {
    let mut job = Job::training(3, config());
    job.leaves(3);
    job.all_ready([1, 2], 2);
    job.halted(3, 2, 7);
    job.switched(1, 2, 7);
    assert_eq!(job.switched(2, 2, 7)[0], "to w3: released at s7");
    job
}

fn mentioned(record: &JobRecord) -> usize {
    record.clone().apart().1.len()
}

#[test]
fn of_a_hundred_thousand_that_left_the_record_is_bounded_and_the_first_still_hears_that_it_has() {
    let mut job = left();
    for worker in 0..100_000 {
        let worker = 1_000 + worker;
        job.arrives(worker, 0);
        assert!(job.leaves(worker).contains(&format!("to w{worker}: released at s0")));
    }
    let record = job.membership.record();
    let most = RELEASED_KEPT + MISSED_KEPT + job.membership.present();
    assert!(mentioned(&record) <= most, "{} are mentioned", mentioned(&record));
    assert_eq!(record.released.len(), RELEASED_KEPT);
    assert!(!record.released.contains_key(&w(3)), "it is not known by name any more");
    assert_eq!(job.introduces(3, introduction(g(2), standing(7))), ["to w3: released at s7"]);
    // In the next life as well, and after what is read was written.
    let (rest, each) = record.clone().apart();
    assert_eq!(JobRecord::together(rest, each), record);
    let mut job = Job {
        membership: Membership::resume(config(), Incarnation::new(2), job.now, Some(record)),
        now: job.now,
    };
    assert_eq!(job.introduces(3, introduction(g(2), standing(7))), ["to w3: released at s7"]);
    assert_eq!(
        job.introduces(100_999, introduction(g(0), standing(0))),
        ["to w100999: released at s0"],
        "one that is known by name"
    );
}

#[test]
fn only_who_has_left_is_told_so() {
    let mut job = left();
    for worker in 0..=RELEASED_KEPT as u64 {
        job.arrives(1_000 + worker, 0);
        job.leaves(1_000 + worker);
    }
    assert!(job.membership.record().forgotten > Generation::NONE);
    let told = job.arrives(900_000, 0);
    assert!(told[0].starts_with("joined w900000"), "a newcomer: {told:?}");
    // A worker that was lost may come back, and one that has more than the others is needed.
    job.is_cut_off(2);
    let told = job.introduces(2, introduction(g(2), standing(7)));
    // It was missed.
    none_contains(&told, "released");
    let told = job.introduces(5, introduction(g(2), standing(9)));
    // It has a newer state.
    none_contains(&told, "released");
}

#[test]
fn those_that_were_lost_are_missed_up_to_a_bound_and_count_as_unknown_beyond() {
    let mut job = Job::training(1, config());
    let lost = MISSED_KEPT as u64 + 500;
    for worker in 0..lost {
        job.arrives(1_000 + worker, 0);
        job.now += Duration::from_millis(1);
        job.is_cut_off(1_000 + worker);
    }
    let record = job.membership.record();
    assert_eq!(record.workers.len(), MISSED_KEPT + 1, "and the one that trains");
    assert!(mentioned(&record) <= MISSED_KEPT + 1);
    assert!(!record.workers.contains(&w(1_000)) && record.workers.contains(&w(1_000 + lost - 1)));
    assert_eq!(
        u64::from(record.ledger.unknown()),
        lost,
        "no worker is forgotten in the count"
    );
}

#[test]
fn ends_that_were_seen_leave_nothing_behind() {
    let mut job = Job::training(1, config());
    for worker in 0..5_000 {
        let worker = 1_000 + worker;
        job.arrives(worker, 0);
        // Some end before they have counted, some while they compute.
        let tally = (!worker.is_multiple_of(3)).then(|| tally(worker % 2));
        job.exits(worker, tally);
    }
    let record = job.membership.record();
    assert_eq!(mentioned(&record), 1, "the one that trains");
    assert!(record.ledger.open() <= OPEN_TALLIES, "{} are open", record.ledger.open());
}

#[test]
fn who_was_asked_to_leave_is_asked_again_however_often_the_coordinator_was_started_since() {
    let mut job = Job::training(3, config());
    job.leaves(3);
    let mut record = job.membership.record();
    for life in 2..5 {
        let next = Membership::resume(config(), Incarnation::new(life), job.now, Some(record));
        record = next.record();
        assert_eq!(record.leaving, [w(3)].into(), "in life {life}");
    }
}
