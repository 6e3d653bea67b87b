//! From where a job goes on whose state no worker has.

use super::checkpointed::{head, saved_config};
use super::*;
use crate::checkpoint::{Condition, Head};
use crate::limits::{ADOPTION_PATIENCE, DEPOTS_PATIENCE, RESTORE_ATTEMPTS, STATE_GRACE};
use crate::words::Rank;

/// Each checkpoint is on the depots 7 and 8.
fn both(step: u64) -> Head {
    head(step, &[7, 8])
}

/// A job that begins with what these depots tell.
fn begun(seven: Vec<Head>, eight: Option<Vec<Head>>) -> (Job, Vec<String>) {
    let mut job = Job::new(saved_config());
    let mut found = job.depot_comes(7, "a", seven);
    if let Some(heads) = eight {
        found.extend(job.depot_comes(8, "b", heads));
    }
    job.arrives(1, 0);
    found = job.arrives(2, 0);
    (job, found)
}

fn not_restored(job: &mut Job, worker: u64, count: u64) -> Vec<String> {
    let (generation, reason) = (g(count), "a piece is missing".to_owned());
    job.says(worker, WorkerMessage::NotRestored { generation, reason })
}

#[test]
fn the_newest_complete_one_is_resumed_from_and_all_may_read_it() {
    let (_, found) = begun(vec![both(4), both(8)], Some(vec![both(4), both(8)]));
    has(&found, "resumes from s8, passing over 0");
    has(&found, "to 7: serve [1, 2]");
    has(&found, "to 8: serve [1, 2]");
    has(&found, "to w1: form g1.1 r0 at s8, from a checkpoint");
    has(&found, "to w2: form g1.1 r1 at s8, from a checkpoint");
}

#[test]
fn one_that_is_not_complete_is_waited_for_and_then_passed_over() {
    let lacking = Head {
        condition: Condition::Lacking,
        ..both(8)
    };
    let (mut job, found) = begun(vec![both(4), lacking.clone()], Some(vec![both(4), lacking]));
    any_begins(&found, "waiting");
    let found = job.passes(DEPOTS_PATIENCE);
    has(&found, "resumes from s4, passing over 1");
}

/// Two workers, and depot 7, which keeps these and has of the others only the names.
fn begun_unreadable(heads: Vec<Head>, names: &[u64]) -> (Job, Vec<String>) {
    let mut job = Job::new(saved_config());
    job.depot_comes(7, "a", vec![]);
    job.holds_unreadable(7, heads, names.iter().map(|&step| both(step).key).collect());
    job.arrives(1, 0);
    let found = job.arrives(2, 0);
    (job, found)
}

#[test]
fn one_that_cannot_be_read_is_waited_for_elsewhere_and_then_passed_over() {
    let (mut job, found) = begun_unreadable(vec![head(4, &[7])], &[2, 8]);
    any_begins(&found, "waiting");
    let found = job.passes(DEPOTS_PATIENCE);
    has(&found, "resumes from s4, passing over 1");
    // Another depot has it.
    let (mut job, _) = begun_unreadable(vec![head(4, &[7])], &[8]);
    let found = job.depot_comes(8, "b", vec![both(8)]);
    has(&found, "resumes from s8, passing over 0");
}

#[test]
fn where_none_can_be_read_training_does_not_begin_anew() {
    let (mut job, found) = begun_unreadable(vec![], &[4, 8]);
    any_begins(&found, "waiting");
    let found = job.passes(DEPOTS_PATIENCE).join("; ");
    let why = "none of 2 checkpoints can be resumed from: the newest is at s8, kept by the checkpoint actor d0000000000000007 on a, and \
               its manifest cannot be read";
    assert!(found.contains(why), "{found}");
}

#[test]
fn what_an_earlier_life_may_have_committed_is_not_begun_anew_without() {
    let mut first = Job::new(saved_config());
    first.depot_comes(7, "a", vec![]);
    first.arrives(1, 0);
    first.arrives(2, 0);
    let (record, now) = (first.membership.record(), first.now);
    assert!(record.has_begun());
    let membership = Membership::resume(saved_config(), Incarnation::new(2), now, Some(record));
    let mut next = Job { membership, now };
    next.depot_comes(7, "a", vec![]);
    next.holds_unreadable(7, vec![], vec![both(4).key]);
    next.arrives(3, 0);
    next.arrives(4, 0);
    next.passes(ADOPTION_PATIENCE);
    for worker in [3, 4] {
        next.halts(worker, Generation::new(Incarnation::new(2), 1), standing(0));
    }
    let found = next.passes(DEPOTS_PATIENCE).join("; ");
    assert!(found.contains("none of 1 checkpoints can be resumed from"), "{found}");
}

