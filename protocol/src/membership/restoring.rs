//! From which checkpoint a job starts whose state nobody has: the newest that is complete and its own, or an older one if that cannot be
//! loaded. Never from the beginning where there is one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{JobEvent, Membership, Need};
use crate::checkpoint::{Head, ManifestKey};
use crate::limits::{DEPOTS_PATIENCE, RESTORE_ATTEMPTS};
use crate::messages::{Restore, Told};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step, WorkerId};

/// What is known of attempts to load checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Restoring {
    /// The checkpoint that the present generation starts from, if it does.
    source: Option<(Generation, ManifestKey)>,
    /// Those that could not be loaded.
    failures: BTreeMap<ManifestKey, Failure>,
    /// The step of the newest checkpoint that an earlier life of the coordinator has committed, or that was given up with the state.
    pub(super) recorded: Step,
    /// Whether this life has looked at all depots before it formed its first generation.
    looked: bool,
}

/// A checkpoint that could not be loaded.
#[derive(Debug, Clone)]
struct Failure {
    times: u32,
    /// The last time, and why.
    at: Duration,
    reason: String,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone)]
enum Unfit {
    /// It never can.
    Never(String),
    /// It could not be loaded just now.
    Yet(String),
    /// More depots lack something of it than may. What they lack need not be the same, which only who reads it finds out.
    Perhaps(String),
}

impl Unfit {
    fn reason(self) -> String {
        match self {
            Self::Never(reason) | Self::Yet(reason) | Self::Perhaps(reason) => reason,
        }
    }
}

impl Membership {
    /// Why a checkpoint cannot be used; none if it can.
    fn unfit(&self, key: ManifestKey, head: &Head) -> Option<Unfit> {
        let foreign = head.task != self.config.task && !bites(Bug::ForeignCheckpoint);
        if foreign {
            return Some(Unfit::Never("it is of another job".to_owned()));
        }
        if head.build != self.config.build && !bites(Bug::ForeignCheckpoint) {
            let reason = "it was made by another build of the program, or on another kind of machine";
            return Some(Unfit::Never(reason.to_owned()));
        }
        if key.step > self.config.steps {
            let reason = format!("it is beyond the end of this job, {}", self.config.steps);
            return Some(Unfit::Never(reason));
        }
        // After a while it is tried once more: what was out of reach may be back.
        let failed = self.restoring.failures.get(&key);
        let lately = |failure: &&Failure| self.now.saturating_sub(failure.at) < DEPOTS_PATIENCE;
        if let Some(failure) = failed.filter(|failure| failure.times >= RESTORE_ATTEMPTS).filter(lately) {
            return Some(Unfit::Yet(failure.reason.clone()));
        }
        match self.lacks_of(key, head) {
            0 => None,
            lacks => Some(Unfit::Perhaps(format!(
                "{lacks} of the {} checkpoint actors that have its pieces are missing, or have lost some",
                head.depots.len()
            ))),
        }
    }

    /// The newest checkpoint that can be used.
    fn newest_checkpoint(&self) -> Option<Head> {
        let known = self.known();
        let fit = |(key, head): &(ManifestKey, Head)| self.unfit(*key, head).is_none();
        let mut usable = known.into_iter().filter(fit).map(|(_, head)| head);
        if bites(Bug::OlderChosen) {
            usable.next()
        } else {
            usable.next_back()
        }
    }

    /// The newest checkpoint that nobody knows to be complete, but which may be.
    fn last_resort(&self) -> Option<Head> {
        let known = self.known();
        let perhaps = |(key, head): &(&ManifestKey, &Head)| matches!(self.unfit(**key, head), Some(Unfit::Perhaps(_)));
        known.iter().rfind(perhaps).map(|(_, head)| head.clone())
    }

    /// The step of the newest checkpoint that there is, or was, as far as is known: it may come back.
    fn newest_to_hope_for(&self) -> Step {
        let known = self.known();
        let hoped = |(key, head): &(&ManifestKey, &Head)| !matches!(self.unfit(**key, head), Some(Unfit::Never(_)));
        let newest = known.iter().rfind(hoped).map_or(Step::ZERO, |(key, _)| key.step);
        newest.max(self.restoring.recorded).max(self.saved.last.0)
    }

