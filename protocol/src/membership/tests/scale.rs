//! What a message costs does not grow with the number of members: how many of them are looked at is counted.

use super::*;
use crate::limits::{MAX_HOLDERS, MAX_WORKERS};

/// Members that the machine may look at for one message, on average, however many there are.
const EACH: usize = 16;

/// Many, and more than hold a snapshot.
const MANY: u64 = 512;

impl Job {
    fn take_visited(&self) -> usize {
        self.membership.members.take_visited() + self.membership.round.take_visited()
    }

    /// How many members were looked at for each of `messages`.
    fn looked_at(&mut self, messages: u64, mut say: impl FnMut(&mut Self)) -> usize {
        self.take_visited();
        say(self);
        self.take_visited() / usize::try_from(messages).unwrap()
    }
}

fn many() -> Config {
    Config { max: 1_000, ..config() }
}

#[test]
fn arriving_and_being_ready_costs_the_same_for_many() {
    let mut job = Job::new(Config { expected: 512, ..many() });
    let arrives = |job: &mut Job| {
        for worker in 1..=MANY {
            job.arrives(worker, 0);
        }
    };
    let each = job.looked_at(MANY, arrives);
    assert!(each <= EACH, "{each} for each that arrives");
    let ready = |job: &mut Job| {
        for worker in 1..=MANY {
            job.ready(worker, 1);
        }
    };
    let each = job.looked_at(MANY, ready);
    assert!(each <= EACH, "{each} for each that is ready");
    assert_eq!(job.membership.stage(), crate::membership::Stage::Running);
}

#[test]
fn a_heartbeat_costs_the_same_for_many_also_while_some_join_and_leave() {
    let mut job = Job::training(MANY, many());
    let beats = |job: &mut Job| {
        for worker in 1..=MANY {
            job.progress(worker, 1, 1, &[]);
        }
    };
    let each = job.looked_at(MANY, beats);
    assert!(each <= EACH, "{each} where nothing else happens");
    for joiner in 1_001..1_101 {
        job.arrives(joiner, 0);
    }
    let each = job.looked_at(MANY, beats);
    assert!(each <= EACH, "{each} while a hundred join");
}

#[test]
fn halting_costs_the_same_for_many() {
    let mut job = Job::training(MANY, many());
    job.dies(MANY, 0);
    let halted = |job: &mut Job| {
        for worker in 1..MANY {
            job.halted(worker, 2, 0);
        }
    };
    let each = job.looked_at(MANY, halted);
    assert!(each <= EACH, "{each} for each that has halted");
    let ready = |job: &mut Job| {
        for worker in 1..MANY {
            job.ready(worker, 2);
        }
    };
    let each = job.looked_at(MANY, ready);
    assert!(each <= EACH, "{each} for each that is ready again");
    assert_eq!(job.membership.stage(), crate::membership::Stage::Running);
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
        told = job.snapshotted(worker, (place, MAX_HOLDERS), 1, 5);
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
