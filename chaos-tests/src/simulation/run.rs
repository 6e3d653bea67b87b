//! One whole run: faults come, then everything heals, the job must go on, and must end.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_protocol::membership::Event;
use sardana_protocol::status::Stage;
use sardana_protocol::words::Step;

use super::coverage::Coverage;
use super::faults::SLOWEST;
use super::invariants::{Floor, Violation};
use super::story::{Story, Telling};
use super::tally::Counts;
use super::world::World;

/// For so long faults still come after the job was asked to stop, if it was.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// What became of a run.
#[derive(Debug)]
pub struct Played {
    /// What it went through.
    pub counts: Counts,
    /// What it reached.
    pub coverage: Coverage,
    /// How often each invariant was checked.
    pub checked: BTreeMap<&'static str, u64>,
    /// How often a check was left out, and why.
    pub excused: BTreeMap<&'static str, u64>,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
    /// Its story as a number; 0 unless the digest was asked for.
    pub digest: u64,
}

/// Plays the run of `seed`: faults come for so many virtual minutes, or until the job ends.
#[must_use]
pub fn play(seed: u64, minutes: u64, telling: Telling) -> Played {
    let mut world = World::new(seed, minutes, Story::new(telling));
    let end = Duration::from_secs(minutes * 60);
    while world.now() < end && !world.is_over() && world.happen() {}
    if !world.is_over() {
        world.may_stop_amid_faults();
        world.heal();
        world.go_on_and_end();
    }
    world.counts.events = world.story.events;
    world.counts.steps = world.advances;
    Played {
        digest: world.story.digest,
        checked: world.law.checked(),
        excused: world.law.excused(),
        counts: world.counts,
        coverage: world.coverage,
        violation: world.broken,
    }
}

impl World {
    pub(crate) fn is_over(&self) -> bool {
        self.done.is_some() || self.given_up || self.broken.is_some()
    }

    /// Now and then the job is asked to stop while faults still come, so that a worker that has heard of it may die.
    fn may_stop_amid_faults(&mut self) {
        if self.dice.below(4) > 0 {
            return;
        }
        self.law.may_stop_early = true;
        let until = self.now() + STOPPED_WITHIN;
        let mut asked = false;
        while !self.is_over() && self.now() < until {
            asked |= !asked && self.ask_to_stop();
            if !self.happen() {
                return;
            }
        }
    }

    /// Asks the job to stop, if the coordinator listens. Where no worker trains it would fail instead.
    pub(super) fn ask_to_stop(&mut self) -> bool {
        let trains = match self.stage() {
            Some(Stage::Halting | Stage::Forming | Stage::Running) => self.coordinator_listens(),
            Some(Stage::Gathering | Stage::Done) | None => false,
        };
        if trains {
            self.decide(Event::StopRequested);
        }
        trains
    }

    /// After healing: the floor of progress, unless the job has been asked to stop, then the end.
    fn go_on_and_end(&mut self) {
        let step = self.swarm.gradient * self.swarm.most_shards() + self.swarm.apply * 3;
        let hangs = self.hanging();
        let transfer = self.swarm.transfer + self.swarm.local + self.swarm.load;
        let floor = Floor::of(step, transfer, self.swarm.restart, self.swarm.gradient * SLOWEST)
            .and_hangs(hangs, self.swarm.gradient)
            .and_saves(self.swarm.saves, step, 2 * transfer);
        if !self.law.may_stop_early {
            self.go_on(floor);
        }
        if self.is_over() {
            return;
        }
        if !self.law.may_stop_early {
            self.save_one(floor);
        }
        if self.is_over() {
            return;
        }
        self.law.may_stop_early = true;
        let (since, mut asked) = (self.now(), false);
        while !self.is_over() && self.now() < since + floor.ends_within {
            asked |= !asked && self.ask_to_stop();
            // A job that stops where it stands owes no gradient: nothing tells a worker that hangs in a gradient from one that evaluates.
            if asked && self.now() >= since + floor.ends_within / 2 {
                self.people_end_all_that_hangs();
            }
            self.happen_healed();
        }
        if self.broken.is_none() && !self.given_up {
            let (done, what) = (self.done.is_some(), self.describe());
            let held = self.law.ends(done, || what);
            self.require(held);
        }
    }

    fn go_on(&mut self, floor: Floor) {
        let (since, before) = (self.now(), self.advances);
        while !self.is_over() && self.advances < before + floor.steps && self.now() < since + floor.within {
            self.happen_healed();
        }
        if !self.is_over() {
            let (applied, what) = (self.advances - before, self.describe());
            let held = self.law.goes_on(floor, applied, || what);
            self.require(held);
        }
    }

    /// Some time after healing a checkpoint is committed, unless there is nothing left to be saved.
    fn save_one(&mut self, floor: Floor) {
        if self.depots.is_empty() {
            return;
        }
        let (since, before) = (self.now(), self.counts.checkpoints);
        while !self.is_over() && self.counts.checkpoints == before && self.now() < since + floor.saved_within {
            self.happen_healed();
        }
        if !self.is_over() {
            let (saved, what) = (self.counts.checkpoints > before, self.describe());
            let held = self.law.goes_on_saving(saved, || what);
            self.require(held);
        }
    }

    fn happen_healed(&mut self) {
        if self.waits_in_vain() {
            self.gives_up();
            return;
        }
        self.fill_up();
        self.people_end_what_hangs();
        if !self.happen() {
            let held = self.law.ends(false, || "nothing happens any more".to_owned());
            self.require(held);
        }
    }

    /// Where each worker stands, for a person who looks for the reason.
    fn describe(&self) -> String {
        let workers = self.processes.iter().map(|(worker, process)| {
            let at: Step = process.member.step();
            format!("\n  {worker} at {at} {:?}", process.member.phases())
        });
        let phases = self.coordinator.machine.as_ref().map(|machine| machine.phases());
        format!("{phases:?}{}", workers.collect::<String>())
    }
}
