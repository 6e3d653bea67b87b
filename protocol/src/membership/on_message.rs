//! What workers say, and what follows from it.

use super::formation::Formation;
use super::ledger::Halted;
use super::roster::{Ending, Place};
use super::{GenerationEvent, JobEvent, Loss, Membership, Phase, Resumed};
use crate::checkpoint_manager::{Described, WrittenPart};
use crate::messages::{Sensible, Standing, StepReport, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step, WorkerId};

impl Membership {
    pub(super) fn said(&mut self, worker: WorkerId, message: WorkerMessage) {
        if !self.knows(worker) {
            return;
        }
        if let Err(senseless) = message.check(self.bounds()) {
            return self.evict(worker, Loss::Senseless(senseless));
        }
        self.is_heard(worker, &message);
        self.on_message(worker, message);
    }

    fn on_message(&mut self, worker: WorkerId, message: WorkerMessage) {
        let Some(record) = self.members.get_mut(&worker) else { return };
        match message {
            WorkerMessage::Halted { generation, standing } => self.halted(worker, generation, standing),
            WorkerMessage::Ready { generation } => {
                let called = record.is_called();
                self.is_ready(worker, generation, called);
            }
            WorkerMessage::Progress {
                generation,
                step,
                tally,
                moved,
                pace,
                reports,
            } => {
                record.computed = record.computed.max(tally.total);
                record.work.told(step, tally, moved, self.now);
                if let Some(figure) = pace {
                    self.paced(worker, figure);
                }
                self.switched_if_so(worker, generation, step);
                if !self.round.stands_at(worker, (step, moved), self.now) {
                    self.progressed(generation, step, reports);
                }
            }
            WorkerMessage::Finished {
                generation,
                step,
                hash,
                results,
                tally,
            } => {
                record.computed = record.computed.max(tally.total);
                // It has no more bytes to move.
                record.work.told(step, tally, 0, self.now);
                self.switched_if_so(worker, generation, step);
                self.finished(worker, generation, Ending::of(step, hash, results, tally));
            }
            // A worker that has finished needs its links no more.
            WorkerMessage::LinkBroken { .. } if record.ending().is_some() => {}
            WorkerMessage::LinkBroken { generation, peer } => self.link_broken(worker, generation, peer),
            WorkerMessage::GivenUp { generation } => self.given_up(worker, generation),
            WorkerMessage::Switched { generation, step } => self.says_switched(worker, generation, step),
            WorkerMessage::RoomMade { generation } => self.room_made(worker, generation),
            WorkerMessage::Hashing { snapshot } => self.hashing(worker, snapshot),
            WorkerMessage::Snapshotted { snapshot, shares } => self.snapshotted(worker, snapshot, shares),
            message @ WorkerMessage::Saved { .. } => self.part_saved(worker, message),
            WorkerMessage::Saving { snapshot, attempt } => {
                self.manage(|it, facts| it.still_saving(worker, snapshot, attempt, facts))
            }
            WorkerMessage::NotSaved {
                snapshot,
                attempt,
                depot,
                reason,
            } => self.manage(|it, facts| it.not_saved(worker, snapshot, attempt, depot, reason, facts)),
            WorkerMessage::NotRestored { generation, reason } => self.not_restored(worker, generation, reason),
            WorkerMessage::Dropped { snapshot } => self.lead(|round, facts| round.dropped(worker, snapshot, facts)),
            WorkerMessage::CaughtUp { snapshot, step } => self.lead(|round, _| round.caught_up(worker, snapshot, step)),
            WorkerMessage::Copying { snapshot } => self.round.copy_answered(worker, snapshot),
            WorkerMessage::CopyFailed { snapshot, reason } => self.copy_failed(worker, snapshot, reason),
            WorkerMessage::Leave { reason } => self.leave_requested(worker, reason),
            WorkerMessage::Links(report) => self.links_told(worker, report),
            // Neither certificates nor what operators alone look at are this machine's business.
            WorkerMessage::Renew { .. } | WorkerMessage::DeviceMemory(_) => {}
            WorkerMessage::Failed { reason } if record.joins() => self.joiner_failed(worker, reason),
            WorkerMessage::Failed { reason } => self.model_failed(worker, reason),
        }
    }

