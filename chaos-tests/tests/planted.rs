//! Bugs that are let loose in the machines are found: a simulator that finds nothing must not be blind.

use sardana_chaos_tests::simulation::planted::hunt;
use sardana_protocol::planted::Bug;

/// For how many virtual minutes faults come in each run.
const MINUTES: u64 = 30;

/// A bug that so many runs do not find is not found.
const RUNS: u64 = 400;

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<Bug> = Bug::ALL
        .iter()
        .map(|&bug| hunt(bug, 0, RUNS, MINUTES))
        .inspect(|hunt| {
            println!(
                "{:?}: {} runs, {:.1} s: {:?}",
                hunt.bug,
                hunt.runs,
                hunt.took.as_secs_f64(),
                hunt.found
            )
        })
        .filter(|hunt| hunt.found.is_none())
        .map(|hunt| hunt.bug)
        .collect();
    assert!(missed.is_empty(), "{missed:?} in {RUNS} runs each");
}
