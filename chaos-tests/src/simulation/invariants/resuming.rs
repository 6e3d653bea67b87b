//! Never from the beginning: a job whose state is lost goes on from the newest checkpoint that can be used.

use sardana_protocol::checkpoint::ManifestKey;
use sardana_protocol::limits::RESTORE_ATTEMPTS;
use sardana_protocol::words::Step;

use super::{Held, Law};

impl Law {
    /// A checkpoint could not be loaded.
    pub(crate) fn not_restored(&mut self, key: ManifestKey) {
        *self.checkpoints.failures.entry(key).or_default() += 1;
    }

    /// A generation forms that begins at this step. `lost`: there was a newer state, which no worker has any more.
    pub(crate) fn begins_at(&mut self, step: Step, lost: bool) -> Held {
        let checkpoints = &mut self.checkpoints;
        let resumes = checkpoints.resumes.take();
        if lost {
            checkpoints.saved = checkpoints.saved.min(step);
        }
        if !lost && resumes.is_none() {
            return Ok(());
        }
        checkpoints.source = resumes.map_or(Step::ZERO, |key| key.step);
        let steps = self.steps;
        let usable = |key: &ManifestKey| {
            let failures = checkpoints.failures.get(key);
            key.step <= steps && failures.is_none_or(|times| *times < RESTORE_ATTEMPTS)
        };
        let newest = checkpoints.complete().rfind(usable);
        // One step beyond a worker's state is computed again sooner than it is loaded: a coordinator that has lost its disk does not know
        // that there was a newer state.
        let most = if resumes.is_none() { step.next() } else { step };
        let right = resumes.is_none_or(|key| key.step == step) && newest.is_none_or(|key| key.step <= most);
        self.check("the newest checkpoint is resumed from", right, || {
            format!("training begins again at {step}, from {resumes:?}, and there is {newest:?}")
        })
    }
}
