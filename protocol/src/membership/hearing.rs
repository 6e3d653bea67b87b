//! What workers say, and what follows from it.

use super::formation::Formation;
use super::ledger::Halted;
use super::planning::Purpose;
use super::roster::{Ending, Place};
use super::saves::WrittenPart;
use super::{JobEvent, Loss, Membership, Phase, Resumed};
use crate::limits::MAX_LINK_FAILURES;
use crate::messages::{Standing, StepReport, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step, WorkerId};

impl Membership {
    pub(super) fn said(&mut self, worker: WorkerId, message: WorkerMessage) {
        let Some(record) = self.members.get_mut(&worker) else { return };
        // A worker that says only what cannot be counts as silent.
        if newest_step(&message).is_some_and(|step| step > self.config.steps) {
            return;
        }
        record.pulse.beat(self.now.saturating_sub(record.heard));
        record.heard = self.now;
        self.mind_the_past(worker, &message);
        let Some(record) = self.members.get_mut(&worker) else { return };
        match message {
            WorkerMessage::Halted { generation, standing } => self.halted(worker, generation, standing),
            WorkerMessage::Ready { generation } => {
                let forming = matches!(self.phase, Phase::Forming { .. });
                if forming && generation == self.formed && record.is_called() {
                    record.place = Place::Ready;
                } else {
                    self.plan_ready(worker, generation);
                }
            }
            WorkerMessage::Progress {
                generation,
                step,
                tally,
                pace,
                reports,
            } => {
                record.computed = record.computed.max(tally.total);
                record.work.told(step, tally, self.now);
                if let Some(figure) = pace {
                    self.paced(worker, figure);
                }
                self.switched_if_so(worker, generation, step);
                if !self.joiner_at(worker, step) {
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
                self.switched_if_so(worker, generation, step);
                self.finished(worker, generation, Ending::of(step, hash, results, tally));
            }
            // Whoever has finished needs its links no more.
            WorkerMessage::LinkBroken { .. } if record.ending().is_some() => {}
            WorkerMessage::LinkBroken { generation, peer } => self.link_broken(worker, generation, peer),
            WorkerMessage::Switched { generation, step } => self.switched(worker, generation, step),
            WorkerMessage::RoomMade { generation } => self.room_made(worker, generation),
            WorkerMessage::Hashing { snapshot } => self.still_hashing(snapshot),
            WorkerMessage::Snapshotted { snapshot, shares } => self.snapshotted(worker, snapshot, shares),
            message @ WorkerMessage::Saved { .. } => self.part_saved(worker, message),
            WorkerMessage::Saving { snapshot, attempt } => self.still_saving(snapshot, attempt),
            WorkerMessage::NotSaved {
                snapshot,
                attempt,
                depot,
                reason,
            } => self.not_saved(worker, snapshot, attempt, depot, reason),
            WorkerMessage::NotRestored { generation, reason } => self.not_restored(worker, generation, reason),
            WorkerMessage::Dropped { snapshot } => self.dropped(worker, snapshot),
            WorkerMessage::CaughtUp { snapshot, step } => self.caught_up(worker, snapshot, step),
            WorkerMessage::CopyFailed { snapshot, reason } => self.copy_failed(worker, snapshot, reason),
            WorkerMessage::Leave { reason } => self.leave_requested(worker, reason),
            // Certificates are not this machine's business.
            WorkerMessage::Renew { .. } => {}
            WorkerMessage::Failed { reason } if record.joining().is_some() => self.joiner_failed(worker, reason),
            WorkerMessage::Failed { reason } => self.fail(format!("worker {worker}: {reason}")),
        }
    }

    fn part_saved(&mut self, worker: WorkerId, message: WorkerMessage) {
        let WorkerMessage::Saved {
            snapshot,
            attempt,
            share,
            bytes,
            description,
            start,
            pieces,
            told,
        } = message
        else {
            return;
        };
        let part = WrittenPart {
            attempt,
            share,
            bytes,
            description,
            start,
            pieces,
            told,
        };
        self.share_saved(worker, snapshot, part);
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
            return self.send_copy(worker);
        }
        self.paused();
        self.ledger.returned(worker, &standing, Halted::Yes, self.reached);
        self.reach(standing.step);
        if let Some(record) = self.members.get_mut(&worker) {
            record.computed = record.computed.max(standing.tally.total);
            if !bites(Bug::HaltedForgotten) {
                record.place = Place::Quiet(standing);
            }
        }
    }

