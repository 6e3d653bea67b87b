//! The state at the end of a job: no other comes after it, so that its checkpoint is waited for.

use std::time::Duration;

use super::{CheckpointEvent, CheckpointManager, Facts};
use crate::holders::Taken;
use crate::limits::{HASH_MOST, LAST_SAVE_PATIENCE};
use crate::planted::{Bug, bites};
use crate::words::Step;

impl CheckpointManager {
    /// The last snapshot came while another was written, or could not be written at once: none is taken after it.
    pub(super) fn save_the_last(&mut self, kept: Option<&Taken>, facts: &Facts) {
        if let Some(taken) = self.last_to_save(kept, facts) {
            self.save_if_due(taken, facts);
        }
    }

    /// The snapshot of the end of the job, if it is the one that is kept and it is to be saved: once, and again as long as the end may
    /// wait.
    pub(crate) fn last_to_save<'a>(&self, kept: Option<&'a Taken>, facts: &Facts) -> Option<&'a Taken> {
        let taken = kept?;
        let tried = self.saved.tried == Some(taken.id);
        let since = self.saved.awaited.map(|since| self.awaits_hashing_since(since));
        let waited = since.map(|since| facts.now.saturating_sub(since));
        let again = !tried || waited.is_some_and(|waited| waited < LAST_SAVE_PATIENCE);
        (again && self.is_last(taken.id.step, facts)).then_some(taken)
    }

    /// Whether the end of the job waits until its last state is saved: `kept` is the snapshot that members keep.
    pub(crate) fn awaits_last(&mut self, end: Step, kept: Option<&Taken>, facts: &Facts) -> bool {
        if self.rules.saves.is_none() || self.saved.last.0 >= end || bites(Bug::LastNotAwaited) {
            return false;
        }
        let awaited = *self.saved.awaited.get_or_insert(facts.now);
        let since = self.awaits_hashing_since(awaited);
        if self.saving.is_some()
            || (self.last_to_save(kept, facts).is_some() && !self.targets(facts).is_empty())
            || facts.now.saturating_sub(since) < LAST_SAVE_PATIENCE
        {
            return true;
        }
        let reason = "no snapshot of the last state came, or no checkpoint actor is there".to_owned();
        self.tell(CheckpointEvent::NotSaved { step: end, reason });
        false
    }

    /// From when on what is awaited since then is late: a holder that comes further with hashing it moves that, within a bound.
    pub(crate) fn awaits_hashing_since(&self, since: Duration) -> Duration {
        self.saved.hashed.clamp(since, since + HASH_MOST)
    }

    /// Whether there will be no state after that at `step` which could be saved instead of it.
    pub(crate) fn is_last(&self, step: Step, facts: &Facts) -> bool {
        let ends = step >= self.rules.bounds.steps || facts.end.is_at(step) || self.saved.wanted.is_some();
        self.rules.saves.is_some() && ends && step > self.saved.last.0
    }
}
