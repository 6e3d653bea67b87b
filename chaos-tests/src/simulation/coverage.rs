//! Which transitions of the machines, and which messages, commands and events, a run has seen: what is never reached is never tried.

use std::collections::BTreeMap;

use sardana_protocol::member::{self, Command};
use sardana_protocol::membership::{self, JobEvent};
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, DepotOrder, WorkerMessage};
use sardana_protocol::plan::Part;

pub use super::expected::{COVERED_WITHIN, expected};
use super::marks::Marks;

/// One thing that was reached: of which machine or list, and what.
pub type Reached = (&'static str, &'static str, &'static str);

/// How often each was reached.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    transitions: Marks,
    named: Marks,
}

impl Coverage {
    pub(crate) fn moved(&mut self, from: membership::Phases, to: membership::Phases) {
        self.transition("membership", from.membership, to.membership);
        self.transition("past", from.past, to.past);
        self.transition("snapshot", from.snapshot, to.snapshot);
        self.transition("plan", from.plan, to.plan);
        self.transition("saving", from.saving, to.saving);
    }

    pub(crate) fn member_moved(&mut self, from: member::Phases, to: member::Phases) {
        self.transition("seat", from.seat, to.seat);
        self.transition("next seat", from.next, to.next);
        self.transition("update", from.update, to.update);
        self.transition("joining", from.joining, to.joining);
    }

    fn transition(&mut self, machine: &'static str, from: &'static str, to: &'static str) {
        // Nearly always the same literal.
        if !std::ptr::eq(from, to) && from != to {
            self.transitions.mark((machine, from, to));
        }
    }

    fn name(&mut self, list: &'static str, name: &'static str) {
        self.named.mark((list, name, ""));
    }

    pub(crate) fn ordered(&mut self, message: &CoordinatorMessage) {
        self.name("coordinator says", message.into());
    }

    pub(crate) fn said(&mut self, message: &WorkerMessage) {
        self.name("worker says", message.into());
    }

    /// A worker has the sum of a step, by this part of a plan.
    pub(crate) fn summed(&mut self, part: &Part) {
        let made_by = match part {
            Part::Ordered(_) => "running sum",
            Part::Direct(part) if part.owners.len() == 1 => "one owner",
            Part::Direct(_) => "all owners",
            Part::Ring(_) => "all ranks",
        };
        self.name("sums are made by", made_by);
    }

    /// A gradient is begun beside the one before it, into the buffer of that or another.
    pub(crate) fn begun_beside(&mut self, goes_on: bool) {
        self.name(
            "beside a gradient",
            if goes_on { "one of its piece" } else { "one of another piece" },
        );
    }

    pub(crate) fn commanded(&mut self, command: &Command) {
        self.name("worker does", command.name());
    }

    pub(crate) fn depot_ordered(&mut self, order: &DepotOrder) {
        self.name("depots are told", order.into());
    }

    pub(crate) fn depot_said(&mut self, message: &DepotMessage) {
        self.name("depot says", message.into());
    }

    pub(crate) fn told(&mut self, event: &JobEvent) {
        self.name("people are told", event.name());
    }

    /// How often what has this name in this list was reached.
    pub(crate) fn times(&self, list: &'static str, name: &'static str) -> u64 {
        let mut counts = self.named.counts();
        counts
            .find(|(reached, _)| *reached == (list, name, ""))
            .map_or(0, |(_, times)| times)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.transitions.add(&other.transitions);
        self.named.add(&other.named);
    }

    /// All that was reached, and how often.
    #[must_use]
    pub fn reached(&self) -> BTreeMap<Reached, u64> {
        let mut all = BTreeMap::new();
        for (reached, times) in self.transitions.counts().chain(self.named.counts()) {
            *all.entry(reached).or_default() += times;
        }
        all
    }

    /// What was expected and never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<Reached> {
        let reached = self.reached();
        expected().into_iter().filter(|one| !reached.contains_key(one)).collect()
    }
}
