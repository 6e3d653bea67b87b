//! Checkpoints come: after faults have ended one is committed within a bound, and the job does not end before its last state is saved, or
//! people are told that it is not.

use sardana_protocol::checkpoint::ManifestKey;
use sardana_protocol::words::Step;

use super::{Held, Law};

impl Law {
    /// Whether a checkpoint that is told of is newer than all before, and not one that was placed anew.
    pub(crate) fn is_new(&self, key: ManifestKey) -> bool {
        key.step > self.checkpoints.saved
    }

    /// People are told that the state at this step is not saved.
    pub(crate) fn not_saved(&mut self, step: Step) {
        self.checkpoints.not_saved.insert(step);
    }

    /// The job is done.
    pub(crate) fn last_is_saved(&mut self, step: Step) -> Held {
        let checkpoints = &self.checkpoints;
        if checkpoints.rule.is_none() {
            return Ok(());
        }
        let told = checkpoints.saved >= step || checkpoints.not_saved.contains(&step);
        self.check("the last state is saved", told, || {
            format!("the job is done at {step}, and people do not know whether that is saved")
        })
    }

    /// Faults have ended some time ago.
    pub(crate) fn goes_on_saving(&mut self, saved: bool, what: impl FnOnce() -> String) -> Held {
        self.check("checkpoints come", saved, || {
            format!("none was committed since healing: {}", what())
        })
    }
}
