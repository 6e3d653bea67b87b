//! A fleet of which machines are taken away, leave and come without end: checkpoints must come all the same.

use std::time::Duration;

use sardana_protocol::checkpoint::Every;

use super::faults::Fault;
use super::invariants::Violation;
use super::swarm::Swarm;
use super::world::World;

/// What becomes of such a job.
#[derive(Debug)]
pub struct Preempted {
    /// Checkpoints committed.
    pub saved: u64,
    /// Checkpoints given up.
    pub not_saved: u64,
    /// Workers that were lost or left, and storms of new ones.
    pub struck: u64,
    /// The longest time in which none was committed,
    pub longest: Duration,
    /// and what it may be: the time between two that are due, and five rounds.
    pub bound: Duration,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// So many rounds a checkpoint that is due may take. A round is a step, the copying and hashing of shares, and their writing, each twice as
/// long as it takes as a rule. One round is lost with a worker, one until the others train again, one may be with a join, and one is for
/// itself.
const ROUNDS: u32 = 5;

/// Between two faults there is as long as a checkpoint that is due takes, and up to as long again.
const APART: u32 = 3;

/// A loss is seen, and the others have formed a ring, within this, and what moves on the network.
const FORMS: Duration = Duration::from_secs(2);

/// Plays the run of `seed` for so many virtual minutes.
#[must_use]
pub fn preempt(seed: u64, minutes: u64) -> Preempted {
    let mut world = World::drawn(seed, Swarm::preempted);
    let swarm = &world.swarm;
    let step = swarm.step();
    // A boundary is reached, the state is copied and written, and manifests are.
    let round = 2 * step + 2 * swarm.transfer + 2 * swarm.sync + FORMS;
    let interval = match swarm.saves.map(|saves| saves.every) {
        Some(Every::Steps(steps)) => step * u32::try_from(steps.get()).unwrap_or(u32::MAX),
        Some(Every::Time(_)) | None => Duration::MAX,
    };
    let (end, mut next) = (Duration::from_secs(60 * minutes), APART * round);
    let (mut saved, mut longest, mut since) = (0, Duration::ZERO, Duration::ZERO);
    while world.now() < end && world.broken.is_none() && !world.given_up {
        if world.now() >= next {
            let kinds = [Fault::Kill, Fault::Drain, Fault::Storm];
            if let Some(fault) = world.dice.pick(&kinds) {
                world.strike(fault);
            }
            next = world.now() + APART * round + world.within(APART * round);
        }
        if !world.happen() {
            break;
        }
        longest = longest.max(world.now().saturating_sub(since));
        if world.counts.checkpoints > saved {
            (saved, since) = (world.counts.checkpoints, world.now());
        }
    }
    Preempted {
        saved,
        not_saved: world.counts.checkpoints_given_up,
        struck: world.counts.all_faults(),
        longest,
        bound: interval + ROUNDS * round,
        violation: world.broken,
    }
}
