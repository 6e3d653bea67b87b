//! A small fleet that loses one process after the other, but never the oldest: nothing may stay of the lost ones.

use std::fmt::Debug;
use std::time::Duration;

use sardana_protocol::limits::MAX_KEPT_REPORTS;
use sardana_protocol::words::WorkerId;

use super::invariants::Violation;
use super::swarm::Swarm;
use super::world::World;

/// The longest text that a machine was, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    /// The coordinator's.
    pub coordinator: usize,
    /// That of the worker that has lived for longest.
    pub oldest: usize,
}

/// What becomes of such a job.
#[derive(Debug)]
pub struct Outlived {
    /// While the first of them ended.
    pub first: Sizes,
    /// While the last did.
    pub last: Sizes,
    /// How many generations there were.
    pub generations: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// All train by then, and a worker that does not report has kept as many reports as it may.
const BEGINS: u64 = MAX_KEPT_REPORTS as u64 + 100;

/// Steps are few between two ends.
const GRADIENT: Duration = Duration::from_millis(10);

/// Between two ends at most, so that some of the workers that come take part, and some end before.
const APART: Duration = Duration::from_millis(600);

/// Sizes are compared over so many ends: what a life leaves for a while is more at one time than at another.
const COMPARED: u32 = 200;

/// Plays the run of `seed`: so many processes end.
#[must_use]
pub fn outlive(seed: u64, lives: u32) -> Outlived {
    let mut world = World::drawn(seed, |dice| Swarm {
        gradient: GRADIENT,
        ..Swarm::churned(dice)
    });
    world.until(Duration::MAX / 2, |world| world.advances >= BEGINS);
    let oldest = world.pick();
    let [first, _, last] = [COMPARED, lives.saturating_sub(2 * COMPARED), COMPARED].map(|ends| world.lose(ends, oldest));
    Outlived {
        first,
        last,
        generations: world.counts.generations,
        violation: world.broken,
    }
}

impl World {
    /// So many processes end, one after the other, but never the oldest.
    fn lose(&mut self, lives: u32, oldest: Option<WorkerId>) -> Sizes {
        let mut sizes = Sizes::default();
        for _ in 0..lives {
            let pause = self.within(APART);
            self.until(pause, |_| false);
            let mortal: Vec<WorkerId> = self.processes.keys().copied().filter(|one| Some(*one) != oldest).collect();
            if let Some(worker) = self.dice.pick(&mortal) {
                // Its agent tells how it ended: for a worker whose connection breaks first, that is remembered for a while.
                self.killed(worker);
            }
            sizes.coordinator = sizes.coordinator.max(text(&self.coordinator.machine));
            let oldest = oldest.and_then(|oldest| self.processes.get(&oldest));
            sizes.oldest = sizes.oldest.max(oldest.map_or(0, |process| text(&process.member)));
        }
        sizes
    }
}

fn text(machine: &impl Debug) -> usize {
    format!("{machine:?}").len()
}
