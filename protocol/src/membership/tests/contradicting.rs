//! One worker that says otherwise than all others.

use super::*;
use crate::limits::{CONTRADICTED, STALL_LEAST, STATE_GRACE};
use crate::status::Stage;

const TICK: Duration = Duration::from_millis(500);

fn failed(worker: u64) -> WorkerMessage {
    let reason = format!("no file on {worker}");
    WorkerMessage::Failed { reason }
}

fn is_left_out(found: &[String], worker: u64) -> bool {
    found.iter().any(|text| text.starts_with(&format!("lost w{worker} ")))
}

#[test]
fn a_model_that_fails_at_two_workers_fails_the_job_and_at_one_costs_that_one() {
    let mut job = Job::training(3, config());
    assert!(is_left_out(&job.says(2, failed(2)), 2));
    assert_ne!(job.membership.stage(), Stage::Done, "another one tries it");
    job.all_halted([1, 3], 2, 0);
    let told = job.says(3, failed(3));
    let why = told
        .iter()
        .find(|text| text.starts_with("failed: "))
        .expect("it would fail for all");
    assert!(
        why.contains("no file on 3") && why.contains("w0000000000000002") && why.contains("no file on 2"),
        "{why}"
    );
}

#[test]
fn a_model_that_fails_at_another_worker_much_later_is_another_failure() {
    let mut job = Job::training(4, config());
    job.says(2, failed(2));
    for worker in [1, 3, 4] {
        job.halted(worker, 2, 0);
        job.ready(worker, 2);
    }
    job.progress(1, 2, 5, &[]);
    assert!(is_left_out(&job.says(3, failed(3)), 3));
    assert_ne!(job.membership.stage(), Stage::Done);
}

#[test]
fn a_model_that_fails_at_another_worker_long_before_is_another_failure() {
    let mut job = Job::training(4, config());
    job.progress(1, 1, 5, &[]);
    job.says(2, failed(2));
    // All state is lost, and training begins anew.
    for worker in 1..=4 {
        job.dies(worker, 5);
    }
    for worker in [5, 6, 7] {
        job.arrives(worker, 0);
    }
    job.all_halted([5, 6], 2, 0);
    has(&job.halted(7, 2, 0), "state lost: s5 reached, again from s0");
    job.all_ready([5, 6, 7], 2);
    assert!(is_left_out(&job.says(5, failed(5)), 5));
    assert_ne!(job.membership.stage(), Stage::Done);
}

#[test]
fn a_model_that_fails_where_no_other_can_try_fails_the_job() {
    let few = Config { min: 2, ..config() };
    for (workers, config) in [(1, config()), (2, few)] {
        let mut job = Job::training(workers, config);
        let told = job.says(1, failed(1));
        let why = told.last().expect("it fails");
        assert!(why.starts_with("failed: ") && why.contains("no file on 1"), "{told:?}");
    }
}

/// Trains at steps that all but one agree on, for so long. What is told of that one.
fn claims(job: &mut Job, liar: u64, claimed: u64, least: Duration) -> Vec<String> {
    let (from, mut told) = (job.now, Vec::new());
    while job.now - from < least {
        for worker in 1..=4 {
            let step = if worker == liar { claimed } else { 3 };
            told.extend(job.progress(worker, 1, step, &[]));
        }
        told.extend(job.passes(TICK));
        if is_left_out(&told, liar) {
            break;
        }
    }
    told
}

#[test]
fn one_that_says_it_is_further_than_it_can_be_is_left_out_before_others_are_for_its_sake() {
    for claimed in [5, 10] {
        let mut job = Job::training(4, config());
        let told = claims(&mut job, 2, claimed, STALL_LEAST);
        assert!(is_left_out(&told, 2), "{claimed}: {told:?}");
        assert!(job.now >= CONTRADICTED && job.now < STALL_LEAST, "{:?}", job.now);
        assert_eq!(job.membership.reached(), s(3), "nothing of it counts");
        assert_eq!(told.iter().filter(|text| text.starts_with("lost")).count(), 1, "{told:?}");
    }
}

#[test]
fn one_step_more_than_the_others_is_nothing_to_wonder_at() {
    let mut job = Job::training(4, config());
    let told = claims(&mut job, 2, 4, STALL_LEAST - TICK);
    assert!(!is_left_out(&told, 2), "{told:?}");
}

