//! Whole clusters of machines: one coordinator and its workers, under arbitrary deaths, joins, lost, delayed and reordered
//! messages. The invariants are checked after every event; then the faults stop and the job must end with the reference state.

mod model;
mod ring;
mod world;

use proptest::prelude::*;
use world::{Chaos, World};

/// One whole run: chaos, then healing. A failure names the seed that replays it.
fn run(seed: u64, workers: u32, shards: u32, steps: u64, chaos: Chaos) {
    let mut world = World::new(seed, workers, shards, steps);
    world.suffer(chaos);
    world.heal();
}

/// How many runs each property gets: `PROPTEST_CASES`, or a few.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(400)
}

proptest! {
    // A failing case prints all that replays it. One worth keeping becomes a test of its own with a name, not a line of numbers
    // in a regressions file.
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deaths_and_joins_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, events in 0_u32..1500,
    ) {
        run(seed, workers, shards, steps, Chaos { events, kills: 12, losses: 0, cuts: 0, drains: 0 });
    }

    #[test]
    fn joins_and_drains_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40, events in 500_u32..6000,
        kills in 0_u32..12,
    ) {
        run(seed, workers, shards, steps, Chaos { events, kills, losses: 0, cuts: 0, drains: 8 });
    }

    #[test]
    fn lost_and_reordered_messages_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, events in 0_u32..2500,
    ) {
        run(seed, workers, shards, steps, Chaos { events, kills: 4, losses: 100, cuts: 8, drains: 4 });
    }

    #[test]
    fn a_stop_ends_the_job_at_one_boundary_with_its_state(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12,
        before in 0_u32..900, after in 0_u32..800, losses in prop_oneof![Just(0_u32), Just(100)],
    ) {
        let mut world = World::new(seed, workers, shards, steps);
        world.suffer(Chaos { events: before, kills: 4, losses, cuts: losses / 20, drains: 0 });
        world.stop();
        // Many cuts: some stop where the trailer says while others, without them, go on.
        world.suffer(Chaos { events: after, kills: 8, losses, cuts: losses * 3 / 5, drains: 4 });
        world.heal();
    }

    #[test]
    fn an_undisturbed_stop_computes_every_gradient_once(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, before in 0_u32..1500,
    ) {
        let mut world = World::new(seed, workers, shards, steps);
        for _ in 0..before {
            world.event();
        }
        world.stop();
        let summary = world.heal();
        prop_assert_eq!(summary.computed, u64::from(shards) * summary.step.get());
        prop_assert_eq!(summary.recomputed, 0);
    }

    #[test]
    fn nobody_dies_and_every_gradient_is_computed_once(
        seed in any::<u64>(), workers in 1_u32..9, shards in 1_u32..17, steps in 1_u64..12,
    ) {
        let mut world = World::new(seed, workers, shards, steps);
        let summary = world.heal();
        prop_assert_eq!(summary.computed, u64::from(shards) * steps);
        prop_assert_eq!(summary.recomputed, 0);
    }
}

#[test]
fn replay_one() {
    let Ok(words) = std::env::var("REPLAY") else { return };
    let n: Vec<u64> = words.split(' ').map(|w| w.parse().unwrap()).collect();
    if n.len() == 7 {
        let (losses, mut world) = (n[6] as u32, World::new(n[0], n[1] as u32, n[2] as u32, n[3]));
        world.suffer(Chaos {
            events: n[4] as u32,
            kills: 4,
            losses,
            cuts: losses / 20,
            drains: 0,
        });
        world.stop();
        world.suffer(Chaos {
            events: n[5] as u32,
            kills: 8,
            losses,
            cuts: losses * 3 / 5,
            drains: 4,
        });
        world.heal();
        return;
    }
    run(
        n[0],
        n[1] as u32,
        n[2] as u32,
        n[3],
        Chaos {
            events: n[4] as u32,
            kills: n[5] as u32,
            losses: n[6] as u32,
            cuts: n[7] as u32,
            drains: n[8] as u32,
        },
    );
}
