//! From which checkpoint a job starts when no worker has its state: the newest that is complete and its own, or an older one if that cannot
//! be loaded. Never from the beginning where there is one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::depot::Depot;
use super::{CheckpointEvent, CheckpointManager, Command, Facts};
use crate::checkpoint::{DepotId, Head, ManifestKey};
use crate::limits::{DEPOTS_PATIENCE, MAX_DEPOTS, MAX_HEADS, RESTORE_ATTEMPTS};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step, WorkerId};

/// What is known of attempts to load checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Restoring {
    /// The checkpoint that the present generation starts from, if it does.
    source: Option<(Generation, ManifestKey)>,
    /// Checkpoints that could not be loaded.
    pub(super) failures: BTreeMap<ManifestKey, Failure>,
    /// Members that could not load one, since training went on last: perhaps they alone do not reach the depots. Others read for them.
    pub(super) unable: BTreeSet<WorkerId>,
    /// The step of the newest checkpoint that an earlier life of the coordinator has committed, or that was given up with the state.
    recorded: Step,
    /// The newest checkpoint of each depot that is gone: the depot may bring it back.
    away: BTreeMap<DepotId, Step>,
    /// Whether this life has looked at all depots before it formed its first generation.
    looked: bool,
}

/// A checkpoint that could not be loaded.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    times: u32,
    /// The last time, and why.
    at: Duration,
    pub(super) reason: String,
}

/// How good a checkpoint is to resume from. The first is taken, of equals the newest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Each piece of it is somewhere, as far as is known.
    Whole,
    /// More depots lack something of it than may. They need not lack the same, which is found out only by reading it.
    Perhaps,
}

impl CheckpointManager {
    /// What a checkpoint is worth.
    ///
    /// # Errors
    /// Why it can never be used.
    pub(super) fn worth(&self, key: ManifestKey, head: &Head) -> Result<Worth, String> {
        let foreign = !bites(Bug::ForeignCheckpoint);
        let (task, own) = (head.task, self.rules.task);
        if task.settings != own.settings && foreign {
            return Err("it is of another job".to_owned());
        }
        if task.data != own.data && foreign {
            return Err(format!(
                "it was trained on other data: expected {}, found {}; `sardana checkpoints show` says on which",
                own.data, task.data
            ));
        }
        if head.build != self.rules.build && foreign {
            return Err("it was made by another build of the program, with other settings of its model, or on another kind of machine".to_owned());
        }
        if key.step > self.rules.bounds.steps {
            return Err(format!("it is beyond the end of this job, {}", self.rules.bounds.steps));
        }
        Ok(if self.lacks_of(key, head) == 0 {
            Worth::Whole
        } else {
            Worth::Perhaps
        })
    }

    /// The step of the newest checkpoint that can certainly be used.
    pub(crate) fn newest_usable(&self) -> Step {
        let certain = |(head, worth): &(Head, Worth)| *worth == Worth::Whole && self.failed(head.key) == 0;
        let choice = self.rules.saves.and_then(|_| self.choice()).filter(certain);
        choice.map_or(Step::ZERO, |(head, _)| head.key.step)
    }

    /// In how many rounds of [`RESTORE_ATTEMPTS`] it could not be loaded.
    fn failed(&self, key: ManifestKey) -> u32 {
        let failure = self.restoring.failures.get(&key);
        failure.map_or(0, |failure| failure.times / RESTORE_ATTEMPTS)
    }

    /// Whether it could not be loaded, by what this life has seen.
    pub(super) fn is_doubtful(&self, key: ManifestKey) -> bool {
        self.failed(key) > 0
    }

    /// The checkpoint to resume from.
    fn choice(&self) -> Option<(Head, Worth)> {
        let known = self.known().into_values();
        let worth = known.filter_map(|head| Some((self.worth(head.key, head).ok()?, head)));
        let oldest = bites(Bug::OlderChosen);
        let (worth, head) = worth.min_by_key(|(worth, head): &(Worth, &Head)| {
            let newest = if oldest { Step::ZERO } else { head.key.step };
            (self.failed(head.key), worth.clone(), Reverse(newest))
        })?;
        Some((head.clone(), worth))
    }

    /// The step of the newest checkpoint that there is, or was, as far as is known: it may come back.
    fn newest_to_hope_for(&self) -> Step {
        let known = self.known();
        let hoped = |(key, head): &(&ManifestKey, &&Head)| self.worth(**key, head).is_ok();
        let newest = known.iter().rfind(hoped).map_or(Step::ZERO, |(key, _)| key.step);
        let away = self.restoring.away.values().max().copied().unwrap_or(Step::ZERO);
        newest.max(self.restoring.recorded).max(self.saved.last.0).max(away)
    }

