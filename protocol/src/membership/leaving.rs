//! Leaves that were announced: the worker finishes its step and goes at a boundary; no work is lost.
//!
//! The others prepare a generation without it. The trailer that switches to that one halts it, as it has no seat there; it is let go
//! once all others have begun, so that a member that lacks the last sum still finds it here.

use std::time::Duration;

use super::change::Planned;
use super::roster::Place;
use super::{Membership, Phase, WorkerEvent};
use crate::limits::{LAST_SAVE_PATIENCE, LEAVE_GRACE, RESEND};
use crate::messages::{CoordinatorMessage, Standing};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step, WorkerId};

impl Membership {
    pub(super) fn leave_requested(&mut self, worker: WorkerId, reason: String) {
        let now = self.now;
        if !self.members.leave(worker, now) {
            return;
        }
        self.round.stir();
        self.tell(WorkerEvent::Leaving { worker, reason });
    }

    /// A worker that leaves has halted at the boundary that leaves it out. False if this is no such halt.
    pub(super) fn left(&mut self, worker: WorkerId, generation: Generation, standing: &Standing) -> bool {
        // A leaver that was asked to halt since then answers that: members that had begun without it may be gone.
        if self.is_halting() {
            return false;
        }
        let outside = (generation == self.formed && !self.is_member(worker)) || self.is_planned_without(worker, generation);
        let Some(record) = self.members.get_mut(&worker).filter(|record| outside && record.is_busy()) else {
            return false;
        };
        record.computed = record.computed.max(standing.tally.total);
        self.put(worker, Place::Left(generation, standing.clone()));
        self.reach(standing.step);
        self.begin_plan(generation, standing.step);
        true
    }

    /// Lets leavers go that no member needs any more.
    pub(super) fn release_leavers(&mut self) {
        if !self.members.are_some_leaving() {
            return;
        }
        // A member that has begun without it has the last sum; no other is missing.
        let begun = |generation: Generation| {
            let all = bites(Bug::ReleasedTooEarly)
                || generation < self.formed
                || (generation == self.formed && self.change.switching.is_empty());
            all && !self.is_halting()
        };
        let gathering = matches!(self.phase, Phase::Gathering { .. });
        let safe = gathering && self.state_is_safe_without_leavers();
        let over = |since: Duration| self.now.saturating_sub(since) >= LEAVE_GRACE;
        // After a restart a joiner may be the only one left that has a state. And a leaver that comes back with more than the members have
        // stays for a while: they may come to need it, or get as far themselves.
        let needless =
            |step: Step| (self.is_formed() && step <= self.newest_at_work().next()) || bites(Bug::LoneJoinerReleased);
        // A holder of what is being written stays until it is written, or given up.
        let gone = |since: Duration| over(since) && !self.checkpoints.is_saving();
        let free: Vec<(WorkerId, Step)> = self
            .members
            .leaving()
            .filter_map(|(worker, record)| {
                let since = record.leaving()?;
                let step = match record.place() {
                    // What a group has is its program's.
                    Place::Quiet(standing) if self.is_group() => Some(standing.step),
                    Place::Left(generation, standing) => begun(*generation).then_some(standing.step),
                    Place::Joining(_) if self.planned(worker) == Planned::No => {
                        let step = self.round.step_of(worker);
                        step.filter(|step| needless(*step) || over(since))
                    }
                    Place::Quiet(standing)
                        if gathering && (safe || self.checkpoints.is_saved(standing.step) || gone(since)) =>
                    {
                        Some(standing.step)
                    }
                    Place::Quiet(_) | Place::Joining(_) | Place::Called | Place::Ready | Place::Finished(_) => None,
                };
                Some((worker, step?))
            })
            .collect();
        for (worker, step) in free {
            self.release(worker, step);
        }
    }

    /// The newest state that a member of the generation is known to have.
    fn newest_at_work(&self) -> Step {
        let began = self.formation.as_ref().map_or(Step::ZERO, |formation| formation.step);
        let members = self.members.iter().filter(|(worker, _)| self.is_member(**worker));
        members.map(|(_, record)| record.work.step()).fold(began, Step::max)
    }

    /// Whether all workers that are there leave, and are let go as soon as their state is kept: none trains on until then.
    pub(super) fn all_leave_once_saved(&self, since: Duration) -> bool {
        let all = !self.members.is_empty() && self.members.leaving().count() == self.members.len();
        let waited = self.now.saturating_sub(self.checkpoints.awaits_hashing_since(since));
        let coming = self.checkpoints.is_wanted() && waited < LAST_SAVE_PATIENCE;
        all && self.checkpoints.can_save(&self.facts()) && (coming || self.checkpoints.is_saving())
    }

    fn is_halting(&self) -> bool {
        matches!(self.phase, Phase::Halting { .. })
    }

    /// Whether a member that stays has the newest state.
    fn state_is_safe_without_leavers(&self) -> bool {
        let newest = |leavers: bool| {
            let records = self.members.values().filter(|record| leavers || record.leaving().is_none());
            records
                .filter_map(|record| record.quiet())
                .map(|standing| (standing.step, standing.lineage.last))
                .max()
        };
        newest(false).is_some() && (newest(false) == newest(true) || bites(Bug::LeaverCounts))
    }

    fn release(&mut self, worker: WorkerId, step: Step) {
        self.send(worker, CoordinatorMessage::Released { step });
        self.remember_release(worker, step);
        if let Some(record) = self.remove(worker) {
            // A worker that has halted goes on with a gradient under way; its count is known once its agent has seen its end.
            let counting = record.quiet().is_some();
            if counting {
                self.miss(worker, self.now);
            }
            self.ledger.lost(worker, record.tally().filter(|_| !counting));
        }
        self.tell(WorkerEvent::Left { worker, step });
        self.lead(|round, facts| round.gone(worker, facts));
        self.manage(|checkpoints, facts| checkpoints.saver_gone(worker, facts));
    }

    /// A worker that was left out may have said so into a broken connection. Asked only when no member needs its links any more.
    pub(super) fn ask_leavers(&mut self) {
        let generation = self.formed;
        if !self.change.switching.is_empty() || !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        let late: Vec<WorkerId> = self
            .members
            .iter()
            .filter(|(worker, record)| {
                record.is_busy() && self.now.saturating_sub(record.asked) >= RESEND && !self.is_member(**worker)
            })
            .map(|(&worker, _)| worker)
            .collect();
        for worker in late {
            self.send(worker, CoordinatorMessage::Halt { generation });
        }
    }
}
