//! How workers are lost: seen to end, cut off, silent, or out of reach of the others.

use std::time::Duration;

use super::planning::Planned;
use super::{JobEvent, Loss, Membership, Phase, Record, Stage};
use crate::limits::SILENCE;
use crate::messages::CoordinatorMessage;
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

impl Membership {
    pub(super) fn lost(&mut self, worker: WorkerId, cause: Loss) {
        let tally = match &cause {
            // A count that cannot be is not known.
            Loss::Exited { tally, .. } => tally.filter(|tally| tally.step <= self.config.steps),
            Loss::ConnectionLost { .. } | Loss::Silent { .. } | Loss::Unreachable | Loss::Failed { .. } => None,
        };
        self.lost_in_the_past(worker, cause.is_certain());
        let Some(record) = self.members.remove(&worker) else {
            // Its end was noticed before, with less certainty; now its count is known as well.
            if let (Some(_), Some(tally)) = (self.missed.remove(&worker), tally)
                && self.ledger.found(worker, tally)
            {
                self.reached = self.reached.max(tally.step);
            }
            return;
        };
        if self.stage() == Stage::Done {
            return;
        }
        if !cause.is_certain() {
            self.missed.insert(worker, self.now);
        }
        self.ledger.lost(worker, tally);
        self.reached = self.reached.max(tally.map_or(Step::ZERO, |tally| tally.step));
        self.tell(JobEvent::Lost {
            worker,
            rank: record.rank,
            cause,
            stage: self.stage(),
        });
        self.holder_gone(worker);
        let seated = || {
            self.members
                .iter()
                .filter(|(worker, one)| one.is_busy() && self.is_member(**worker))
                .map(|(_, one)| one)
        };
        let ended = |record: &Record| record.ending().map(|ending| ending.step);
        // Whoever was to tell the last steps' sums may have died with them; the others have kept them, and form once more.
        let told = |step: Step| self.next_report >= step;
        let all_ended = seated().count() > 0 && seated().all(|record| ended(record).is_some_and(told));
        // A joiner is missed only where it may have begun to take part; whoever has left, while others may need the last sum.
        let takes_part = (record.quiet().is_none() && self.is_member(worker))
            || self.planned(worker) == Planned::Ordered
            || (record.joining().is_none() && !self.switching.is_empty());
        self.unplan_with(worker);
        if self.is_formed() && takes_part && !all_ended && !bites(Bug::LossIgnored) {
            self.disturb();
        }
    }

    pub(super) fn evict(&mut self, worker: WorkerId, cause: Loss) {
        let reason = format!("worker {worker} was left out: {cause}; it may join anew with a new id");
        self.send(worker, CoordinatorMessage::Dismiss { reason });
        self.lost(worker, cause);
    }

    /// Leaves out who said nothing for too long. Silent heartbeats evict nobody while the generation's steps advance.
    pub(super) fn evict_silent(&mut self) {
        if self.stage() == Stage::Done {
            return;
        }
        let advanced = self.advanced_if_running();
        let silent: Vec<(WorkerId, Duration)> = self
            .members
            .iter()
            .filter(|(_, record)| self.now.saturating_sub(record.heard) >= SILENCE)
            .filter(|(worker, record)| {
                // Nobody waits for a joiner, nor for one that was left out, so that no progress speaks for it.
                let since = if record.joining().is_some() || self.lingers(**worker, record) {
                    record.heard
                } else {
                    record
                        .heard
                        .max(if bites(Bug::SilentEvicted) { Duration::ZERO } else { advanced })
                };
                self.now.saturating_sub(since) >= SILENCE
            })
            .map(|(&worker, record)| (worker, self.now.saturating_sub(record.heard)))
            .collect();
        for (worker, silence) in silent {
            self.evict(worker, Loss::Silent { silence });
        }
    }

    fn advanced_if_running(&self) -> Duration {
        match self.phase {
            Phase::Running { .. } => self.advanced,
            Phase::Gathering { .. } | Phase::Halting { .. } | Phase::Forming { .. } | Phase::Done | Phase::Failed => {
                Duration::ZERO
            }
        }
    }
}
