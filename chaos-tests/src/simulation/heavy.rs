//! A job whose state takes minutes or an hour to move: all workers lose it and load it from a checkpoint, one is lost and another joins.
//! Whatever is waited for moves all the time, so that no worker may be left out for it, however long it takes (LIVE-1).

use std::time::Duration;

use sardana_protocol::checkpoint::Every;

use super::faults::Fault;
use super::invariants::Violation;
use super::swarm::Swarm;
use super::world::World;

/// What becomes of such a job.
#[derive(Debug)]
pub struct Heavy {
    /// How long its state takes from one worker to another.
    pub transfer: Duration,
    /// How long it took from the loss of all workers to the next update; none if that never came.
    pub resumed: Option<Duration>,
    /// How long it took until a successor of a lost worker was a member; none if none ever was.
    pub joined: Option<Duration>,
    /// How many workers the coordinator had killed because they seemed to do nothing.
    pub killed: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// A state is fetched, loaded and hashed, and a checkpoint may be written before, each several times over.
const AT_MOST: u32 = 12;

/// What is waited for besides: see [`super::invariants`].
const PATIENCE: Duration = Duration::from_secs(600);

/// Plays the run of `seed`.
#[must_use]
pub fn load(seed: u64) -> Heavy {
    let mut world = World::drawn(seed, Swarm::of_a_large_state);
    let swarm = &world.swarm;
    let transfer = swarm.transfer;
    let bound = AT_MOST * (transfer + swarm.local + swarm.load + swarm.step()) + PATIENCE;
    world.until(bound, |world| world.counts.checkpoints > 0);
    for worker in world.processes.keys().copied().collect::<Vec<_>>() {
        world.killed(worker);
    }
    let before = world.counts.updates;
    let resumed = world.until(bound, |world| world.counts.updates > before);
    world.strike(Fault::Kill);
    let members = world.members();
    let joined = world.until(bound, |world| world.members() > members);
    Heavy {
        transfer,
        resumed,
        joined,
        killed: world.counts.killed,
        violation: world.broken,
    }
}

/// What becomes of a checkpoint of which one of two hosts loses all.
#[derive(Debug)]
pub struct PlacedAnew {
    /// How long the state takes from one host to another.
    pub transfer: Duration,
    /// How long it took from the loss until people were told that the checkpoint is on both hosts again; none if they never were.
    pub took: Option<Duration>,
    /// How many orders to fetch it the checkpoint actors were given.
    pub orders: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// Plays the run of `seed`, in which no other checkpoint is written meanwhile.
#[must_use]
pub fn place_anew(seed: u64) -> PlacedAnew {
    let mut world = World::drawn(seed, |dice| {
        let mut swarm = Swarm::of_a_large_state(dice);
        if let Some(saves) = &mut swarm.saves {
            (saves.every, saves.replicas) = (Every::Time(4 * (swarm.transfer + PATIENCE)), 2);
        }
        swarm
    });
    let transfer = world.swarm.transfer;
    let bound = 2 * (transfer + PATIENCE);
    world.until(6 * bound, |world| world.counts.checkpoints > 0);
    world.strike(Fault::DepotWiped);
    let told = |world: &World| world.coverage.times("people are told", "Saved");
    let before = told(&world);
    let took = world.until(bound, |world| told(world) > before);
    PlacedAnew {
        transfer,
        took,
        orders: world.coverage.times("depots are told", "Fetch"),
        violation: world.broken,
    }
}

impl World {
    /// Goes on until something is so, and returns how long that took; none if it was not so within `bound`.
    pub(super) fn until(&mut self, bound: Duration, is_so: impl Fn(&Self) -> bool) -> Option<Duration> {
        let since = self.now();
        while self.broken.is_none() && !self.given_up && self.now() < since + bound {
            if is_so(self) {
                return Some(self.now() - since);
            }
            if !self.happen() {
                return None;
            }
        }
        None
    }

    /// How many workers take part.
    pub(super) fn members(&self) -> usize {
        let seats = self.processes.values().map(|process| process.member.phases().seat);
        seats.filter(|seat| *seat == "linked").count()
    }
}
