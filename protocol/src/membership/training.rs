//! How far training has come, as far as is known.

use std::time::Duration;

use crate::words::Step;

/// How far training has come.
#[derive(Debug, Default)]
pub(super) struct Training {
    /// The newest step that any worker is known to have reached.
    pub(super) reached: Step,
    /// The step from which training started again when the state was last lost.
    pub(super) restarted: Step,
    /// The first step whose report is missing.
    pub(super) next_report: Step,
    /// When `reached` last grew, or training last began.
    pub(super) advanced: Duration,
    /// Since when no update was applied because of a loss or an arrival.
    pub(super) disturbed: Option<Duration>,
    /// Whether each generation of this job has gone on from the state of the one before it, as far as it is known: then no worker has a newer one.
    pub(super) unbroken: bool,
}

impl Training {
    /// A job that begins at the time `now`.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            advanced: now,
            unbroken: true,
            ..Self::default()
        }
    }

    /// The oldest state that is the job's. One step may be lost with all members that had applied it, and is computed again; more than one
    /// means that the state is lost. So does any step before the one from which training last started again: which worker computed it then
    /// is not known any more.
    pub(super) fn oldest_alive(&self) -> Step {
        self.reached.previous().unwrap_or(Step::ZERO).max(self.restarted)
    }
}
