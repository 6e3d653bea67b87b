//! What the manager of checkpoints is told of training with each event: it asks nothing back.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::words::{Generation, Step};

/// Where training stands.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The time, since any fixed moment.
    pub(crate) now: Duration,
    /// The newest step that any worker is known to have reached.
    pub(crate) reached: Step,
    /// The newest generation that was announced.
    pub(crate) generation: Generation,
    /// The newest generation that was formed.
    pub(crate) formed: Generation,
    /// Whether training has begun before, as far as is known.
    pub(crate) begun: bool,
    /// A state of fewer updates does not count as the job's: where no worker has a newer one, the job's state is lost.
    pub(crate) oldest_alive: Step,
    /// Where the job ends.
    pub(crate) end: End,
}

/// At which states a job ends, besides that of its last step.
#[derive(Debug, Clone, Default)]
pub(crate) struct End {
    /// An operator wants the job to end: it does at any boundary.
    pub(crate) wanted: bool,
    /// Members have ended, or will, with the states at these steps.
    pub(crate) steps: BTreeSet<Step>,
}

impl End {
    /// Whether the job ends with the state at `step`.
    pub(crate) fn is_at(&self, step: Step) -> bool {
        self.wanted || self.steps.contains(&step)
    }
}
