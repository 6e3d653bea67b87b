//! The end of a job: done only when every member reported the last step and its hash.

use super::roster::{Ending, Place};
use super::{JobEvent, Membership, Phase, Record, Summary};
use crate::messages::CoordinatorMessage;
use crate::planted::{Bug, bites};
use crate::words::WorkerId;

impl Membership {
    /// Ends the job if every member of the generation has finished. Workers that came too late do not count.
    pub(super) fn conclude(&mut self) {
        // Asked with every message, and nearly always for nothing.
        if !self.is_ending() {
            return;
        }
        let takes_part = |worker: &WorkerId, record: &Record| record.is_busy() && self.is_member(*worker);
        let seated: Vec<(&WorkerId, &Record)> = self
            .members
            .iter()
            .filter(|(worker, record)| takes_part(worker, record))
            .collect();
        let endings: Vec<(&WorkerId, &Ending)> = seated
            .iter()
            .filter_map(|(worker, record)| Some((*worker, record.ending()?)))
            .collect();
        let Some((first, ending)) = endings.first().copied() else {
            return;
        };
        // Whoever was left out has yet to tell its count.
        let counted = !self
            .members
            .iter()
            .any(|(worker, record)| record.is_busy() && !self.is_member(*worker));
        if (endings.len() < seated.len() || !counted) && !bites(Bug::DoneTooEarly) {
            return;
        }
        if let Some((other, found)) = endings.iter().find(|(_, found)| !found.same_bits(ending)) {
            let reason = format!(
                "the final states differ (BITS-1): worker {first} has {} at {}, worker {other} has {} at {}; \
                 a machine computes wrongly or the model is not deterministic",
                ending.hash, ending.step, found.hash, found.step
            );
            return self.fail(reason);
        }
        let summary = Summary {
            order: self.config.order,
            step: ending.step,
            hash: ending.hash,
            results: ending.results.clone(),
            computed: self.ledger.computed(self.members.values().map(|record| record.computed)),
            recomputed: self.ledger.recomputed(),
            unknown: self.ledger.unknown(),
        };
        let ending = ending.clone();
        self.phase = Phase::Done;
        for record in self.members.values_mut() {
            record.place = Place::Finished(ending.clone());
        }
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            self.complete(worker);
        }
        self.tell(JobEvent::Done(summary));
    }

    pub(super) fn complete(&mut self, worker: WorkerId) {
        let Some(Ending { step, hash, .. }) = self.members.get(&worker).and_then(Record::ending).cloned() else {
            return;
        };
        self.send(worker, CoordinatorMessage::Complete { step, hash });
    }

    pub(super) fn fail(&mut self, reason: String) {
        if self.stage() == super::Stage::Done {
            return;
        }
        self.phase = Phase::Failed;
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            self.send(
                worker,
                CoordinatorMessage::Dismiss {
                    reason: format!("the job failed: {reason}"),
                },
            );
        }
        self.tell(JobEvent::Failed { reason });
    }
}