    /// A depot is gone, or begins anew to tell what it keeps. What it had may come back with it.
    pub(super) fn misses_checkpoints(&mut self, depot: DepotId, gone: &Depot) {
        let usable = |(key, head): &(&ManifestKey, &Head)| self.worth(**key, head).is_ok();
        let newest = gone.heads.iter().rfind(usable).map_or(Step::ZERO, |(key, _)| key.step);
        if newest == Step::ZERO {
            return;
        }
        let away = &mut self.restoring.away;
        let step = away.entry(depot).or_default();
        *step = newest.max(*step);
        // Only the newest counts.
        let least = away.iter().min_by_key(|(_, step)| **step).map(|(depot, _)| *depot);
        if let Some(least) = least.filter(|_| away.len() > MAX_DEPOTS) {
            away.remove(&least);
        }
    }

    /// A depot has told all that it keeps: nothing else comes back with it.
    pub(super) fn misses_no_checkpoints(&mut self, depot: DepotId) {
        self.restoring.away.remove(&depot);
    }

    /// Whether no worker has the state of the job, of which `newest` is the newest that any has; or none has begun.
    fn lacks_state(&self, newest: Step, facts: &Facts) -> bool {
        let lost = newest < facts.oldest_alive;
        // A worker that has not begun has no state: also where only one step is known to have been made, there may be a checkpoint of it.
        let begun = facts.formed.count() > 0 && facts.reached == Step::ZERO;
        lost || (newest == Step::ZERO && !begun)
    }

    /// Whether depots have to be waited for before it is known from where to resume.
    pub(crate) fn awaits_depots(&self, newest: Step, since: Duration, facts: &Facts) -> bool {
        if self.rules.saves.is_none() || !self.lacks_state(newest, facts) {
            return false;
        }
        // All its pieces are durable, and soon the manifest is.
        if self.is_committing_beyond(newest) {
            return true;
        }
        if self.is_known_to_have_none(facts) {
            return false;
        }
        if !self.depots.values().any(|depot| depot.has_told_all) || self.depots.values().any(Depot::is_about_to_tell) {
            return true;
        }
        let choice = self.choice();
        let certain = choice
            .as_ref()
            .filter(|(head, worth)| *worth == Worth::Whole && self.failed(head.key) == 0);
        let best = certain.map_or(newest, |(head, _)| newest.max(head.key.step));
        // A depot that is there may tell of one yet: nothing begins from the beginning before.
        if best == Step::ZERO && self.depots.values().any(|depot| !depot.has_told_all) {
            return true;
        }
        let ago = |since| facts.now.saturating_sub(since);
        let waits = ago(since) < DEPOTS_PATIENCE;
        if best >= self.newest_to_hope_for() {
            // Another depot may have what cannot be read on these.
            let unread = self.unreadable().into_iter();
            let mut newer = unread.filter(|key| key.step > best && key.step <= self.rules.bounds.steps);
            return waits && newer.next().is_some();
        }
        // Going on from an older checkpoint costs some steps. Beginning anew costs all: that is not done while there is something to hope
        // for.
        let vain = match &choice {
            Some((head, _)) => {
                let failure = self.restoring.failures.get(&head.key).filter(|_| self.failed(head.key) > 0);
                failure.is_some_and(|failure| ago(failure.at) < DEPOTS_PATIENCE)
            }
            None => true,
        };
        waits || (vain && best == Step::ZERO)
    }

    /// This life has looked at the depots when training began, and no checkpoint was committed since: there is nothing to wait for.
    fn is_known_to_have_none(&self, facts: &Facts) -> bool {
        let none = self.newest_to_hope_for() == Step::ZERO && self.known().is_empty();
        facts.formed.count() > 0 && self.restoring.looked && none
    }