    /// Whether nobody has the state of the job, of which `newest` is the newest that anybody has; or nobody has begun.
    fn lacks_state(&self, newest: Step) -> bool {
        let lost = newest < self.behind_which_state_is_lost();
        lost || (self.formed.count() == 0 && newest == Step::ZERO)
    }

    /// What has to be waited for before it is known from where to resume.
    pub(super) fn lacks_checkpoints(&self, newest: Step, since: Duration) -> Option<Need> {
        if self.config.saves.is_none() || !self.lacks_state(newest) {
            return None;
        }
        // All its pieces are durable, and soon the manifest is.
        if self.is_committing_beyond(newest) {
            return Some(Need::Depots);
        }
        if self.is_known_to_have_none() {
            return None;
        }
        let found = self.newest_checkpoint().map_or(Step::ZERO, |head| head.key.step);
        let some = self.depots.values().any(|depot| depot.told == Told::All);
        let all = self.depots.values().all(|depot| depot.told == Told::All);
        if !some || !all {
            return Some(Need::Depots);
        }
        let best = found.max(newest);
        if best >= self.newest_to_hope_for() {
            return None;
        }
        // Going on from an older one costs some steps. Beginning anew costs all: that is not done while there is something to hope for.
        let waited = self.now.saturating_sub(since) >= DEPOTS_PATIENCE;
        let nothing = best == Step::ZERO && self.last_resort().is_none();
        (!waited || nothing).then_some(Need::Depots)
    }

    /// This life has looked at the depots when training began, and no checkpoint was committed since: there is nothing to wait for.
    fn is_known_to_have_none(&self) -> bool {
        let none = self.newest_to_hope_for() == Step::ZERO && self.known().is_empty();
        self.formed.count() > 0 && self.restoring.looked && none
    }

    /// The checkpoint that the next generation starts from, if nobody has a state that is as new.
    ///
    /// # Errors
    /// Why the job must not go on: there are checkpoints, but none that can ever be used.
    pub(super) fn resumes_from(&mut self, newest: Step) -> Result<Option<Head>, String> {
        if self.config.saves.is_none() || bites(Bug::FromTheBeginning) {
            return Ok(None);
        }
        let lacks_state = self.lacks_state(newest);
        self.restoring.looked |= self.formed.count() == 0 && lacks_state;
        // A coordinator that has forgotten how far the job was may meet one who is far behind.
        if !lacks_state && self.formed.count() > 0 {
            return Ok(None);
        }
        let known = self.known();
        let begins = lacks_state && newest == Step::ZERO;
        let found = self.newest_checkpoint();
        let Some(head) = found.or_else(|| self.last_resort().filter(|_| begins)) else {
            let Some((key, head)) = known.iter().next_back().filter(|_| begins) else {
                return Ok(None);
            };
            let why = self.unfit(*key, head).map(Unfit::reason).unwrap_or_default();
            return Err(format!(
                "none of {} checkpoints can be resumed from: the newest is at {} and {why}; make what is missing available, or \
                 start with an empty directory to train from the beginning",
                known.len(),
                key.step
            ));
        };
        // One step more than anybody has is computed again sooner than it is loaded.
        let least = if lacks_state { newest } else { newest.next() };
        if head.key.step <= least {
            return Ok(None);
        }
        let newer = known.range(head.key..).skip(1);
        let passed_over = newer
            .filter_map(|(&key, head)| Some((key, self.unfit(key, head)?.reason())))
            .collect();
        self.tell(JobEvent::Resumes {
            key: head.key,
            passed_over,
        });
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
        // They read from all depots.
        self.name_to_depots();
    }

    /// The state is lost, and training begins again at `from` without a checkpoint: what is saved from now on is saved anew.
    pub(super) fn begin_without(&mut self, from: Step) {
        self.restoring.recorded = self.restoring.recorded.max(self.saved.last.0);
        self.saved.last = (from.min(self.saved.last.0), self.now);
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
        let times = self.restoring.failures.get(&key).map_or(0, |failure| failure.times) + 1;
        let (at, why) = (self.now, reason.clone());
        self.restoring.failures.insert(key, Failure { times, at, reason: why });
        self.tell(JobEvent::NotRestored { key, worker, reason });
        self.disturb();
    }
}