#[test]
fn one_that_becomes_complete_is_not_waited_for_any_longer() {
    // Kept once, in parts: each depot has some of it.
    let once = Head { replicas: 1, ..both(8) };
    let (mut job, found) = begun(vec![both(4), once.clone()], None);
    any_begins(&found, "waiting");
    let found = job.depot_comes(8, "b", vec![both(4), once]);
    has(&found, "resumes from s8, passing over 0");
}

#[test]
fn nothing_begins_before_a_depot_has_told_what_it_keeps() {
    let mut job = Job::new(saved_config());
    job.arrives(1, 0);
    let found = job.arrives(2, 0);
    assert!(found.iter().any(|text| text.contains("a checkpoint actor")), "{found:?}");
    let found = job.passes(DEPOTS_PATIENCE * 3);
    none_contains(&found, "forming");
    none_contains(&job.arriving(7, "a"), "forming");
    let found = job.holds(7, vec![]);
    has(&found, "forming g1.1 of [1, 2] at s0");
}

#[test]
fn another_job_or_build_is_refused_with_the_reason() {
    let foreign = |task: u8, build: u8| Head {
        task: crate::samples::task(task),
        build: StateHash::new([build; 32]),
        ..both(8)
    };
    for (head, reason) in [(foreign(9, 2), "another job"), (foreign(1, 9), "another build")] {
        let (_, found) = begun(vec![head.clone()], Some(vec![head]));
        let failed = found
            .iter()
            .find(|text| text.starts_with("failed"))
            .expect("it must not go on");
        assert!(failed.contains(reason) && failed.contains("s8"), "{failed}");
    }
    let (_, found) = begun(vec![both(4), foreign(1, 9)], Some(vec![both(4), foreign(1, 9)]));
    // At once.
    has(&found, "resumes from s4, passing over 1");
}

#[test]
fn one_that_cannot_be_loaded_is_tried_some_times_and_then_an_older_one_is() {
    let (mut job, _) = begun(vec![both(4), both(8)], Some(vec![both(4), both(8)]));
    let mut count = 1;
    for _ in 1..RESTORE_ATTEMPTS {
        let found = not_restored(&mut job, 1, count);
        has(&found, "not restored s8: a piece is missing");
        count += 1;
        job.halted(1, count, 0);
        let found = job.halted(2, count, 0);
        has(&found, "resumes from s8, passing over 0");
    }
    not_restored(&mut job, 2, count);
    job.halted(1, count + 1, 0);
    let found = job.halted(2, count + 1, 0);
    // It may be back.
    any_begins(&found, "waiting");
    let found = job.passes(DEPOTS_PATIENCE);
    let older = "resumes from s4, passing over 1".to_owned();
    assert!(found.contains(&older), "{found:?}");
}

#[test]
fn who_alone_cannot_load_one_gets_it_from_those_who_can() {
    let (mut job, _) = begun(vec![both(8)], Some(vec![both(8)]));
    let readers = |job: &mut Job, worker: u64, count: u64| {
        not_restored(job, worker, count);
        job.halted(1, count + 1, 0);
        let forms = forms(&job.halts(2, g(count + 1), standing(0)));
        let restores: Vec<_> = forms.into_iter().filter_map(|(_, form)| form.restore).collect();
        assert!(restores.len() == 2 && restores[0] == restores[1], "{restores:?}");
        restores[0].readers.clone()
    };
    let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank::new).collect::<Vec<_>>();
    assert_eq!(readers(&mut job, 2, 1), ranks(&[0]), "the other reads all");
    assert_eq!(readers(&mut job, 1, 2), ranks(&[0, 1]), "none can: all try once more");
    let (mut job, _) = begun(vec![both(8)], Some(vec![both(8)]));
    not_restored(&mut job, 2, 1);
    // Two on one host say so at the same time: one failure, of both.
    assert_eq!(not_restored(&mut job, 1, 1), [""; 0]);
    assert_eq!(readers(&mut job, 1, 1), ranks(&[0, 1]));
}

#[test]
fn a_state_that_is_lost_is_loaded_and_people_are_told_from_where() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 9, &[]);
    for depot in [7, 8] {
        job.holds(depot, vec![both(8)]);
    }
    job.dies(1, 9);
    job.dies(2, 9);
    job.now += STATE_GRACE;
    job.arrives(3, 0);
    let found = job.halted(3, 2, 0);
    has(&found, "resumes from s8, passing over 0");
    has(&found, "state lost: s9 reached, again from s8");
}