/// Two fetch a large state: they say where they stood before, which is nothing against the others.
#[test]
fn those_who_have_the_state_are_believed_while_others_come_to_it() {
    let mut job = Job::new(Config { min: 4, ..config() });
    for (worker, step) in [(1, 5), (2, 5), (3, 0), (4, 0)] {
        job.arrives(worker, step);
    }
    job.all_ready(1..=4, 1);
    let from = job.now;
    while job.now - from < STALL_LEAST {
        for (worker, step) in [(1, 5), (2, 5), (3, 0), (4, 0)] {
            job.progress(worker, 1, step, &[]);
        }
        let told = job.passes(TICK);
        none_contains(&told, "lost");
    }
    // One more update is possible where the members that have the state have all gradients of it as well.
    job.progress(1, 1, 6, &[]);
    job.link_broken(1, 1, 2);
    for (worker, step) in [(1, 6), (2, 5), (3, 0)] {
        job.halted(worker, 2, step);
    }
    let told = job.halted(4, 2, 0);
    any_begins(&told, "forming g1.2");
    none_contains(&told, "lost");
}

/// Only one is heard of for a while, and trains on with the others.
#[test]
fn one_whose_others_are_only_not_heard_of_is_believed() {
    let mut job = Job::training(4, config());
    let ticks = u64::try_from(CONTRADICTED.as_millis() / TICK.as_millis()).unwrap();
    for worker in 1..=4 {
        job.progress(worker, 1, 1, &[]);
    }
    for tick in 0..ticks * 2 {
        job.progress(1, 1, (1 + tick / 6).min(9), &[]);
        let told = job.passes(TICK);
        assert!(!is_left_out(&told, 1), "{told:?}");
    }
}

#[test]
fn one_that_stands_where_it_cannot_is_left_out_and_the_others_go_on_from_theirs() {
    let mut job = Job::training(4, config());
    job.progress(1, 1, 3, &[]);
    job.dies(4, 3);
    job.all_halted([1, 2], 2, 3);
    let told = job.halted(3, 2, 9);
    assert!(is_left_out(&told, 3), "{told:?}");
    job.passes(TICK);
    assert_eq!((job.membership.stage(), job.membership.reached()), (Stage::Forming, s(3)));
}

/// Worker 9 says that it has trained in generation `count`, up to the step 9. All halt, the others where they stand. What is said to what it says then.
fn one_comes_from_far_ahead(job: &mut Job, count: u64, others: &[(u64, u64)]) -> Vec<String> {
    any_begins(&job.introduces(9, introduction(g(count), standing(9))), "joined w9 at s9");
    let halt = job.membership.generation().count();
    assert_eq!(job.membership.stage(), Stage::Halting);
    for &(worker, step) in others {
        job.halted(worker, halt, step);
    }
    job.halted(9, halt, 9)
}

#[test]
fn one_that_comes_with_a_state_that_it_cannot_have_costs_a_halt_and_is_left_out() {
    let mut job = Job::training(3, config());
    job.progress(1, 1, 3, &[]);
    let told = one_comes_from_far_ahead(&mut job, 1, &[(1, 3), (2, 3), (3, 3)]);
    assert!(is_left_out(&told, 9), "{told:?}");
    job.passes(TICK);
    assert_eq!((job.membership.stage(), job.membership.reached()), (Stage::Forming, s(3)));
}

#[test]
fn one_that_comes_with_a_state_that_it_cannot_have_is_left_out_in_a_later_generation_too() {
    let mut job = Job::training(3, config());
    job.progress(1, 1, 3, &[]);
    job.dies(3, 3);
    job.all_halted([1, 2], 2, 3);
    job.all_ready([1, 2], 2);
    let told = one_comes_from_far_ahead(&mut job, 1, &[(1, 4), (2, 4)]);
    assert!(is_left_out(&told, 9), "{told:?}");
}

