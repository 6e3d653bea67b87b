//! LIVE-1: once faults stop and enough workers are present, steps are applied again, within a bound; and a job that is asked to stop
//! ends, within another.

use std::time::Duration;

use sardana_protocol::checkpoint::Every;
use sardana_protocol::limits::{
    ADOPTION_PATIENCE, GATHER, HALT_PATIENCE, LAST_SAVE_PATIENCE, LEAVE_GRACE, SAVE_ATTEMPTS, SAVE_PATIENCE, SILENCE_MOST,
    STALL_SHARDS, STALL_UNKNOWN, STATE_GRACE,
};

use sardana_protocol::membership::Saves;

use super::{Held, Law};
use crate::simulation::network::IDLE;

/// How much progress is expected after healing: a floor, so that a crawl does not pass for progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) steps: u64,
    pub(crate) within: Duration,
    /// A checkpoint comes after this at the latest.
    pub(crate) saved_within: Duration,
    /// And the job that is asked to stop ends after this.
    pub(crate) ends_within: Duration,
}

impl Floor {
    /// The floor of a cluster whose steps take so long, whose states come to another worker within `transfer`, and whose processes start
    /// within `restart`. `slowest`: how long work takes that was begun when its worker was at its slowest.
    pub(crate) fn of(step: Duration, transfer: Duration, restart: Duration, slowest: Duration) -> Self {
        // What is waited for, one after the other, at the very worst; thrice, as one may end in the other.
        let patience = ADOPTION_PATIENCE + GATHER + LEAVE_GRACE + SILENCE_MOST + STATE_GRACE + 2 * IDLE;
        let steps = 5;
        let within = 3 * (patience + restart) + 20 * transfer + 10 * step + slowest;
        Self {
            steps,
            within,
            saved_within: within,
            ends_within: 2 * within,
        }
    }

    /// Some workers hang when faults end. Each may be found only once another is replaced, and then when all are to halt for it.
    pub(crate) fn and_hangs(self, workers: u32, gradient: Duration) -> Self {
        // Paces wander.
        let gradients = 2 * STALL_SHARDS * gradient;
        let each = STALL_UNKNOWN.max(gradients) + HALT_PATIENCE + self.within;
        Self {
            within: self.within + workers * each,
            saved_within: self.saved_within + workers * each,
            ends_within: self.ends_within + 2 * workers * each,
            ..self
        }
    }

    /// The job is saved: a checkpoint that is due is committed within the time of all attempts, as a worker may stand still in each. The
    /// last checkpoint may come after another.
    pub(crate) fn and_saves(self, saves: Option<Saves>, step: Duration, write: Duration) -> Self {
        let Some(saves) = saves else { return self };
        let interval = match saves.every {
            Every::Steps(steps) => step * u32::try_from(steps.get()).unwrap_or(u32::MAX),
            Every::Time(time) => time,
        };
        let attempts = SAVE_ATTEMPTS * (SAVE_PATIENCE + step + write);
        Self {
            saved_within: self.saved_within + interval + 2 * attempts,
            ends_within: self.ends_within + LAST_SAVE_PATIENCE + 2 * attempts,
            ..self
        }
    }
}

impl Law {
    /// So many steps were applied since faults have ended, or the job is done.
    pub(crate) fn goes_on(&mut self, floor: Floor, applied: u64, what: impl FnOnce() -> String) -> Held {
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
    pub(crate) fn ends(&mut self, done: bool, what: impl FnOnce() -> String) -> Held {
        self.check("LIVE-1, ending", done, || format!("the job does not end: {}", what()))
    }
}
