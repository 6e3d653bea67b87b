//! One worker's word against that of many. Members are never more than one step apart, none is told to stop unless an operator wants it,
//! and what one model cannot compute no other can: so a worker that says otherwise and is alone with it is left out, and the others go on.
//! Two workers that say different things are not told apart here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::change::Plan;
use super::formation::Formation;
use super::{Loss, Membership, Phase, Record, Stop};
use crate::limits::{CONTRADICTED, HEARTBEAT};
use crate::messages::{Senseless, Standing};
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

/// So many others must say otherwise before a worker is not believed.
pub(super) const WITNESSES: usize = 2;

/// The model or the data failed at a worker, and another one tries.
#[derive(Debug, Clone)]
pub(super) struct ModelFailure {
    worker: WorkerId,
    /// Where the job was.
    step: Step,
    reason: String,
}

/// Since when a member says that it is further than any other can be, and what it said first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    since: Duration,
    step: Step,
}

impl Ahead {
    /// The coordinator was held up, and has not listened for so long.
    pub(super) fn later(&mut self, late: Duration, now: Duration) {
        self.since = (self.since + late).min(now);
    }
}

fn far_ahead(of: Step, found: Step) -> Loss {
    Loss::Senseless(Senseless {
        expected: format!("a step up to {}, as the others say", of.next()),
        found: format!("step {found}"),
    })
}

impl Membership {
    /// Leaves out a member that has said for long that it is further than it can be, while others of its generation say where that is. They
    /// must have said so after it did.
    pub(super) fn refute_progress(&mut self) {
        let (Some(formation), Phase::Running { .. }) = (&self.formation, &self.phase) else {
            return;
        };
        let now = self.now;
        let members: Vec<WorkerId> = formation.workers().collect();
        // A member that comes to the state first says where it stood before: nothing of where the others are.
        let began = if bites(Bug::LoadersDisbelieve) {
            Step::ZERO
        } else {
            formation.step
        };
        let said = |worker: &WorkerId| {
            let record = self.members.get(worker)?;
            Some((record.work.step().max(began), record.heard))
        };
        let words: Vec<(Step, Duration)> = members.iter().filter_map(said).collect();
        let mut steps: Vec<Step> = words.iter().map(|(step, _)| *step).collect();
        if steps.len() <= WITNESSES {
            return;
        }
        // Where all but one are, at least.
        let (_, common, _) = steps.select_nth_unstable(WITNESSES - 1);
        let common = *common;
        let behind = |than: Step| words.iter().filter(move |(step, _)| step.next() < than);
        let mut refuted = None;
        for worker in members {
            let Some(record) = self.members.get_mut(&worker) else {
                continue;
            };
            let step = record.work.step();
            if step <= common.next() {
                record.ahead = None;
                continue;
            }
            let ahead = *record.ahead.get_or_insert(Ahead { since: now, step });
            let since = |then: &Duration| then.saturating_sub(ahead.since);
            // Each has beaten since then.
            if since(&now) < CONTRADICTED + HEARTBEAT * 2 {
                continue;
            }
            record.ahead = None;
            let witness = |(_, heard): &&(Step, Duration)| since(heard) >= CONTRADICTED;
            if behind(ahead.step).filter(witness).count() >= WITNESSES {
                let others = behind(ahead.step).map(|(step, _)| *step).max();
                refuted = refuted.or(Some((worker, far_ahead(others.unwrap_or_default(), step))));
            }
        }
        if let Some((worker, cause)) = refuted {
            self.leave_out_a_liar(worker, cause);
        }
    }

    /// All have halted. Leaves out a member that says that it is further than it can be with those of its generation, or that it was told
    /// to stop though no operator wants that. True if one was: then the others are looked at anew.
    pub(super) fn refute_standings(&mut self) -> bool {
        let Some((worker, cause)) = self.too_far().or_else(|| self.stopped_unasked()) else {
            return false;
        };
        self.leave_out_a_liar(worker, cause);
        true
    }