#[test]
fn who_has_the_state_needs_no_checkpoint() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 9, &[]);
    job.holds(7, vec![both(8)]);
    job.dies(1, 9);
    let found = job.halted(2, 2, 9);
    has(&found, "forming g1.2 of [2] at s9");
    none_contains(&found, "resumes");
}

#[test]
fn a_coordinator_that_has_forgotten_all_does_not_begin_before_the_newest_checkpoint() {
    let mut job = Job::new(saved_config());
    job.membership = Membership::resume(saved_config(), Incarnation::new(2), Duration::ZERO, None);
    job.depot_comes(7, "a", vec![both(8)]);
    job.depot_comes(8, "b", vec![both(8)]);
    job.arrives(1, 0);
    // It was far behind the others, which are gone.
    job.arrives(2, 3);
    job.passes(ADOPTION_PATIENCE);
    let mut found = Vec::new();
    for (worker, step) in [(1, 0), (2, 3)] {
        found = words(&job.halts(worker, Generation::new(Incarnation::new(2), 1), standing(step)));
    }
    has(&found, "resumes from s8, passing over 0");
    let living: u64 = job.membership.members.values().map(|record| record.computed).sum();
    let shards = u64::from(saved_config().shards);
    assert!(living > 0);
    assert_eq!(
        job.membership.ledger.computed([living].into_iter()),
        shards * 8,
        "what the living have computed of it counts once"
    );
}

#[test]
fn while_a_checkpoint_may_come_back_nothing_begins_from_the_beginning() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 9, &[]);
    let once = Head { replicas: 1, ..both(8) };
    for depot in [7, 8] {
        job.holds(depot, vec![once.clone()]);
    }
    job.depot_goes(7);
    job.depot_goes(8);
    job.dies(1, 9);
    job.dies(2, 9);
    job.arrives(3, 0);
    let found = job.passes(DEPOTS_PATIENCE * 10);
    none_contains(&found, "forming");
    job.depot_comes(8, "b", vec![once.clone()]);
    let found = job.depot_comes(7, "a", vec![once]);
    assert!(job.membership.stage() != crate::membership::Stage::Done, "{found:?}");
}

#[test]
fn what_a_depot_had_told_before_it_went_is_hoped_for() {
    let foreign = Head {
        task: crate::samples::task(9),
        ..head(9, &[8])
    };
    for others in [vec![foreign], vec![]] {
        let mut job = Job::new(saved_config());
        job.depot_comes(7, "a", vec![both(4)]);
        job.depot_goes(7);
        job.depot_comes(8, "b", others);
        job.arrives(1, 0);
        let found = job.arrives(2, 0);
        any_begins(&found, "waiting");
        let found = job.passes(DEPOTS_PATIENCE * 3);
        none_contains(&found, "failed");
        let found = job.depot_comes(7, "a", vec![both(4)]);
        any_begins(&found, "resumes from s4");
    }
}

/// Others may keep what is older, or newer.
#[test]
fn a_depot_that_never_tells_is_waited_for_no_longer_than_one_that_is_gone() {
    let mut job = Job::new(saved_config());
    job.depot_comes(7, "a", vec![both(4)]);
    job.arriving(8, "b");
    job.arrives(1, 0);
    none_contains(&job.arrives(2, 0), "forming");
    none_contains(&job.passes(DEPOTS_PATIENCE - Duration::from_millis(1)), "forming");
    let mut found = job.passes(Duration::from_millis(1));
    found.extend(job.passes(DEPOTS_PATIENCE));
    any_begins(&found, "resumes from s4");
    // Where no other has told of any, there may be one that is not known of: nothing begins from the beginning.
    for others in [false, true] {
        let mut job = Job::new(saved_config());
        if others {
            job.depot_comes(7, "a", vec![]);
        }
        job.arriving(8, "b");
        job.arrives(1, 0);
        job.arrives(2, 0);
        none_contains(&job.passes(DEPOTS_PATIENCE * 10), "forming");
        none_contains(&job.passes(DEPOTS_PATIENCE * 10), "forming");
        any_begins(&job.holds(8, vec![both(4)]), "resumes from s4");
    }
}

#[test]
fn what_a_depot_comes_back_without_is_hoped_for_no_longer() {
    let mut job = Job::new(saved_config());
    job.depot_comes(7, "a", vec![both(4)]);
    job.depot_goes(7);
    job.arrives(1, 0);
    job.arrives(2, 0);
    let found = job.depot_comes(7, "a", vec![]);
    has(&found, "forming g1.1 of [1, 2] at s0");
}
