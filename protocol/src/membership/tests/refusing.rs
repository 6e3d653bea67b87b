//! Checkpoint actors that refuse to keep something rest for a while, and are done without.

use super::checkpointed::{d, saved_config};
use super::*;
use crate::limits::{DEPOT_REST, DEPOT_REST_MOST};

pub(super) fn targets(job: &Job) -> Vec<u64> {
    let targets = job.membership.checkpoints.targets(&job.membership.facts());
    targets.iter().map(|one| one.depot.get()).collect()
}

#[test]
fn a_depot_that_refused_is_done_without_for_a_while_but_not_for_the_last_checkpoint() {
    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    job.both_saved(2, 3);
    has(&job.committed(7, 3, &[7]), "saved s3 on 1 of 2");
    assert_eq!(targets(&job), [7]);
    job.progress(1, 1, 4, &[]);
    assert_eq!(targets(&job), [7]);
    let stops = job.event(Event::StopRequested);
    assert_eq!(targets(&job), [7, 8], "it is tried once more: {:?}", words(&stops));

    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    job.now += DEPOT_REST;
    job.event(Event::Tick);
    assert_eq!(targets(&job), [7], "it is not asked twice for one checkpoint");
    job.both_saved(2, 3);
    job.committed(7, 3, &[7]);
    assert_eq!(targets(&job), [7, 8]);
}

#[test]
fn where_all_depots_refuse_nothing_is_copied_until_they_have_rested() {
    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    let found = job.refuses(7, 2, 3);
    has(&found, "not saved s3: no checkpoint actor is there that could keep it");
    none_contains(&found, "serve");
    job.now += DEPOT_REST;
    let found = words(&job.event(Event::Tick));
    has(&found, "to w1: serve []");
}

#[test]
fn a_depot_rests_longer_each_time_up_to_a_limit_and_is_as_new_once_it_has_committed() {
    let mut job = Job::saved(saved_config());
    let mut rest = DEPOT_REST;
    for _ in 0..40 {
        let now = job.now;
        assert_eq!(job.membership.checkpoints.fails(d(8), now), now + rest);
        rest = (rest * 2).min(DEPOT_REST_MOST);
    }
    job.committed(8, 3, &[8]);
    assert_eq!(job.membership.checkpoints.failures_of(d(8)), 0);
}
