//! Groups in the simulator: who is in which generation, under faults, that all go on together once there are none, and that the job ends.

use sardana_chaos_tests::simulation::{Grouped, group};

fn played(seed: u64, minutes: u64) -> Grouped {
    let played = group(seed, minutes);
    assert_eq!(played.violation, None, "seed {seed}, {minutes} minutes");
    played
}

#[test]
fn groups_violate_nothing_and_go_on_together() {
    let mut all = Grouped::default();
    for seed in 0..60 {
        let one = played(seed, 10);
        all.generations += one.generations;
        all.operations += one.operations;
        all.failed += one.failed;
        all.adopted += one.adopted;
        all.released += one.released;
        all.finished += one.finished;
        all.stopped += one.stopped;
        for (fault, struck) in one.faults {
            *all.faults.entry(fault).or_default() += struck;
        }
    }
    // That nothing was found says something only where all of it happened.
    assert_eq!(all.faults.len(), 11, "{all:?}");
    assert!(all.faults.values().all(|&struck| struck >= 50), "{all:?}");
    assert!(
        all.generations > 1_000 && all.operations > 10_000 && all.failed > 300,
        "{all:?}"
    );
    assert!(all.adopted > 10 && all.released > 50, "{all:?}");
    assert!(all.finished > 10 && all.stopped > 10, "{all:?}");
    assert_eq!(all.finished + all.stopped, 60, "{all:?}");
}

#[test]
fn one_seed_decides_the_whole_story_of_a_group() {
    assert_eq!(group(7, 5), group(7, 5));
    assert_ne!(group(7, 5), group(8, 5));
}