    /// The checkpoint that the next generation starts from, if no worker has a state that is as new.
    ///
    /// # Errors
    /// Why the job must not go on: there are checkpoints, but none that can ever be used.
    pub(crate) fn resumes_from(&mut self, newest: Step, facts: &Facts) -> Result<Option<Head>, String> {
        if self.rules.saves.is_none() || bites(Bug::FromTheBeginning) {
            return Ok(None);
        }
        let lacks_state = self.lacks_state(newest, facts);
        self.restoring.looked |= facts.formed.count() == 0 && lacks_state;
        // A coordinator that has forgotten how far the job was may meet a worker that is far behind.
        if !lacks_state && facts.formed.count() > 0 {
            return Ok(None);
        }
        let begins = lacks_state && newest == Step::ZERO;
        let Some((head, _)) = self.choice().filter(|(head, _)| begins || self.failed(head.key) == 0) else {
            let against = self.against_beginning(facts);
            let Some((key, why)) = against.iter().next_back().filter(|_| begins) else {
                return Ok(None);
            };
            return Err(format!(
                "none of {} checkpoints can be resumed from: the newest is at {}, {}, and {why}; make what is missing available, or \
                 start with an empty directory to train from the beginning",
                against.len(),
                key.step,
                self.where_it_is(*key),
            ));
        };
        // One step more than any worker has is computed again sooner than it is loaded.
        let least = if lacks_state { newest } else { newest.next() };
        if head.key.step <= least {
            return Ok(None);
        }
        let newer = self.unused().split_off(&head.key).into_iter();
        let passed_over = newer.filter(|(key, _)| *key != head.key).collect();
        self.tell(CheckpointEvent::Resumes {
            key: head.key,
            passed_over,
        });
        Ok(Some(head))
    }

    /// The next generation starts from this checkpoint.
    pub(crate) fn begin_from(&mut self, head: &Head, facts: &Facts) {
        let step = head.key.step;
        // Training has gone on since these members could not load one: they may be able to by now.
        if self.restoring.source.is_some_and(|(_, key)| key.step < facts.reached) {
            self.restoring.unable.clear();
        }
        self.restoring.source = Some((facts.generation, head.key));
        self.saved.last = (step, facts.now);
        self.give_up_saving("the state that it was taken of is lost", facts);
        // They read from all depots.
        self.name_to_depots();
    }

    /// An earlier life of the coordinator has committed a checkpoint of the state at `step`.
    pub(crate) fn remember(&mut self, step: Step) {
        self.restoring.recorded = step;
    }

    /// The newest state of which a checkpoint was committed, in this life of the coordinator or an earlier one.
    pub(crate) fn newest_committed(&self) -> Step {
        self.saved.last.0.max(self.restoring.recorded)
    }

    /// The state is lost, and training begins again at `from` without a checkpoint: what is saved from now on is saved anew.
    pub(crate) fn begin_without(&mut self, from: Step, facts: &Facts) {
        self.restoring.recorded = self.restoring.recorded.max(self.saved.last.0);
        self.saved.last = (from.min(self.saved.last.0), facts.now);
        self.give_up_saving("the state that it was taken of is lost", facts);
    }

    /// A member of the generation says that it could not load its checkpoint. False if that generation does not start from one.
    pub(crate) fn cannot_load(&mut self, worker: WorkerId, generation: Generation) -> bool {
        let loads = self.restoring.source.is_some_and(|(source, _)| source == generation);
        if loads {
            // Others may say so as well before they halt: on one host, which is cut off, all do. That is one failure.
            self.restoring.unable.insert(worker);
        }
        loads
    }

    /// The generation, of so many members, comes to an end since one of them could not load its checkpoint.
    pub(crate) fn not_restored(&mut self, worker: WorkerId, members: usize, reason: String, facts: &Facts) {
        let Some((_, key)) = self.restoring.source else { return };
        let times = self.restoring.failures.get(&key).map_or(0, |failure| failure.times) + 1;
        let unable = &self.restoring.unable;
        let alone = unable.len() == 1 && unable.contains(&worker) && members > 1;
        if times.is_multiple_of(RESTORE_ATTEMPTS) && alone {
            // The others have read for it, and given it all: the checkpoint is not at fault.
            self.restoring.failures.remove(&key);
            self.restoring.unable.remove(&worker);
            return self.out.push(Command::CannotLoad { worker, reason });
        }
        if times.is_multiple_of(RESTORE_ATTEMPTS) {
            // Then the checkpoint is at fault, and not these members.
            self.restoring.unable.clear();
        }
        let (at, why) = (facts.now, reason.clone());
        let failures = &mut self.restoring.failures;
        failures.insert(key, Failure { times, at, reason: why });
        if failures.len() > MAX_HEADS {
            let longest_ago = failures.iter().min_by_key(|(_, failure)| failure.at).map(|(key, _)| *key);
            longest_ago.and_then(|key| failures.remove(&key));
        }
        self.tell(CheckpointEvent::NotRestored { key, worker, reason });
        self.out.push(Command::FormAnew);
    }
}
