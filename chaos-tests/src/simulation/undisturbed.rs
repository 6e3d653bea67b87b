//! A job that loses no worker, on hosts of unequal speed: shards move towards the faster, and each gradient is computed once.

use std::time::Duration;

use sardana_protocol::membership::{Balance, Calm};

use super::invariants::Violation;
use super::swarm::Swarm;
use super::world::World;

/// What becomes of such a job.
#[derive(Debug)]
pub struct Undisturbed {
    /// How many gradients its steps have, if it ended.
    pub once: Option<u64>,
    /// How many were counted.
    pub computed: u64,
    /// How many of them again.
    pub again: u64,
    /// How often shards moved, as no worker came or went.
    pub moved: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// It has so many steps.
const STEPS: u64 = 60;

/// It ends within this.
const ENDS: Duration = Duration::from_secs(24 * 3_600);

/// One worker is so many times as slow as the others.
const SLOWER: u32 = 3;

/// Plays the run of `seed`. The job is stopped where it stands once `stopped` steps are applied, or goes on to its last step.
#[must_use]
pub fn leave_undisturbed(seed: u64, workers: u32, stopped: Option<u64>) -> Undisturbed {
    let calm = Calm {
        time: Duration::from_millis(100),
        steps: 1,
    };
    let mut world = World::drawn(seed, |dice| Swarm {
        steps: STEPS,
        balance: Balance::After(calm),
        ..Swarm::healthy(dice, workers)
    });
    let shards = u64::from(world.swarm.shards);
    world.until(ENDS, |world| world.processes.len() == workers as usize);
    if let Some(process) = world.pick().and_then(|worker| world.processes.get_mut(&worker)) {
        process.slow = SLOWER;
    }
    if let Some(steps) = stopped {
        world.until(ENDS, |world| world.advances >= steps);
        world.law.may_stop_early = true;
        world.ask_to_stop();
    }
    world.until(ENDS, |world| world.done.is_some());
    let summary = world.done.as_ref();
    Undisturbed {
        once: summary.map(|summary| shards * summary.step.get()),
        computed: summary.map_or(0, |summary| summary.computed),
        again: summary.map_or(0, |summary| summary.recomputed),
        moved: world.counts.generations.saturating_sub(1),
        violation: world.broken,
    }
}