/// Two members are cut off and train on, since the third one only says that it has halted; it has others begin with it.
#[test]
fn one_that_trained_on_with_a_member_that_lied_is_believed() {
    let mut job = Job::new(Config { expected: 3, ..config() });
    for worker in [1, 2, 9] {
        job.arrives(worker, 0);
    }
    job.all_ready([1, 2, 9], 1);
    job.is_cut_off(1);
    job.is_cut_off(9);
    for joiner in [5, 6] {
        job.arrives(joiner, 0);
    }
    job.halted(2, 2, 3);
    job.passes(STATE_GRACE);
    any_begins(&job.all_halted([5, 6], 2, 0), "forming g1.2 of [2, 5, 6] at s3");
    job.all_ready([2, 5, 6], 2);
    let told = one_comes_from_far_ahead(&mut job, 1, &[(2, 3), (5, 3), (6, 3)]);
    assert!(!is_left_out(&told, 9), "{told:?}");
}

/// A joiner says first that the planned generation has begun, at a step of its own making, and then that a link broke.
#[test]
fn one_that_names_a_step_at_which_its_generation_begins_is_not_believed_to_be_there() {
    let mut job = Job::ordered(config());
    job.switched(3, 2, 9);
    any_begins(&job.link_broken(3, 2, 2), "halting for g1.3");
    job.all_halted([1, 2], 3, 6);
    let told = job.halted(3, 3, 9);
    assert!(is_left_out(&told, 3), "{told:?}");
}

#[test]
fn one_that_comes_with_a_state_that_the_others_began_anew_without_is_believed() {
    let mut job = Job::training(3, config());
    job.progress(1, 1, 3, &[]);
    for worker in 1..=3 {
        job.dies(worker, 3);
    }
    for worker in [5, 6, 7] {
        job.arrives(worker, 0);
    }
    job.all_halted([5, 6], 2, 0);
    has(&job.halted(7, 2, 0), "state lost: s3 reached, again from s0");
    job.all_ready([5, 6, 7], 2);
    let told = one_comes_from_far_ahead(&mut job, 1, &[(5, 0), (6, 0), (7, 0)]);
    assert!(!is_left_out(&told, 9), "{told:?}");
    assert_eq!(job.membership.reached(), s(9));
}

/// Those that went on are cut off from the coordinator, which begins again with the one that they left out.
#[test]
fn one_that_went_on_without_the_one_that_leaves_is_believed_when_it_comes_back() {
    let mut job = Job::new(Config { expected: 3, ..config() });
    for worker in [1, 3, 9] {
        job.arrives(worker, 0);
    }
    job.all_ready([1, 3, 9], 1);
    job.leaves(3);
    has(&job.all_ready([1, 9], 2), "to w9: close g1.1 with switch to g1.2");
    job.is_cut_off(1);
    job.is_cut_off(9);
    job.arrives(5, 0);
    job.arrives(6, 0);
    job.halted(3, 3, 3);
    job.passes(STATE_GRACE);
    any_begins(&job.all_halted([5, 6], 3, 0), "forming g1.3 of [3, 5, 6] at s3");
    job.all_ready([3, 5, 6], 3);
    let told = one_comes_from_far_ahead(&mut job, 2, &[(3, 3), (5, 3), (6, 3)]);
    assert!(!is_left_out(&told, 9), "{told:?}");
    assert_eq!(job.membership.reached(), s(9));
}

#[test]
fn a_stop_that_no_operator_wants_and_one_worker_tells_of_ends_nothing() {
    let mut job = Job::training(4, config());
    job.progress(1, 1, 3, &[]);
    assert_eq!(job.finishes(2, 1, 3)[0], "halting for g1.2");
    job.all_halted([1, 3, 4], 2, 3);
    let stop_at = Some(s(3));
    let told = words(&job.halts(2, g(2), Standing { stop_at, ..standing(3) }));
    assert!(is_left_out(&told, 2), "{told:?}");
    job.passes(TICK);
    assert_eq!(job.membership.stage(), Stage::Forming);
    assert_eq!(job.membership.formation.as_ref().unwrap().stop_at(), None, "they go on");
}

#[test]
fn a_stop_that_an_operator_wants_ends_the_job_where_a_trailer_has_said_so() {
    let mut job = Job::training(3, config());
    job.progress(1, 1, 3, &[]);
    job.event(Event::StopRequested);
    job.dies(3, 3);
    job.halted(1, 2, 3);
    let stop_at = Some(s(4));
    job.halts(2, g(2), Standing { stop_at, ..standing(4) });
    assert_eq!(job.membership.formation.as_ref().unwrap().stop_at(), stop_at);
}
