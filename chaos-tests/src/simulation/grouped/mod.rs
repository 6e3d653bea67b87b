//! Groups: the coordinator's machine and those of a group's workers, with programs that call operations without end, on a network and hosts that do
//! their worst. What holds of training has its own worlds; here it is who is in which generation, and that all go on together.
//!
//! - `world`: what happens to whom, in virtual time; `coordinator`: the coordinator, and what reaches it; `process`: a worker; `living`: how it
//!   begins and ends, and what it says; `operating`: links, and operations that pass them; `faults`: what goes wrong; `ending`: how the job ends; `oracle`: what must hold, by what was told to whom alone.

mod coordinator;
mod ending;
mod faults;
mod living;
mod operating;
mod oracle;
mod process;
mod world;

use std::time::Duration;

use super::invariants::Violation;
use world::World;

/// What becomes of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grouped {
    /// Generations that at least one worker was told of.
    pub generations: u64,
    /// Operations that ended well at a rank.
    pub operations: u64,
    /// Operations that failed at a rank.
    pub failed: u64,
    /// How often each fault struck, by name.
    pub faults: std::collections::BTreeMap<&'static str, u64>,
    /// Generations that a later life of the coordinator has left as they were.
    pub adopted: u64,
    /// Workers that have left, or were drained, and were let go.
    pub released: u64,
    /// Jobs that ended as all had finished.
    pub finished: u64,
    /// Jobs that an operator has stopped.
    pub stopped: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// Once no fault strikes any more, all are in one generation that works within this: a host is noticed to be gone, its links fail to be made three times,
/// and a newcomer's host may have to cool down.
const CALMS_WITHIN: Duration = Duration::from_secs(420);

/// Whatever struck last is noticed within this.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// From then on nothing changes for so long, longer than anything waits for.
const STANDS_FOR: Duration = Duration::from_secs(15 * 60);

/// For so long faults go on once something is to end the job.
const ENDS_UNDER_FAULTS: Duration = Duration::from_secs(60);

/// Plays the run of `seed`, in which faults come for so many virtual minutes, then none, and then once more while the job is to end.
#[must_use]
pub fn group(seed: u64, minutes: u64) -> Grouped {
    let mut world = World::drawn(seed);
    let calm = Duration::from_secs(60 * minutes);
    world.faults_until(calm);
    world.until(calm, |_| false);
    world.heal();
    // What has struck last is noticed, and a coordinator that has crashed begins another life.
    world.until(calm + NOTICED_WITHIN, |_| false);
    if !world.until(calm + CALMS_WITHIN, World::is_whole) {
        world.violates("LIVE-1", format!("no generation of all within {CALMS_WITHIN:?}: {world:?}"));
    }
    let (generation, operations) = (world.newest(), world.counts.operations);
    let end = world.now() + STANDS_FOR;
    world.until(end, |_| false);
    if !world.is_whole() || world.newest() != generation {
        world.violates("LIVE-1", format!("{generation} did not stand: {world:?}"));
    }
    if world.counts.operations == operations {
        world.violates("LIVE-1", format!("no operation ends in {generation}: {world:?}"));
    }
    bring_to_an_end(&mut world);
    world.counts
}

/// All finish, or an operator stops them: whatever strikes meanwhile, the job ends.
fn bring_to_an_end(world: &mut World) {
    world.faults_until(world.now() + ENDS_UNDER_FAULTS);
    world.begin_to_end();
    if world.ends_within(ENDS_UNDER_FAULTS) {
        return;
    }
    world.heal();
    if !world.ends_within(CALMS_WITHIN) {
        world.violates("LIVE-1", format!("the job does not end within {CALMS_WITHIN:?}: {world:?}"));
    }
}
