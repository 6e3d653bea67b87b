//! Workers whose connections break again and again, and hosts whose workers are left out again and again.

use super::*;
use crate::limits::{FLAPS, FORGIVEN, HOST_FAILURES, MAX_LINK_FAILURES};
use crate::status::Stage;

impl Job {
    /// Member 2's connection breaks, the others go on without it, and it comes back. What is said to that.
    fn flaps(&mut self) -> Vec<String> {
        self.is_cut_off(2);
        let (count, step) = (self.membership.generation().count(), self.membership.reached().get());
        self.halted(1, count, step);
        self.ready(1, count);
        assert_eq!(self.membership.stage(), Stage::Running);
        let trains = Introduction {
            training: true,
            ..introduction(g(count - 1), standing(step))
        };
        self.introduces(2, trains)
    }

    /// It is taken in again.
    fn returns_to_the_ring(&mut self) {
        let (count, step) = (self.membership.generation().count(), self.membership.reached().get());
        self.all_halted([1, 2], count, step);
        self.all_ready([1, 2], count);
        assert_eq!(self.membership.stage(), Stage::Running);
    }

    /// A newcomer takes part, and is left out because no member reaches it.
    fn is_out_of_reach(&mut self, worker: u64) {
        let told = self.arrives(worker, 0);
        assert_eq!(told[0], format!("joined w{worker} at s0"));
        // All halt for the newcomer, so that it is a member at once.
        self.membership.disturb();
        self.membership.call_in(w(worker));
        for _ in 0..MAX_LINK_FAILURES {
            let count = self.membership.generation().count();
            self.halted(1, count, 0);
            self.halted(worker, count, 0);
            assert_eq!(self.membership.stage(), Stage::Forming);
            self.link_broken(1, count, worker);
            self.link_broken(worker, count, 1);
        }
        let count = self.membership.generation().count();
        let told = [self.halted(1, count, 0), self.halted(worker, count, 0), self.ready(1, count)].concat();
        assert_eq!(self.membership.stage(), Stage::Running, "{told:?}");
    }
}

#[test]
fn a_member_that_flaps_is_dismissed_in_the_end() {
    let mut job = Job::training(2, config());
    for _ in 0..FLAPS {
        let told = job.flaps();
        assert_eq!(told[0], "joined w2 at s0", "{told:?}");
        job.returns_to_the_ring();
    }
    assert_eq!(job.flaps(), ["to w2: dismiss"]);
    assert_eq!(job.membership.stage(), Stage::Running, "no member halts for it");
    assert!(!job.membership.knows(w(2)));
}

#[test]
fn one_that_flaps_seldom_is_not() {
    let mut job = Job::training(2, config());
    for _ in 0..2 * FLAPS {
        let told = job.flaps();
        assert_eq!(told[0], "joined w2 at s0", "{told:?}");
        job.returns_to_the_ring();
        job.now += FORGIVEN;
    }
}

#[test]
fn one_that_has_what_the_others_lack_is_not() {
    let mut job = Job::training(2, config());
    for _ in 0..FLAPS {
        job.flaps();
        job.returns_to_the_ring();
    }
    job.is_cut_off(2);
    let told = job.arrives(2, 0);
    assert_eq!(told[0], "joined w2 at s0", "the others have not formed without it: {told:?}");
}

#[test]
fn newcomers_from_a_host_that_fails_wait_longer_and_longer() {
    let mut job = Job::training(1, Config { expected: 1, ..config() });
    for worker in 0..u64::from(HOST_FAILURES) {
        job.is_out_of_reach(10 + worker);
    }
    let told = job.arrives(20, 0);
    assert!(
        told.iter().any(|told| told.contains("serve [20]")),
        "it is taken in: {told:?}"
    );
    job.dies(20, 0);
    job.is_out_of_reach(21);
    assert_eq!(job.arrives(22, 0), ["joined w22 at s0", "w22 cools down for 1 s"]);
    job.now += Duration::from_millis(900);
    assert_eq!(job.passes(Duration::ZERO), [""; 0]);
    let told = job.passes(Duration::from_millis(100));
    assert!(told.iter().any(|told| told.contains("serve [22]")), "{told:?}");
}