    /// Members of the last generation that stand still.
    fn halted_members<'a>(&'a self, formation: &'a Formation) -> Vec<(WorkerId, &'a Record, &'a Standing)> {
        let members = formation.workers().filter_map(|worker| {
            let record = self.members.get(&worker)?;
            Some((worker, record, record.quiet()?))
        });
        members.collect()
    }

    /// No member can finish a step without all others of its generation, so that none is two steps beyond any other, or beyond the step
    /// that all had first to come to. Nor is any other worker, unless a generation has begun without the newest state.
    fn too_far(&self) -> Option<(WorkerId, Loss)> {
        let formation = self.formation.as_ref()?;
        let halted = self.halted_members(formation).into_iter();
        let told = halted.filter(|(worker, ..)| self.change.can_tell(*worker));
        let mut told: Vec<Step> = told.map(|(_, _, standing)| standing.step.max(formation.floor())).collect();
        told.sort_unstable();
        let is_bound = |worker: WorkerId| self.is_member(worker) || self.training.unbroken;
        self.members.iter().find_map(|(&worker, record)| {
            let step = record.quiet().filter(|_| is_bound(worker))?.step;
            let behind = &told[..told.partition_point(|other| other.next() < step)];
            // Where the many stand, not the few.
            let many = behind.len() >= WITNESSES && behind.len() * 2 > told.len();
            let most = behind.last().copied().filter(|_| many)?;
            Some((worker, far_ahead(most, step)))
        })
    }

    /// Which members of the last generation can tell how far the others can be, as all are told to halt. None where all can.
    pub(super) fn who_can_tell(&self, plan: Option<&Plan>) -> Option<BTreeSet<WorkerId>> {
        let formation = self.formation.as_ref()?;
        // A trailer that was ordered in an earlier life may have switched, and which members that has left out is not known.
        if formation.generation.incarnation() < self.generation.incarnation() {
            return Some(BTreeSet::new());
        }
        // Joiners may not have come to the boundary yet.
        if !self.change.switching.is_empty() {
            return Some(self.change.stayed.clone());
        }
        // Those that it leaves out may be far behind.
        let next = plan.filter(|plan| plan.is_ordered())?.next.as_ref()?;
        Some(next.workers().filter(|worker| self.is_member(*worker)).collect())
    }

    /// Whether a trailer may have said stop: an operator wants it, or wanted it in a life of which not all is known.
    pub(super) fn may_have_been_stopped(&self) -> bool {
        let known = self.formed.count() > 0 && self.formed.incarnation() == self.generation.incarnation();
        let told = self.formation.as_ref().is_some_and(|formation| formation.stop_at().is_some());
        self.stop != Stop::No || told || (self.earlier.resumed && !known)
    }

    /// Members that say that they were told to stop though no operator wants it, if they are few. Many may be right: then the closer has
    /// lied to them.
    fn stopped_unasked(&self) -> Option<(WorkerId, Loss)> {
        let formation = self.formation.as_ref().filter(|_| !self.may_have_been_stopped())?;
        let halted = self.halted_members(formation);
        let claims = |record: &Record, standing: &Standing| record.stopped_unasked || standing.stop_at.is_some();
        let mut claiming = halted.iter().filter(|(_, record, standing)| claims(record, standing));
        let few = claiming.clone().count() * 2 <= halted.len();
        let (worker, _, standing) = claiming.next().filter(|_| few)?;
        let cause = Loss::Senseless(Senseless {
            expected: format!(
                "training until {}, since no operator has asked the job to stop",
                self.config.steps
            ),
            found: format!("a stop at {}", standing.stop_at.unwrap_or(standing.step)),
        });
        Some((*worker, cause))
    }

    /// A member says that the job ends here. Whether it may: otherwise all halt, and say where they stand.
    pub(super) fn may_end_at(&self, step: Step) -> bool {
        step == self.config.steps || self.may_have_been_stopped()
    }

    /// Nothing that it has said of where the job stands counts any more.
    fn leave_out_a_liar(&mut self, worker: WorkerId, cause: Loss) {
        self.evict(worker, cause);
        let stands = |(worker, record): (&WorkerId, &Record)| {
            let still = record.quiet().map(|standing| standing.step);
            still.or(self.round.step_of(*worker)).unwrap_or(record.work.step())
        };
        let least = self
            .formation
            .as_ref()
            .map_or(self.training.restarted, |formation| formation.step);
        let newest = self.members.iter().map(stands).fold(least, Step::max);
        self.training.reached = self.training.reached.min(newest);
        self.training.next_report = self.training.next_report.min(newest);
        self.training.advanced = self.now;
    }

    /// A worker's model or data failed. Another one tries the same: if it fails as well the job does, since it would for all. So it does
    /// where the others cannot train without this one.
    pub(super) fn model_failed(&mut self, worker: WorkerId, reason: String) {
        let step = self.training.reached;
        let before = self.faults.model_failure.take();
        // Training may have gone on since then, or have begun again from an earlier state.
        let again = |before: &ModelFailure| before.step <= step.next() && step <= before.step.next();
        if let Some(before) = before.filter(|before| before.worker != worker && again(before)) {
            let ModelFailure {
                worker: first,
                reason: why,
                ..
            } = before;
            return self.fail(format!(
                "worker {worker}: {reason}; so did worker {first} at the same step: {why}"
            ));
        }
        let others = || {
            self.members
                .iter()
                .filter(|(other, record)| **other != worker && record.leaving().is_none())
        };
        let room = others()
            .map(|(_, record)| u64::from(record.capacity))
            .fold(0, u64::saturating_add);
        let enough = others().count() >= self.config.min.max(1) as usize && room >= u64::from(self.config.shards);
        if !enough {
            return self.fail(format!("worker {worker}: {reason}"));
        }
        let why = reason.clone();
        self.faults.model_failure = Some(ModelFailure {
            worker,
            step,
            reason: why,
        });
        self.evict(worker, Loss::Failed { reason });
    }
}
