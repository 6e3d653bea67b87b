//! Which worker is left out because nothing is heard of it, or because it does nothing while the others wait.

use super::*;
use crate::limits::{HALT_PATIENCE, HEARTBEAT, SILENCE, SILENCE_LEAST, STALL_LEAST, STALL_SHARDS, STALL_UNKNOWN};

/// Between two ticks.
const TICK: Duration = Duration::from_millis(100);

/// What a worker's beats say.
#[derive(Clone, Copy)]
struct Beats {
    worker: u64,
    step: u64,
    /// Gradients of that step.
    computed: u32,
    /// Milliseconds for a gradient.
    pace: Option<u64>,
}

/// A worker that has computed so many gradients of the step, without a known pace.
fn computed(worker: u64, step: u64, computed: u32) -> Beats {
    Beats {
        worker,
        step,
        computed,
        pace: None,
    }
}

/// A worker that has computed its two shards of the step.
fn done(worker: u64, step: u64) -> Beats {
    computed(worker, step, 2)
}

fn paced(beats: Beats, pace: u64) -> Beats {
    Beats {
        pace: Some(pace),
        ..beats
    }
}

impl Job {
    fn beat(&mut self, count: u64, beats: Beats) -> Vec<String> {
        let before = tally(beats.step);
        let tally = Tally {
            total: before.total + u64::from(beats.computed),
            this_step: beats.computed,
            ..before
        };
        self.says(beats.worker, heartbeat(count, tally, 0, beats.pace))
    }

    /// Time passes in which these workers beat, until something is told, or `time` is over. How long that took, and what was told.
    fn hears(&mut self, time: Duration, workers: &[Beats]) -> (Duration, Vec<String>) {
        let begin = self.now;
        loop {
            for &beats in workers {
                if (self.now - begin).as_millis().is_multiple_of(HEARTBEAT.as_millis()) {
                    let told = self.beat(1, beats);
                    assert_eq!(told, [""; 0]);
                }
            }
            if self.now - begin >= time {
                return (time, vec![]);
            }
            let told = self.passes(TICK);
            if !told.is_empty() {
                return (self.now - begin, told);
            }
        }
    }
}

const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn a_silent_worker_is_left_out() {
    let mut job = Job::training(2, config());
    let (after, told) = job.hears(LONG, &[done(1, 0)]);
    assert_eq!(after, SILENCE, "little is known of its beats");
    assert_eq!(
        told,
        [
            "to w2: dismiss",
            "lost w2 while running: it was silent for 5.0 s",
            "halting for g1.2",
            "to w1: halt g1.2",
        ]
    );
}

#[test]
fn one_that_has_beaten_regularly_is_left_out_sooner() {
    let mut job = Job::training(2, config());
    assert_eq!(job.hears(Duration::from_secs(20), &[done(1, 0), done(2, 0)]).1, [""; 0]);
    let (after, told) = job.hears(LONG, &[done(1, 0)]);
    assert_eq!(told[0], "to w2: dismiss");
    assert_eq!(after, SILENCE_LEAST);
}

#[test]
fn a_silent_worker_is_not_left_out_while_steps_advance() {
    let mut job = Job::training(2, config());
    for step in 1..=8 {
        job.progress(1, 1, step, &[]);
        assert_eq!(job.hears(SILENCE / 4, &[done(1, step)]).1, [""; 0], "worker 2 lives");
    }
}

#[test]
fn a_worker_that_says_what_cannot_be_is_left_out_at_once() {
    let says: [fn(&mut Job) -> Vec<String>; 3] = [
        |job| job.progress(2, 1, 11, &[]),
        |job| job.progress(2, 1, 0, &[u64::MAX]),
        |job| job.halted(2, 1, u64::MAX),
    ];
    for said in says {
        let mut job = Job::training(2, config());
        let told = said(&mut job);
        assert_eq!(told[0], "to w2: dismiss");
        assert!(told[1].starts_with("lost w2 while running: it says"), "{told:?}");
        assert_eq!(job.membership.reached(), s(0), "nothing of it counts");
    }
}

