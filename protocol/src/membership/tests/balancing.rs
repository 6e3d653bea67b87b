//! Shards that move towards faster members.

use super::*;
use crate::limits::{HEARTBEAT, PACE_FIGURES, REBALANCE_EVERY, REBALANCE_STEPS};

/// Long enough for ranges to settle and to change.
const STEPS: u64 = 1_000;

/// 24 shards, and room for them everywhere.
fn wide() -> Config {
    Config {
        shards: 24,
        steps: s(STEPS),
        ..config()
    }
}

impl Job {
    /// So many heartbeats of workers 1, 2, … in g`count` at `step` with these paces, in milliseconds a shard, and time passes between them;
    /// what is said in the meantime.
    fn trains_on(&mut self, beats: u32, count: u64, step: u64, paces: &[u64]) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..beats {
            for (worker, &pace) in (1..).zip(paces) {
                told.extend(self.says(worker, heartbeat(count, tally(step), 0, Some(pace))));
            }
            told.extend(self.passes(HEARTBEAT));
        }
        told
    }

    /// The ranges of the newest generation.
    fn ranges(&self) -> Vec<String> {
        let overview = self.membership.overview(self.now);
        let shards = overview.workers.iter().filter_map(|view| view.shards);
        shards.map(|shards| shards.to_string()).collect()
    }
}

/// How many heartbeats it takes until ranges may change again.
fn calm() -> u32 {
    u32::try_from(REBALANCE_EVERY.as_millis().div_ceil(HEARTBEAT.as_millis())).expect("a few")
}

#[test]
fn shards_move_to_the_faster_once_and_then_rest() {
    let mut job = Job::training(2, wide());
    assert_eq!(job.ranges(), ["0..12", "12..24"]);
    let told = job.trains_on(calm(), 1, REBALANCE_STEPS, &[40, 10]);
    assert_eq!(told, ["to w1: prepare g1.2 r0", "to w2: prepare g1.2 r1"]);
    job.ready(1, 2);
    assert_eq!(job.ready(2, 2), ["to w2: close g1.1 with switch to g1.2"]);
    assert_eq!(job.switched(1, 2, 30), ["switched to g1.2 of [1, 2] at s30"]);
    job.switched(2, 2, 30);
    assert_eq!(job.ranges(), ["0..5", "5..24"]);
    assert_eq!(
        job.trains_on(4 * calm(), 2, 200, &[40, 10]),
        [""; 0],
        "these are the best ranges"
    );
    assert_eq!(
        job.trains_on(4 * calm(), 2, 200, &[42, 10]),
        [""; 0],
        "and about the best of these paces"
    );
    let told = job.trains_on(2 * calm(), 2, 200, &[10, 10]);
    assert_eq!(
        told[..2],
        ["to w1: prepare g1.3 r0", "to w2: prepare g1.3 r1"],
        "it is fast again"
    );
}

#[test]
fn nothing_moves_before_all_is_calm_and_certain() {
    let paces = &[40, 10];
    let mut job = Job::training(2, wide());
    assert_eq!(
        job.trains_on(2 * calm(), 1, REBALANCE_STEPS - 1, paces),
        [""; 0],
        "too few steps"
    );
    let mut job = Job::training(2, wide());
    assert_eq!(job.trains_on(calm() - 1, 1, STEPS / 2, paces), [""; 0], "too soon");
    let mut job = Job::training(2, wide());
    for _ in 0..2 * calm() {
        job.progress(2, 1, STEPS / 2, &[]);
        assert_eq!(job.trains_on(1, 1, STEPS / 2, &[40]), [""; 0], "one has told nothing");
    }
    assert_eq!(
        job.trains_on(PACE_FIGURES - 1, 1, STEPS / 2, paces),
        [""; 0],
        "too few figures"
    );
    assert_ne!(job.trains_on(1, 1, STEPS / 2, paces), [""; 0]);
    let mut job = Job::training(2, wide());
    for _ in 0..calm() {
        assert_eq!(
            job.trains_on(1, 1, STEPS / 2, &[40, 10]),
            [""; 0],
            "figures that do not agree"
        );
        assert_eq!(job.trains_on(1, 1, STEPS / 2, &[40, 20]), [""; 0]);
    }
}

#[test]
fn who_does_not_want_it_keeps_even_ranges() {
    let balance = Balance::Off;
    let mut job = Job::training(2, Config { balance, ..wide() });
    assert_eq!(job.trains_on(3 * calm(), 1, STEPS / 2, &[40, 10]), [""; 0]);
    job.dies(2, 600);
    job.arrives(3, 0);
    assert_eq!(job.halted(1, 2, 600)[0], "forming g1.2 of [1] at s600");
}

#[test]
fn a_worker_that_comes_or_goes_outranks_balance() {
    let mut job = Job::training(3, wide());
    let told = job.trains_on(calm(), 1, REBALANCE_STEPS, &[40, 10, 10]);
    assert_eq!(told[0], "to w1: prepare g1.2 r0");
    let told = job.leaves(1);
    assert_eq!(
        told,
        ["leaving w1", "to w2: prepare g1.3 r0", "to w3: prepare g1.3 r1"],
        "no change waits for what only moves shards"
    );
    for worker in [1, 2, 3] {
        assert_eq!(job.ready(worker, 2), [""; 0], "that plan is gone");
    }
    job.ready(2, 3);
    assert_eq!(job.ready(3, 3), ["to w3: close g1.1 with switch to g1.3"]);
    // While one leaves, nothing else is planned.
    assert_eq!(
        job.trains_on(calm(), 1, 300, &[40, 10, 10])
            .iter()
            .filter(|words| words.contains("prepare g1.4"))
            .count(),
        0
    );
}

#[test]
fn an_order_to_switch_is_not_taken_back() {
    let mut job = Job::training(3, wide());
    job.trains_on(calm(), 1, REBALANCE_STEPS, &[40, 10, 10]);
    job.all_ready([1, 2, 3], 2);
    assert_eq!(job.leaves(1), ["leaving w1"], "the switch comes first");
    job.switched(1, 2, 40);
    job.switched(2, 2, 40);
    let told = job.switched(3, 2, 40);
    assert_eq!(told, ["to w2: prepare g1.3 r0", "to w3: prepare g1.3 r1"]);
}

#[test]
fn a_link_that_cannot_be_made_for_balance_costs_no_worker_its_place() {
    let mut job = Job::training(2, wide());
    for (attempt, step) in [(2, 50), (3, 100), (4, 150), (5, 200)] {
        let told = job.trains_on(2 * calm(), 1, step, &[40, 10]);
        assert_eq!(told[0], format!("to w1: prepare g1.{attempt} r0"), "once a while: {told:?}");
        assert_eq!(job.link_broken(1, attempt, 2), [""; 0]);
    }
    assert!(job.membership.knows(w(2)));
}

#[test]
fn a_death_keeps_what_is_known_of_the_others() {
    let mut job = Job::training(3, wide());
    job.trains_on(2, 1, 9, &[40, 10, 10]);
    job.dies(3, 9);
    job.all_halted([1, 2], 2, 9);
    assert_eq!(job.ranges(), ["0..5", "5..24"]);
    let overview = job.membership.overview(job.now);
    let paces: Vec<_> = overview.workers.iter().map(|view| view.pace).collect();
    assert_eq!(paces, [40, 10].map(|millis| Some(Pace::new(Duration::from_millis(millis)))));
}