    fn is_ready(&mut self, worker: WorkerId, generation: Generation, called: bool) {
        let forming = matches!(self.phase, Phase::Forming { .. });
        if forming && generation == self.formed && called {
            self.put(worker, Place::Ready);
        } else {
            self.plan_ready(worker, generation);
        }
    }

    fn is_heard(&mut self, worker: WorkerId, message: &WorkerMessage) {
        let Some(record) = self.members.get_mut(&worker) else { return };
        record.pulse.beat(self.now.saturating_sub(record.heard));
        record.heard = self.now;
        self.mind_the_past(worker, message);
    }

    fn part_saved(&mut self, worker: WorkerId, message: WorkerMessage) {
        let WorkerMessage::Saved {
            snapshot,
            attempt,
            share,
            bytes,
            description,
            state,
            start,
            pieces,
            is_last,
        } = message
        else {
            return;
        };
        let part = WrittenPart {
            attempt,
            share,
            bytes,
            described: Described { description, state },
            start,
            pieces,
            is_last,
        };
        self.manage(|checkpoints, facts| checkpoints.share_saved(worker, snapshot, part, facts));
    }

    fn halted(&mut self, worker: WorkerId, generation: Generation, standing: Standing) {
        if self.left(worker, generation, &standing) {
            return;
        }
        let fits = |formation: &Formation| formation.fits(worker, &standing);
        if generation == self.formed
            && self.is_formed()
            && self.is_member(worker)
            && !self.formation.as_ref().is_some_and(fits)
        {
            // The order was made for where it stood before. What it has had since may have been counted as lost.
            self.ledger.rescued();
            return self.disturb();
        }
        let other = generation != self.generation && !bites(Bug::StaleHalted);
        if other || self.formed == self.generation {
            // It no longer follows; what it has copied stays with it.
            return self.lead(|round, facts| round.order_copy(worker, facts));
        }
        self.paused();
        self.ledger.returned(worker, &standing, Halted::Yes, self.training.reached);
        self.reach(standing.step);
        if let Some(record) = self.members.get_mut(&worker) {
            record.computed = record.computed.max(standing.tally.total);
            if !bites(Bug::HaltedForgotten) {
                self.put(worker, Place::Quiet(standing));
            }
        }
    }

    fn finished(&mut self, worker: WorkerId, generation: Generation, ending: Ending) {
        // A generation that is planned changes nothing until it begins, nor does one who is in none.
        if generation != self.formed || !self.is_formed() || !self.is_member(worker) {
            return;
        }
        let step = ending.step;
        if !self.may_end_at(step) {
            if let Some(record) = self.members.get_mut(&worker) {
                record.stopped_unasked = true;
            }
            return self.disturb();
        }
        self.put(worker, Place::Finished(ending));
        self.reach(step);
    }

    fn progressed(&mut self, generation: Generation, step: Step, reports: Vec<StepReport>) {
        self.reach(step);
        let news: Vec<StepReport> = reports
            .into_iter()
            .filter(|report| report.step >= self.training.next_report)
            .collect();
        if let Some(last) = news.last() {
            self.training.next_report = last.step.next();
            self.tell(JobEvent::Steps(news));
        }
        let first = self.formation.as_ref().is_some_and(|formation| step > formation.step);
        let running = matches!(
            self.phase,
            Phase::Forming { .. }
                | Phase::Running {
                    resumed: Resumed::NotYet
                }
        );
        if first && running && generation == self.formed {
            self.forget_breaks();
            self.run(Resumed::Yes);
            if let Some(since) = self.training.disturbed.take() {
                self.tell(GenerationEvent::Resumed {
                    generation,
                    step,
                    after: self.now.saturating_sub(since),
                });
            }
        }
    }

    pub(super) fn reach(&mut self, step: Step) {
        if step > self.training.reached {
            self.training.reached = step;
            self.training.advanced = self.now;
        }
    }
}