/// SIGSTOP, a migration, a swapped-out machine: what was said meanwhile is still to be read.
#[test]
fn a_coordinator_that_was_held_up_leaves_no_worker_out() {
    let mut job = Job::training(2, config());
    job.hears(TICK, &[done(1, 0), done(2, 0)]);
    assert_eq!(job.passes(Duration::from_secs(600)), [""; 0]);
    let (after, told) = job.hears(LONG, &[done(1, 0)]);
    assert_eq!(told[0], "to w2: dismiss", "from then on it listens");
    assert!(after > SILENCE - Duration::from_secs(1), "{after:?}");
}

#[test]
fn who_hangs_while_the_others_wait_is_left_out() {
    let hangs = computed(2, 3, 1);
    let after = |pace| {
        let mut job = Job::training(2, config());
        let both = [paced(done(1, 3), 10), paced(hangs, pace)];
        let (after, told) = job.hears(LONG, &both);
        assert_eq!(told[..2], ["kill w2", "to w2: dismiss"]);
        let stood = after.as_secs_f64();
        assert_eq!(
            told[2],
            format!("lost w2 while running: it did nothing for {stood:.1} s while the others waited for it")
        );
        after
    };
    assert_eq!(after(10), STALL_LEAST);
    assert_eq!(
        after(5_000),
        Duration::from_secs(5) * STALL_SHARDS,
        "a gradient of five seconds"
    );
}

#[test]
fn who_has_computed_no_gradient_yet_has_longer() {
    let mut job = Job::training(2, config());
    let (after, told) = job.hears(LONG, &[done(1, 0), computed(2, 0, 0)]);
    assert_eq!((after, told[0].as_str()), (STALL_UNKNOWN, "kill w2"));
}

#[test]
fn who_computes_is_not_left_out_however_long_its_step_takes() {
    let mut job = Job::training(2, config());
    for gradients in 0..2 {
        let both = [paced(done(1, 3), 10), paced(computed(2, 3, gradients), 10)];
        assert_eq!(job.hears(STALL_LEAST - TICK, &both).1, [""; 0], "{gradients} gradients");
    }
}

#[test]
fn where_no_worker_waits_none_is_left_out() {
    let hangs = [1, 2].map(|worker| paced(computed(worker, 3, 1), 10));
    let mut job = Job::training(2, config());
    assert_eq!(job.hears(LONG, &hangs).1, [""; 0], "both may read from one disk that hangs");
    let mut job = Job::training(2, config());
    let both = [paced(done(1, 3), 10), paced(done(2, 3), 10)];
    assert_eq!(job.hears(LONG, &both).1, [""; 0], "both have done their part");
}

#[test]
fn who_does_not_halt_for_minutes_is_left_out() {
    let mut job = Job::training(2, config());
    job.link_broken(1, 1, 2);
    job.halted(1, 2, 0);
    let mut told = vec![];
    while job.now < HALT_PATIENCE {
        assert_eq!(told, [""; 0]);
        job.beat(1, done(1, 0));
        job.beat(1, done(2, 0));
        told = job.passes(TICK);
        told.retain(|said| said != "to w2: halt g1.2");
    }
    assert_eq!(told[0], "kill w2");
}

/// Its training thread may be at a gradient that the sum came without: the update waits for that, and the halt for the update.
#[test]
fn who_is_slow_has_longer_to_halt() {
    let slow = 20_000;
    let patience = Duration::from_millis(slow) * STALL_SHARDS;
    assert!(patience > HALT_PATIENCE);
    let mut job = Job::training(2, config());
    job.beat(1, paced(done(2, 0), slow));
    job.link_broken(1, 1, 2);
    job.halted(1, 2, 0);
    let mut told = vec![];
    while !told.contains(&"kill w2".to_owned()) {
        assert!(job.now <= patience + TICK);
        job.beat(1, done(1, 0));
        job.beat(1, paced(done(2, 0), slow));
        told = job.passes(TICK);
    }
    assert!(job.now >= patience);
}

