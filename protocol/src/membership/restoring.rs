//! From which checkpoint a job starts whose state nobody has: the newest that is complete and its own, or an older one if that cannot be
//! loaded. Never from the beginning where there is one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{JobEvent, Membership, Need};
use crate::checkpoint::{Head, ManifestKey};
use crate::limits::{DEPOTS_PATIENCE, RESTORE_ATTEMPTS};
use crate::messages::{Restore, Told};
use crate::words::{Generation, Step, WorkerId};

/// What is known of attempts to load checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Restoring {
    /// The checkpoint that the present generation starts from, if it does.
    source: Option<(Generation, ManifestKey)>,
    /// Those that could not be loaded: how often, and why.
    failures: BTreeMap<ManifestKey, (u32, String)>,
    /// The step of the newest checkpoint that an earlier life of the coordinator has committed.
    pub(super) recorded: Step,
}

impl Membership {
    /// Why a checkpoint cannot be used; none if it can.
    fn unusable(&self, key: ManifestKey, head: &Head) -> Option<String> {
        if head.task != self.config.task {
            return Some("it is of another job".to_owned());
        }
        if head.build != self.config.build {
            return Some("it was made by another build of the program, or on another kind of machine".to_owned());
        }
        if key.step > self.config.steps {
            return Some(format!("it is beyond the end of this job, {}", self.config.steps));
        }
        if let Some((_, reason)) = self.restoring.failures.get(&key).filter(|(times, _)| *times >= RESTORE_ATTEMPTS) {
            return Some(reason.clone());
        }
        match self.lacks_of(key, head) {
            0 => None,
            lacks => Some(format!(
                "{lacks} of the {} checkpoint actors that have its pieces are missing, or have lost some",
                head.depots.len()
            )),
        }
    }

    /// The newest checkpoint that can be used.
    fn newest_checkpoint(&self) -> Option<Head> {
        let known = self.known();
        let usable = known.into_iter().rev().find(|(key, head)| self.unusable(*key, head).is_none());
        usable.map(|(_, head)| head)
    }

    pub(super) fn newest_checkpoint_step(&self) -> Step {
        match self.config.saves {
            Some(_) => self.newest_checkpoint().map_or(Step::ZERO, |head| head.key.step),
            None => Step::ZERO,
        }
    }

    /// Whether there may be a checkpoint that is newer than the state at `newest`, which is the newest that anybody has.
    fn may_resume(&self, newest: Step) -> bool {
        let lost = newest < self.behind_which_state_is_lost();
        self.config.saves.is_some() && (lost || (self.formed.count() == 0 && newest == Step::ZERO))
    }

    /// What has to be waited for before it is known from where to resume.
    pub(super) fn lacks_checkpoints(&self, newest: Step, since: Duration) -> Option<Need> {
        if !self.may_resume(newest) || self.is_known_to_have_none() {
            return None;
        }
        let found = self.newest_checkpoint().map_or(Step::ZERO, |head| head.key.step);
        let some = self.depots.values().any(|depot| depot.told == Told::All);
        let all = self.depots.values().all(|depot| depot.told == Told::All);
        let known = found.max(newest) >= self.restoring.recorded.max(self.saved.last.0);
        // One that is not complete may become so when more depots come; who keeps them all tells at once.
        let unclear = !self.known().keys().next_back().is_none_or(|newest| newest.step <= found) || !known;
        let waited = self.now.saturating_sub(since) >= DEPOTS_PATIENCE;
        (!some || !all || (unclear && !waited)).then_some(Need::Depots)
    }

    /// In this life no checkpoint was committed, and training began before: there is nothing to wait for.
    fn is_known_to_have_none(&self) -> bool {
        self.formed.count() > 0 && self.saved.last.0 == Step::ZERO && self.known().is_empty()
    }

    /// The checkpoint that the next generation starts from, if nobody has a state that is as new.
    ///
    /// # Errors
    /// Why the job must not go on: there are checkpoints, but none that can be used.
    pub(super) fn resumes_from(&mut self, newest: Step) -> Result<Option<Head>, String> {
        if !self.may_resume(newest) {
            return Ok(None);
        }
        let known = self.known();
        let Some(head) = self.newest_checkpoint() else {
            let Some((key, head)) = known.iter().next_back() else {
                return Ok(None);
            };
            let why = self.unusable(*key, head).unwrap_or_default();
            return Err(format!(
                "none of {} checkpoints can be resumed from: the newest is at {} and {why}; make what is missing available, or \
                 start with an empty directory to train from the beginning",
                known.len(),
                key.step
            ));
        };
        if head.key.step <= newest {
            return Ok(None);
        }
        let newer = known.range(head.key..).skip(1);
        let passed_over = newer.filter_map(|(&key, head)| Some((key, self.unusable(key, head)?))).collect();
        self.tell(JobEvent::Resumes { key: head.key, passed_over });
        Ok(Some(head))
    }

    /// The next generation starts from this checkpoint.
    pub(super) fn begin_from(&mut self, head: &Head) {
        let step = head.key.step;
        if self.reached > step {
            self.tell(JobEvent::StateLost {
                reached: self.reached,
                from: step,
            });
        }
        let kept = u64::from(self.config.shards).saturating_mul(step.get());
        self.ledger.restart(kept);
        self.ledger.inherit(kept);
        (self.restarted, self.next_report, self.reached) = (step, step, step);
        self.restoring.source = Some((self.generation, head.key));
        self.saved.last = (step, self.now);
        self.end_intake();
        self.give_up_saving("the state that it was taken of is lost");
    }

    /// What the members of that generation are told.
    pub(super) fn restore_of(&self, head: &Head) -> Restore {
        Restore {
            key: head.key,
            depots: self.addresses(),
            members: Vec::new(),
        }
    }

    /// A member could not load the checkpoint.
    pub(super) fn not_restored(&mut self, worker: WorkerId, generation: Generation, reason: String) {
        let Some((_, key)) = self.restoring.source.filter(|(source, _)| *source == generation) else {
            return;
        };
        if generation != self.formed || !self.is_formed() || !self.is_member(worker) {
            return;
        }
        let failure = self.restoring.failures.entry(key).or_insert_with(|| (0, String::new()));
        *failure = (failure.0 + 1, reason.clone());
        self.tell(JobEvent::NotRestored { key, worker, reason });
        self.disturb();
    }
}
