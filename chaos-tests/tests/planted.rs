//! Bugs that are let loose in the machines are found: a simulator that finds nothing must not be blind.

use sardana_chaos_tests::simulation::planted::{HEAD, Hunting};
use sardana_protocol::planted::Bug;

/// For how many virtual minutes faults come in each run.
const MINUTES: u64 = 30;

/// A bug that so many runs do not find is not found. The rarest takes a fifth of them.
const RUNS: u64 = 300;

#[test]
fn every_planted_bug_is_found() {
    let hunting = Hunting {
        seed: 0,
        runs: RUNS,
        minutes: MINUTES,
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    println!("{HEAD}");
    let hunts = hunting.hunt_all(Bug::ALL, |hunt| println!("{hunt}"));
    assert_eq!(hunts.len(), Bug::ALL.len());
    let missed: Vec<Bug> = hunts
        .iter()
        .filter(|hunt| hunt.found.is_none())
        .map(|hunt| hunt.bug)
        .collect();
    assert!(missed.is_empty(), "{missed:?} in {RUNS} runs each");
}
