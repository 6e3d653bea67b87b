//! Whose agent sees it stand still, as by SIGSTOP, is left out soon, and ended.

use super::*;
use crate::limits::{SILENCE, STOPPED_GRACE};
use crate::messages::Motion;

/// Between two ticks.
const TICK: Duration = Duration::from_millis(100);

impl Job {
    fn moves(&mut self, worker: u64, motion: Motion) -> Vec<String> {
        let worker = w(worker);
        words(&self.event(Event::Motion { worker, motion }))
    }

    /// So many ticks pass. What is told by them.
    fn ticks(&mut self, ticks: u128) -> Vec<String> {
        (0..ticks).flat_map(|_| self.passes(TICK)).collect()
    }
}

/// After so many ticks, a worker that stands still is left out.
const ENOUGH: u128 = STOPPED_GRACE.as_millis() / TICK.as_millis();

#[test]
fn who_stands_still_is_left_out_and_ended() {
    let mut job = Job::training(3, config());
    assert_eq!(job.moves(2, Motion::Stopped), [""; 0]);
    assert_eq!(job.ticks(ENOUGH - 1), [""; 0]);
    // Said again by an agent that is back, it is no news.
    assert_eq!(job.moves(2, Motion::Stopped), [""; 0]);
    assert_eq!(
        job.ticks(1),
        [
            "kill w2",
            "to w2: dismiss",
            "lost w2 while running: its agent saw it stand still for 0.6 s, as by SIGSTOP",
            "halting for g1.2",
            "to w1: halt g1.2",
            "to w3: halt g1.2",
        ]
    );
    // Its end tells its count.
    assert_eq!(job.dies(2, 0), [""; 0]);
}

#[test]
fn who_goes_on_in_time_costs_nothing() {
    let mut job = Job::training(2, config());
    for _ in 0..3 {
        job.moves(2, Motion::Stopped);
        assert_eq!(job.ticks(ENOUGH - 1), [""; 0]);
        assert_eq!(job.moves(2, Motion::Runs), [""; 0]);
        assert_eq!(job.ticks(1), [""; 0]);
    }
    // Its agent has yet to say that it goes on.
    job.moves(2, Motion::Stopped);
    job.ticks(ENOUGH - 1);
    job.progress(2, 1, 0, &[]);
    assert_eq!(job.ticks(1), [""; 0]);
}

#[test]
fn a_joiner_that_stands_still_is_left_out_and_stops_no_member() {
    let mut job = Job::joined(config());
    job.moves(3, Motion::Stopped);
    let told = job.ticks(ENOUGH);
    for what in ["kill w3", "to w3: dismiss"] {
        assert!(told.contains(&what.to_owned()), "{told:?}");
    }
    none_contains(&told, "halting for g1.2");
}

#[test]
fn where_all_stand_still_they_are_only_silent() {
    let mut job = Job::training(2, config());
    job.moves(1, Motion::Stopped);
    job.moves(2, Motion::Stopped);
    assert_eq!(job.ticks(2 * ENOUGH), [""; 0], "the state would be lost with them");
    job.moves(1, Motion::Runs);
    job.progress(1, 1, 0, &[]);
    assert_eq!(job.ticks(1)[0], "kill w2", "now one is there that goes on");
    let mut job = Job::training(1, config());
    job.moves(1, Motion::Stopped);
    assert_eq!(
        job.ticks(SILENCE.as_millis() / TICK.as_millis())[0],
        "to w1: dismiss",
        "as without an agent"
    );
}

#[test]
fn who_went_on_while_the_coordinator_was_held_up_is_heard_first() {
    let mut job = Job::training(2, config());
    job.moves(2, Motion::Stopped);
    assert_eq!(job.passes(SILENCE), [""; 0], "the coordinator has not listened");
    assert_eq!(job.moves(2, Motion::Runs), [""; 0]);
    assert_eq!(job.ticks(ENOUGH), [""; 0]);
    // A worker that still stands still is left out a little later.
    job.moves(2, Motion::Stopped);
    job.passes(SILENCE);
    assert_eq!(job.ticks(ENOUGH)[0], "kill w2");
}
