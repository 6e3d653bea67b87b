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
        let census = self.members.census();
        let all = census.finished == census.busy;
        let too_early = bites(Bug::DoneTooEarly) || bites(Bug::OneDoneEnds);
        if census.finished == 0 || !(all || too_early) {
            return;
        }
        // While the last checkpoint is awaited, each of them goes on saying that it lives.
        if !self.members.is_news() && !self.ticks.may_end {
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
        let Some((_, ending)) = endings.first().copied() else {
            return;
        };
        // A member that was left out has yet to tell its count.
        let counted = !self
            .members
            .iter()
            .any(|(worker, record)| record.is_busy() && !self.is_member(*worker));
        if (endings.len() < seated.len() || !counted) && !too_early {
            return;
        }
        if endings.iter().any(|(_, found)| !found.same_bits(ending)) {
            let reason = disagreement(&endings);
            return self.fail(reason);
        }
        let ending = ending.clone();
        if self.awaits_last_save(ending.step) {
            return;
        }
        self.end(ending);
    }

    /// The job is done.
    pub(super) fn end(&mut self, ending: Ending) {
        // Where the job stopped before a step was whole, also workers that have gone since had computed of it in vain.
        self.ledger.resume(ending.step);
        let in_vain: u64 = self
            .members
            .values()
            .filter_map(Record::ending)
            .map(|one| u64::from(one.in_vain))
            .sum();
        let summary = Summary {
            order: self.config.order,
            compression: self.config.compression,
            step: ending.step,
            hash: ending.hash,
            results: ending.results.clone(),
            computed: self.ledger.computed(self.members.values().map(|record| record.computed)),
            recomputed: self.ledger.recomputed() + in_vain,
            unknown: self.ledger.unknown(),
            saves: self.checkpoints.counts(),
        };
        self.phase = Phase::Done;
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            self.put(worker, Place::Finished(ending.clone()));
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

/// The member that is alone with what it ends with, and what the others have. All its gradients are in their state as well, so that none is
/// right by being of the many.
fn disagreement(endings: &[(&WorkerId, &Ending)]) -> String {
    let alike = |one: &Ending| endings.iter().filter(|(_, other)| other.same_bits(one)).count();
    let odd = endings.iter().min_by_key(|(_, ending)| alike(ending));
    let another = |one: &Ending| odd.is_none_or(|(_, odd)| !odd.same_bits(one));
    let many = endings
        .iter()
        .filter(|(_, ending)| another(ending))
        .max_by_key(|(_, ending)| alike(ending));
    let say = |who: Option<&(&WorkerId, &Ending)>| {
        who.map_or_else(String::new, |(worker, ending)| {
            let Ending { step, hash, .. } = ending;
            format!(
                "worker {worker} has {hash} at {step}, as {} of {} do",
                alike(ending),
                endings.len()
            )
        })
    };
    let result = odd.zip(many).and_then(|((_, one), (_, other))| other_result(one, other));
    let result = result.map_or_else(String::new, |result| format!("; their first result that differs: {result}"));
    format!(
        "the final states or their results differ (BITS-1): {}, {}{result}; a machine computes wrongly or the model is not deterministic",
        say(odd),
        say(many)
    )
}

/// The first result that differs, as each has it.
fn other_result(one: &Ending, other: &Ending) -> Option<String> {
    let at = |of: &Ending, place: usize| of.results.get(place).cloned();
    let differs = |place: &usize| {
        let bits = |of| at(of, *place).map(|(name, value)| (name, value.to_bits()));
        bits(one) != bits(other)
    };
    let place = (0..one.results.len().max(other.results.len())).find(differs)?;
    let told = |of| at(of, place).map_or_else(|| "none".to_owned(), |(name, value)| format!("{name} {value:?}"));
    Some(format!("{} and {}", told(one), told(other)))
}
