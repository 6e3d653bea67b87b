//! A small fleet of which a process is killed every moment, whatever it does just then: training must go on all the same.

use std::time::Duration;

use sardana_protocol::messages::Tally;
use sardana_protocol::replacing::Replacing;
use sardana_protocol::words::Step;

use super::calendar::Happening;
use super::faults::Fault;
use super::invariants::Violation;
use super::swarm::Swarm;
use super::world::{Process, World};

/// What becomes of such a job.
#[derive(Debug)]
pub struct Churned {
    /// Steps that the job has beyond where it stood when the first was killed. Those that were lost with the state do not count.
    pub steps: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// How often no process had the state any more.
    pub states_lost: u64,
    /// The longest time in which a single process had the state.
    pub longest_alone: Duration,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// All train by then.
const BEGINS: Duration = Duration::from_secs(5);

/// Plays the run of `seed`: for so long, a process is killed each time that `every` has passed.
#[must_use]
pub fn churn(seed: u64, every: Duration, lasts: Duration) -> Churned {
    let mut world = World::drawn(seed, Swarm::churned);
    world.replacing = Some(Replacing::default());
    while world.now() < BEGINS && world.broken.is_none() && world.happen() {}
    let before = world.reached();
    let (end, mut next, mut kills) = (world.now() + lasts, world.now() + every, 0);
    let (mut alone_since, mut longest_alone) = (None, Duration::ZERO);
    while world.now() < end && world.broken.is_none() {
        if world.now() >= next {
            world.strike(Fault::Kill);
            kills += 1;
            next += every;
        }
        if !world.happen() {
            break;
        }
        let now = world.now();
        if world.holders() == 1 {
            longest_alone = longest_alone.max(now.saturating_sub(*alone_since.get_or_insert(now)));
        } else {
            alone_since = None;
        }
    }
    Churned {
        steps: world.reached().get().saturating_sub(before.get()),
        kills,
        states_lost: world.counts.states_lost,
        longest_alone,
        violation: world.broken,
    }
}

impl World {
    /// A successor comes for a process that ended.
    pub(crate) fn replace(&mut self, lived: Duration, tally: Tally) {
        let Some(replacing) = &mut self.replacing else {
            return self.start_after(self.swarm.restart);
        };
        let wait = replacing.wait(lived, Some(tally));
        self.coming += 1;
        self.calendar.after(wait + self.swarm.restart, Happening::Start);
    }

    /// How many processes have the newest state, or the one before it: those with the newest have the sum in between.
    fn holders(&self) -> usize {
        let reached = self.reached();
        let has_it = |process: &&Process| process.member.step().next() >= reached;
        self.processes.values().filter(has_it).count()
    }

    /// Where the job stands, as far as its coordinator knows.
    fn reached(&self) -> Step {
        let machine = self.coordinator.machine.as_ref();
        machine.map_or(Step::ZERO, sardana_protocol::membership::Membership::reached)
    }
}
