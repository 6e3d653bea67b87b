//! The end of a job: done only when every member reported the last step and its hash.

use super::formation::Formation;
use super::roster::{Ending, Place};
use super::{JobEvent, Membership, Phase, Record, Stop, Summary};
use crate::limits::LAST_SAVE_PATIENCE;
use crate::messages::CoordinatorMessage;
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

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
        let ending = ending.clone();
        if self.awaits_last_save(ending.step) {
            return;
        }
        // Where the job stopped before a step was whole, also those who have gone since had computed of it in vain.
        self.ledger.resume(ending.step);
        let in_vain: u64 = self
            .members
            .values()
            .filter_map(Record::ending)
            .map(|one| u64::from(one.in_vain))
            .sum();
        let summary = Summary {
            order: self.config.order,
            step: ending.step,
            hash: ending.hash,
            results: ending.results.clone(),
            computed: self.ledger.computed(self.members.values().map(|record| record.computed)),
            recomputed: self.ledger.recomputed() + in_vain,
            unknown: self.ledger.unknown(),
            saves: self.saved.counts,
        };
        self.phase = Phase::Done;
        for record in self.members.values_mut() {
            record.place = Place::Finished(ending.clone());
        }
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            self.complete(worker);
        }
        self.tell(JobEvent::Done(summary));
    }

    /// Whether the state at the end of the job is yet to be kept. Nobody is let go before it is: they hold it.
    fn awaits_last_save(&mut self, end: Step) -> bool {
        if self.config.saves.is_none() || self.saved.last.0 >= end || bites(Bug::LastNotAwaited) {
            return false;
        }
        let since = (*self.saved.awaited.get_or_insert(self.now)).max(self.saved.hashed);
        if self.saving.is_some()
            || (self.last_to_save().is_some() && !self.targets().is_empty())
            || self.now.saturating_sub(since) < LAST_SAVE_PATIENCE
        {
            return true;
        }
        let reason = "no snapshot of the last state came, or no checkpoint actor is there".to_owned();
        self.tell(JobEvent::NotSaved { step: end, reason });
        false
    }

    /// Whether the job ends with the state at `step`, as far as anybody has said.
    pub(super) fn ends_at(&self, step: Step) -> bool {
        let stops = self.formation.as_ref().and_then(Formation::stop_at);
        let ended = self
            .members
            .values()
            .filter_map(Record::ending)
            .any(|ending| ending.step == step);
        step >= self.config.steps || stops == Some(step) || ended || self.stop != Stop::No
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
