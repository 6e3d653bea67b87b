//! What a message costs does not grow with the number of members: how many of them are looked at is counted.

use std::ops::RangeInclusive;

use super::checkpointed::saved_config;
use super::*;
use crate::limits::{MAX_HOLDERS, MAX_WORKERS};
use crate::status::Stage;

/// Members that the machine may look at for one message, on average, however many there are.
const EACH: usize = 20;

/// Many, and more than hold a snapshot.
const MANY: u64 = 512;

impl Job {
    fn take_visited(&self) -> usize {
        self.membership.members.take_visited() + self.membership.round.take_visited()
    }

    /// Each of these workers says something, for which few members are looked at, on average.
    fn costs_little(&mut self, what: &str, workers: RangeInclusive<u64>, say: impl Fn(&mut Self, u64)) {
        self.take_visited();
        let messages = workers.clone().count();
        workers.for_each(|worker| say(self, worker));
        let each = self.take_visited() / messages;
        assert!(each <= EACH, "{each} for each that {what}");
    }
}

fn arrives(job: &mut Job, worker: u64) {
    job.arrives(worker, 0);
}

fn beats(job: &mut Job, worker: u64) {
    job.progress(worker, 1, 1, &[]);
}

fn many() -> Config {
    Config { max: 1_000, ..config() }
}

#[test]
fn arriving_and_being_ready_costs_the_same_for_many() {
    let mut job = Job::new(Config { expected: 512, ..many() });
    job.costs_little("arrives", 1..=MANY, arrives);
    job.costs_little("is ready", 1..=MANY, |job, worker| drop(job.ready(worker, 1)));
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn a_heartbeat_costs_the_same_for_many_also_while_some_join_and_leave() {
    let mut job = Job::training(MANY, many());
    job.costs_little("beats while nothing else happens", 1..=MANY, beats);
    (1_001..1_101).for_each(|joiner| arrives(&mut job, joiner));
    job.costs_little("beats while a hundred join", 1..=MANY, beats);
}

#[test]
fn a_heartbeat_costs_the_same_for_many_also_at_the_end_of_a_job() {
    let mut job = Job::new(Config {
        expected: 512,
        max: 1_000,
        ..saved_config()
    });
    job.depot_comes(7, "a", vec![]);
    (1..=MANY).for_each(|worker| arrives(&mut job, worker));
    job.all_ready(1..=MANY, 1);
    let end = saved_config().steps.get();
    job.costs_little("finishes", 1..=MANY, |job, worker| drop(job.finishes(worker, 1, end)));
    // The last state is yet to be saved.
    job.costs_little("beats", 1..=MANY, |job, worker| drop(job.progress(worker, 1, end, &[])));
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn halting_costs_the_same_for_many() {
    let mut job = Job::training(MANY, many());
    job.dies(MANY, 0);
    job.costs_little("has halted", 1..=MANY - 1, |job, worker| drop(job.halted(worker, 2, 0)));
    job.costs_little("is ready again", 1..=MANY - 1, |job, worker| drop(job.ready(worker, 2)));
    assert_eq!(job.membership.stage(), Stage::Running);
}

/// Only members that hold a snapshot are told of it.
#[test]
fn a_snapshot_of_many_has_few_holders() {
    let mut job = Job::training(MANY, many());
    let told = job.arrives(1_001, 0);
    let serve = |told: &[String]| told.iter().filter(|told| told.ends_with("serve [1001]")).count();
    assert_eq!(serve(&told), MAX_HOLDERS as usize);
    let mut asked = Vec::new();
    for worker in 1..=MANY {
        asked.extend(job.room_made(worker, 1));
    }
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].ends_with("close g1.1 with snapshot"), "{asked:?}");
    let step = MANY / u64::from(MAX_HOLDERS);
    let mut told = Vec::new();
    for place in 0..MAX_HOLDERS {
        let worker = 1 + u64::from(place) * step;
        told = job.snapshotted(worker, shares_of(place, MAX_HOLDERS), snapshot(1, 5));
    }
    assert_eq!(told[0], format!("snapshot of s5 with {MAX_HOLDERS}"));
    assert_eq!(told.len(), 2 + MAX_HOLDERS as usize, "and one copies it: {told:?}");
}

/// Joiners for which there is no room among the members of a generation wait, and copy nothing.
#[test]
fn who_cannot_become_a_member_copies_nothing() {
    let most = u64::from(MAX_WORKERS);
    let mut job = Job::training(most, many());
    let told = job.arrives(5_000, 0);
    assert_eq!(told, ["joined w5000 at s0"]);
    assert_eq!(job.passes(Duration::ZERO), [""; 0]);
    let told = job.dies(most, 0);
    assert!(told.iter().any(|told| told.contains("halt g1.2")), "{}", told.len());
}