    fn finished(&mut self, worker: WorkerId, generation: Generation, ending: Ending) {
        // A generation that is planned changes nothing until it begins.
        if generation != self.formed || !self.is_formed() {
            return;
        }
        let step = ending.step;
        if let Some(record) = self.members.get_mut(&worker) {
            record.place = Place::Finished(ending);
        }
        self.reach(step);
    }

    fn progressed(&mut self, generation: Generation, step: Step, reports: Vec<StepReport>) {
        self.reach(step);
        let news: Vec<StepReport> = reports.into_iter().filter(|report| report.step >= self.next_report).collect();
        if let Some(last) = news.last() {
            self.next_report = last.step.next();
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
            self.forget_accusations();
            self.run(Resumed::Yes);
            if let Some(since) = self.disturbed.take() {
                self.tell(JobEvent::Resumed {
                    generation,
                    step,
                    after: self.now.saturating_sub(since),
                });
            }
        }
    }

    pub(super) fn reach(&mut self, step: Step) {
        if step > self.reached {
            self.reached = step;
            self.advanced = self.now;
        }
    }

    /// Whoever makes progress in the planned generation, or finishes in it, has switched to it, or has halted for it if it is a
    /// pause: its word of that may be lost.
    fn switched_if_so(&mut self, worker: WorkerId, generation: Generation, step: Step) {
        let planned = self.plan.as_ref().is_some_and(|plan| plan.generation == generation);
        if planned {
            self.paused();
        }
        if planned || self.switching.contains(&worker) {
            self.switched(worker, generation, step);
        }
    }

    fn link_broken(&mut self, worker: WorkerId, generation: Generation, peer: WorkerId) {
        if let Some(purpose) = self.unplan(generation) {
            // Nobody has begun it, so nobody needs to halt. Where only shards were to move, all stay as they are.
            if purpose == Purpose::Balance {
                return;
            }
            // Between a member and a joiner it is the joiner that is out of reach.
            let joins = |one: &WorkerId| self.members.get(one).is_some_and(|record| record.joining().is_some());
            let blamed = [peer, worker].into_iter().find(joins).unwrap_or(peer);
            return self.accuse(blamed);
        }
        // Of the generation before, whose last sum this worker still waits for.
        let late = generation < self.formed && self.switching.contains(&worker);
        let current = generation == self.formed || self.plan.as_ref().is_some_and(|plan| plan.generation == generation);
        if !(late || current) || !self.is_formed() {
            return;
        }
        self.disturb();
        self.accuse(peer);
    }

    fn accuse(&mut self, peer: WorkerId) {
        if let Some(record) = self.members.get_mut(&peer) {
            record.accusations += 1;
            if record.accusations >= MAX_LINK_FAILURES && self.members.len() > 1 {
                self.evict(peer, Loss::Unreachable);
            }
        }
    }

    fn forget_accusations(&mut self) {
        self.members.values_mut().for_each(|record| record.accusations = 0);
    }
}

/// The newest step that a message names.
fn newest_step(message: &WorkerMessage) -> Option<Step> {
    match message {
        WorkerMessage::Halted { standing, .. } => Some(standing.step.max(standing.tally.step)),
        WorkerMessage::Progress {
            step, tally, reports, ..
        } => {
            let reported = reports.iter().map(|report| report.step).max();
            Some(tally.step.max(*step)).max(reported)
        }
        WorkerMessage::Finished { step, tally, .. } => Some(tally.step.max(*step)),
        WorkerMessage::Switched { step, .. } | WorkerMessage::CaughtUp { step, .. } => Some(*step),
        WorkerMessage::Hashing { snapshot }
        | WorkerMessage::Snapshotted { snapshot, .. }
        | WorkerMessage::Saved { snapshot, .. }
        | WorkerMessage::Saving { snapshot, .. }
        | WorkerMessage::NotSaved { snapshot, .. } => Some(snapshot.step),
        WorkerMessage::Ready { .. }
        | WorkerMessage::RoomMade { .. }
        | WorkerMessage::LinkBroken { .. }
        | WorkerMessage::Dropped { .. }
        | WorkerMessage::CopyFailed { .. }
        | WorkerMessage::NotRestored { .. }
        | WorkerMessage::Leave { .. }
        | WorkerMessage::Renew { .. }
        | WorkerMessage::Failed { .. } => None,
    }
}
