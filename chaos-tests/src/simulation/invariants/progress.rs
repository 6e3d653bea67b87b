//! LIVE-1: once faults stop and enough workers are present, steps are applied again, within a bound; and a job that is asked to stop
//! ends, within another.

use std::time::Duration;

use sardana_protocol::limits::{
    ADOPTION_PATIENCE, GATHER, HALT_PATIENCE, LEAVE_GRACE, SILENCE_MOST, STALL_SHARDS, STALL_UNKNOWN, STATE_GRACE,
};

use super::{Law, Violation};
use crate::simulation::network::IDLE;

/// How much progress is expected after healing: a floor, so that a crawl does not pass for progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) steps: u64,
    pub(crate) within: Duration,
}

impl Floor {
    /// The floor of a cluster whose steps take so long, whose states travel in `transfer`, and whose processes start within `restart`.
    /// `slowest`: how long work takes that was begun when its worker was at its slowest.
    pub(crate) fn of(step: Duration, transfer: Duration, restart: Duration, slowest: Duration) -> Self {
        // What is waited for, one after the other, at the very worst; thrice, as one may end in the other.
        let patience = ADOPTION_PATIENCE + GATHER + LEAVE_GRACE + SILENCE_MOST + STATE_GRACE + 2 * IDLE;
        let steps = 5;
        Self {
            steps,
            within: 3 * (patience + restart) + 20 * transfer + 10 * step + slowest,
        }
    }

    /// Some workers hang when faults end. Each may be found only once another is replaced, and then when all are to halt for it.
    pub(crate) fn and_hangs(self, workers: u32, gradient: Duration) -> Self {
        // Paces wander.
        let gradients = 2 * STALL_SHARDS * gradient;
        let each = STALL_UNKNOWN.max(gradients) + HALT_PATIENCE + self.within;
        Self {
            within: self.within + workers * each,
            ..self
        }
    }
}

impl Law {
    /// So many steps were applied since faults have ended, or the job is done.
    pub(crate) fn goes_on(&mut self, floor: Floor, applied: u64, what: impl FnOnce() -> String) -> Result<(), Violation> {
        self.check("LIVE-1", applied >= floor.steps, || {
            format!(
                "{applied} steps, of {} expected, within {:.0} s of healing: {}",
                floor.steps,
                floor.within.as_secs_f64(),
                what()
            )
        })
    }

    /// The job that was asked to stop, or had only its end before it, has ended in time.
    pub(crate) fn ends(&mut self, done: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
        self.check("LIVE-1", done, || format!("the job does not end: {}", what()))
    }
}
