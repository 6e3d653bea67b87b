//! How workers are lost: seen to end, cut off, or left out.

use super::change::Planned;
use super::{Loss, Membership, Record, Stage, WorkerEvent};
use crate::messages::{CoordinatorMessage, Sensible};
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

impl Membership {
    pub(super) fn lost(&mut self, worker: WorkerId, cause: Loss) {
        let told = if let Loss::Exited { tally, .. } = &cause {
            *tally
        } else {
            None
        };
        // A count that cannot be is not known.
        let tally = told.filter(|tally| tally.check(self.bounds()).is_ok());
        self.lost_in_the_past(worker, cause.is_certain());
        let Some(record) = self.remove(worker) else {
            // Its end was noticed before, with less certainty; now its count is known as well.
            if let (Some(_), Some(tally)) = (self.absent.missed.remove(&worker), tally)
                && self.ledger.found(worker, tally)
            {
                self.training.reached = self.training.reached.max(tally.step);
            }
            self.lost_for_good(worker, &cause);
            return;
        };
        if self.stage() == Stage::Done {
            return;
        }
        if !cause.is_certain() {
            if record.leaving().is_some() {
                self.earlier.asked_before.insert(worker);
            }
            self.miss(worker, self.now);
        }
        self.ledger.lost(worker, tally);
        self.lost_for_good(worker, &cause);
        self.training.reached = self.training.reached.max(tally.map_or(Step::ZERO, |tally| tally.step));
        self.tell(WorkerEvent::Lost {
            worker,
            rank: record.rank,
            cause: cause.clone(),
            stage: self.stage(),
        });
        if self.is_member(worker) {
            self.remember_failure(worker, &record, &cause);
        }
        self.lead(|round, facts| round.gone(worker, facts));
        self.manage(|checkpoints, facts| checkpoints.saver_gone(worker, facts));
        let seated = || {
            self.members
                .iter()
                .filter(|(worker, one)| one.is_busy() && self.is_member(**worker))
                .map(|(_, one)| one)
        };
        let ended = |record: &Record| record.ending().map(|ending| ending.step);
        // The worker that was to tell the last steps' sums may have died with them; the others have kept them, and form once more.
        let told = |step: Step| self.training.next_report >= step;
        let all_ended = seated().count() > 0 && seated().all(|record| ended(record).is_some_and(told));
        // A joiner is missed only where it may have begun to take part; a leaver, while others may need the last sum.
        let takes_part = (record.quiet().is_none() && self.is_member(worker))
            || self.planned(worker) == Planned::Ordered
            || (!record.joins() && !self.change.switching.is_empty());
        self.unplan_with(worker);
        if self.is_formed() && takes_part && !all_ended && !bites(Bug::LossIgnored) {
            self.disturb();
        }
    }

    /// A worker that has certainly ended is not waited for: what it has not told by now it never will.
    fn lost_for_good(&mut self, worker: WorkerId, cause: &Loss) {
        if cause.is_certain() {
            self.ledger.forget(worker);
            self.earlier.asked_before.remove(&worker);
        }
    }

    pub(super) fn evict(&mut self, worker: WorkerId, cause: Loss) {
        let reason = format!("worker {worker} was left out: {cause}; it may join anew with a new id");
        self.send(worker, CoordinatorMessage::Dismiss { reason });
        self.lost(worker, cause);
    }
}
