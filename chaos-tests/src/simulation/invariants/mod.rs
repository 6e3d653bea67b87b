//! What must hold, whatever happens: one file for each invariant, all of them checked as things happen.

mod believing;
mod checkpoints;
mod contents;
mod donors;
mod ending;
mod fences;
mod generations;
mod hanging;
mod joiners;
mod lasting;
mod leaving;
mod losing;
mod memory;
mod progress;
mod readiness;
mod resting;
mod resuming;
mod returns;
mod samples;
mod seats;
mod silence;
mod states;
mod updates;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use sardana_protocol::job::Order;
use sardana_protocol::messages::{CoordinatorMessage, Ring, Trailer};
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};

use checkpoints::Checkpoints;
use ending::Doubts;
use seats::Orders;

use super::marks::Marks;
use super::model::Reference;
pub(crate) use hanging::{Doing, given};
pub(crate) use leaving::Heirs;
pub(crate) use progress::Floor;
pub(crate) use resting::Second;

/// What did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number, or a few words.
    pub invariant: &'static str,
    /// What was found.
    pub text: String,
}

/// Whether something holds that must: what was found, if it does not.
pub(crate) type Held = Result<(), Violation>;

impl Violation {
    pub(crate) fn new(invariant: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { invariant, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.text)
    }
}

/// The job, its undisturbed run, and what has been seen so far. One type, as long as it is: what one invariant notes another one asks for.
#[derive(Debug, Default)]
pub(crate) struct Law {
    shards: u32,
    steps: Step,
    order: Order,
    reference: Reference,
    /// The newest generation that has begun.
    pub(crate) newest: Generation,
    /// Whether the coordinator leads an older generation, and has never heard of the newest.
    unheard: bool,
    /// What each worker has promised.
    promised: BTreeMap<WorkerId, Generation>,
    /// The highest incarnation that has welcomed each worker.
    welcomed: BTreeMap<WorkerId, Incarnation>,
    orders: Orders,
    /// The generation that was planned last, and its members.
    planned: (Generation, BTreeSet<WorkerId>),
    /// Which workers have said that they are ready for which generation.
    ready: BTreeSet<(WorkerId, Generation)>,
    /// The members of the generation that is current.
    seated: Vec<WorkerId>,
    /// The members of the generation before that were left out by the trailer that switched to this one.
    left_out: Vec<WorkerId>,
    /// When the coordinator last heard of a new step. This and what follows is by the clock of its present life.
    advanced: Option<Duration>,
    /// When that life began, and which one it is.
    born: Duration,
    lives: u64,
    pub(crate) doubts: Doubts,
    /// What each worker has told the coordinator of its generation, and of its ring, when it came.
    introduced: BTreeMap<WorkerId, (Generation, Option<Ring>)>,
    /// The workers with a state that training has begun anew without.
    given_up: BTreeSet<WorkerId>,
    /// The workers that are to leave, and since when.
    leaving: BTreeMap<WorkerId, Duration>,
    /// The workers that were let go, as far as the coordinator can know.
    gone: BTreeSet<WorkerId>,
    /// The newest sum that each joiner has had.
    followed: BTreeMap<WorkerId, Step>,
    /// The workers whose connection broke, and when.
    cut_off: BTreeMap<WorkerId, Duration>,
    checkpoints: Checkpoints,
    /// Whether an operator has asked the job to stop.
    pub(crate) may_stop_early: bool,
    /// How often each invariant was checked.
    checked: Marks,
    /// How often a check was left out, or what it found let pass, and why.
    excused: Marks,
}

impl Law {
    pub(crate) fn new(shards: u32, steps: Step, order: Order) -> Self {
        Self {
            shards,
            steps,
            order,
            reference: Reference::new(shards, order),
            ..Self::default()
        }
    }

    /// The coordinator's machine wants something said to a worker.
    pub(crate) fn orders(&mut self, worker: WorkerId, message: &CoordinatorMessage) -> Held {
        if let CoordinatorMessage::Prepare(form) = message {
            self.is_planned(worker, form);
        }
        if let CoordinatorMessage::Prepare(form) | CoordinatorMessage::Form(form) = message {
            self.well_formed(worker, form)?;
            self.without_the_gone(worker, form.generation)?;
        }
        let CoordinatorMessage::CloseWith {
            trailer: Trailer::Switch(generation),
            ..
        } = message
        else {
            return Ok(());
        };
        self.may_switch(*generation)
    }

    /// How often each invariant was checked.
    pub(crate) fn checked(&self) -> BTreeMap<&'static str, u64> {
        by_name(&self.checked)
    }

    /// How often each excuse was used.
    pub(crate) fn excused(&self) -> BTreeMap<&'static str, u64> {
        by_name(&self.excused)
    }

    /// Counts an excuse: a campaign fails when there are more of them than [`super::required::EXCUSES`] allows.
    pub(crate) fn excuse(&mut self, why: &'static str) {
        self.excused.mark((why, "", ""));
    }

    /// Counts a check, and says what did not hold if it did not.
    fn check(&mut self, invariant: &'static str, holds: bool, text: impl FnOnce() -> String) -> Held {
        self.checked.mark((invariant, "", ""));
        if holds {
            Ok(())
        } else {
            Err(Violation::new(invariant, text()))
        }
    }
}

fn by_name(marks: &Marks) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for ((name, ..), times) in marks.counts() {
        *counts.entry(name).or_default() += times;
    }
    counts
}
