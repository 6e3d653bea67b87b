//! Jobs that come to what a campaign comes to only by chance: a check that is hardly ever asked, or a time that faults hide.

use std::time::Duration;

use sardana_protocol::membership::Balance;
use sardana_protocol::words::WorkerId;

use super::faults::{Fault, is_seen_by_its_agent};
use super::invariants::Violation;
use super::network::{Cut, Node, Way};
use super::swarm::Swarm;
use super::world::World;
use crate::dice::mix;

/// What becomes of a job in which one check is to be made.
#[derive(Debug)]
pub struct Asked {
    /// How often it was made.
    pub times: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// What becomes of a job in which a process is stopped.
#[derive(Debug)]
pub struct StoodStill {
    /// How long it took from then until the process was left out. None if it was not.
    pub left_out: Option<Duration>,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// By then all of a job train.
const BEGINS: Duration = Duration::from_secs(1_800);

/// How long a gradient that seems never to end takes at least: longer than any worker is given for it.
const ENDLESS: Duration = Duration::from_secs(7_200);

/// So long a process stands still: connections live on.
const STANDS: Duration = Duration::from_secs(8);

/// A coordinator loses its disk, and finds one newcomer when it is back: all that train are cut off from it, and train on. It may begin anew,
/// but only after it has waited for them.
#[must_use]
pub fn come_back_to_a_newcomer(seed: u64) -> Asked {
    let (mut world, _) = training(seed, 3, Balance::default());
    let inside = world.processes.keys().copied().map(Node::Worker).collect();
    let until = world.now() + ENDLESS;
    world.cut_off(Cut {
        inside,
        way: Way::Both,
        until,
    });
    world.strike(Fault::DiskLost);
    world.start_after(Duration::from_secs(1));
    world.asked("who comes back waits first")
}

/// A worker comes to a gradient that takes it hours, while its process beats on: it is killed as if its training thread hung, but
/// not before any other worker would be.
#[must_use]
pub fn work_without_end(seed: u64) -> Asked {
    // No worker tells how fast it is: one that says that it takes hours is given hours.
    let (mut world, chosen) = training(seed, 3, Balance::Off);
    let times = ENDLESS.as_millis() / world.swarm.gradient.as_millis().max(1);
    if let Some(process) = chosen.and_then(|worker| world.processes.get_mut(&worker)) {
        process.slow = u32::try_from(times).unwrap_or(u32::MAX);
    }
    world.asked("who works is not left out as one who hangs")
}

/// A process of a job of so many workers is stopped, as by SIGSTOP, and its agent sees it.
#[must_use]
pub fn stand_still(seed: u64, workers: u32) -> StoodStill {
    let (mut world, _) = training(seed, workers, Balance::default());
    let workers_there = world.processes.keys().copied();
    let seen: Vec<WorkerId> = workers_there.filter(|worker| is_seen_by_its_agent(*worker)).collect();
    let Some(stopped) = world.dice.pick(&seen) else {
        // Which agent sees a signal is decided by ids: none of these does.
        return stand_still(mix(seed), workers);
    };
    let thaw = world.now() + STANDS;
    if let Some(process) = world.processes.get_mut(&stopped) {
        process.frozen_until = Some(thaw);
    }
    StoodStill {
        left_out: world.until(STANDS, |world| world.dismissed.contains(&stopped)),
        violation: world.broken,
    }
}

/// A job of so many workers that train on healthy hosts, and one of them.
fn training(seed: u64, workers: u32, balance: Balance) -> (World, Option<WorkerId>) {
    let mut world = World::drawn(seed, |dice| Swarm {
        balance,
        ..Swarm::healthy(dice, workers)
    });
    let all = workers as usize;
    world.until(BEGINS, |world| world.members() == all && world.advances >= 3);
    let chosen = world.pick();
    (world, chosen)
}

impl World {
    /// Goes on until this check was made.
    fn asked(mut self, check: &str) -> Asked {
        let times = |world: &Self| world.law.checked().get(check).copied().unwrap_or(0);
        self.until(ENDLESS, |world| times(world) > 0);
        Asked {
            times: times(&self),
            violation: self.broken,
        }
    }
}