/// Once its links are made a worker may begin, and be heard of before it is heard that it was ready.
#[test]
fn who_hangs_is_left_out_though_it_was_never_heard_to_be_ready() {
    let mut job = Job::new(config());
    job.arrives(1, 0);
    job.arrives(2, 0);
    job.ready(1, 1);
    job.progress(1, 1, 1, &[]);
    assert_eq!(job.ready(2, 1), [""; 0], "training goes on already");
    let (after, told) = job.hears(LONG, &[paced(done(1, 1), 10), paced(done(2, 0), 10)]);
    assert_eq!((after, told[0].as_str()), (STALL_LEAST, "kill w2"));
}

#[test]
fn who_hangs_in_a_step_that_is_computed_again_is_left_out() {
    let mut job = Job::training(3, config());
    job.progress(1, 1, 1, &[]);
    job.dies(1, 1);
    job.halted(2, 2, 0);
    assert_eq!(
        job.halted(3, 2, 0)[0],
        "forming g1.2 of [2, 3] at s0",
        "s1 is lost with worker 1"
    );
    job.all_ready([2, 3], 2);
    let (after, told) = job.hears(LONG, &[paced(done(2, 0), 10), paced(computed(3, 0, 1), 10)]);
    assert_eq!((after, told[0].as_str()), (STALL_LEAST, "kill w3"));
}

#[test]
fn who_hangs_in_the_last_update_is_left_out_and_who_evaluates_is_not() {
    let at_the_end = |worker| paced(computed(worker, 10, 0), 10);
    let mut job = Job::training(3, config());
    job.progress(1, 1, 10, &[]);
    job.finishes(1, 1, 10);
    let (after, told) = job.hears(LONG, &[at_the_end(1), at_the_end(2), paced(done(3, 9), 10)]);
    assert_eq!((after, told[0].as_str()), (STALL_LEAST, "kill w3"));
    assert_eq!(told[1..3].iter().filter(|said| said.starts_with("kill")).count(), 0);
    let mut job = Job::training(2, config());
    job.finishes(1, 1, 10);
    assert_eq!(job.hears(LONG, &[at_the_end(1), at_the_end(2)]).1, [""; 0]);
}

#[test]
fn who_hangs_and_should_hand_over_the_state_is_left_out() {
    let mut job = Job::new(Config { min: 2, ..config() });
    job.arrives(1, 5);
    let told = job.arrives(2, 0);
    has(&told, "to w2: form g1.1 r1 at s5, state from r0");
    job.all_ready([1, 2], 1);
    let (after, told) = job.hears(LONG, &[paced(computed(1, 5, 1), 10), computed(2, 0, 0)]);
    assert_eq!((after, told[0].as_str()), (STALL_LEAST, "kill w1"));
}

/// The others may have waited for minutes, but not for workers that are called in only then.
#[test]
fn a_joiner_that_is_called_in_after_a_long_halt_has_time_to_answer() {
    let mut job = Job::joined(Config { min: 2, ..config() });
    job.link_broken(1, 1, 2);
    job.halted(1, 2, 5);
    let mut told = vec![];
    while !told.contains(&"kill w2".to_owned()) {
        for worker in 1..=3 {
            job.beat(2, done(worker, 5));
        }
        told = job.passes(TICK);
        assert!(job.now <= HALT_PATIENCE, "{told:?}");
    }
    has(&told, "held for w3");
    let told = job.passes(TICK);
    // Worker 3 is waited for.
    none_contains(&told, "w3");
    let told = job.halted(3, 2, 5);
    has(&told, "forming g1.2 of [1, 3] at s5");
}

/// The others train on without it, but the job cannot end before its count is known.
#[test]
fn a_leaver_that_hangs_in_its_last_update_is_left_out() {
    let mut job = Job::training(2, config());
    job.leaves(2);
    job.ready(1, 2);
    assert_eq!(job.switched(1, 2, 5)[0], "switched to g1.2 of [1] at s5");
    let mut told = vec![];
    while !told.contains(&"kill w2".to_owned()) {
        assert!(job.now < HALT_PATIENCE);
        job.beat(2, paced(done(1, 5), 10));
        job.beat(1, paced(done(2, 4), 10));
        told = job.passes(TICK);
    }
    assert!(job.now >= HALT_PATIENCE - TICK);
}
