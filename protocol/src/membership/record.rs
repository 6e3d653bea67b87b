//! What a coordinator writes down of a job, so that its next life counts on. Nobody waits for it to be written, and nothing is lost
//! without it but counts and reports: what is true of the job is what the workers say.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use super::{Membership, Stop};
use crate::words::{Generation, Step, WorkerId};

/// A job as its coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The generation that was current, as far as this life and the records before it know.
    pub(super) formed: Generation,
    /// All workers that were connected, or missed.
    pub(super) workers: BTreeSet<WorkerId>,
    /// Those that were to leave.
    pub(super) leaving: BTreeSet<WorkerId>,
    /// Those that have left, and where.
    pub(super) released: BTreeMap<WorkerId, Step>,
    /// Whether the job was to end at the next boundary.
    pub(super) stop: bool,
    /// The newest step that anybody was known to have reached.
    pub(super) reached: Step,
    pub(super) restarted: Step,
    /// The step of the newest checkpoint.
    pub(super) saved: Step,
    pub(super) next_report: Step,
    pub(super) ledger: Ledger,
}

impl JobRecord {
    /// Whether training had begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.formed.count() > 0 || self.reached > Step::ZERO
    }

    /// Those that have left.
    pub fn released(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.released.keys().copied()
    }

    /// Whether the next life would miss more in `older` than some reports: then this is worth writing at once.
    #[must_use]
    pub fn differs_from(&self, older: &Self) -> bool {
        let Self {
            formed,
            workers,
            leaving,
            released,
            stop,
            reached: _,
            restarted,
            saved,
            next_report: _,
            ledger,
        } = self;
        let same = *formed == older.formed
            && *stop == older.stop
            && *restarted == older.restarted
            && *saved == older.saved
            && *workers == older.workers
            && *leaving == older.leaving
            && *released == older.released
            && *ledger == older.ledger;
        !same
    }
}

impl Membership {
    /// What the next life of this coordinator should know.
    #[must_use]
    pub fn record(&self) -> JobRecord {
        let leaving = self.members.iter().filter(|(_, record)| record.leaving.is_some());
        JobRecord {
            formed: if self.formed.count() > 0 { self.formed } else { self.recorded },
            workers: self.members.keys().chain(self.missed.keys()).copied().collect(),
            leaving: leaving.map(|(&worker, _)| worker).collect(),
            released: self.released.clone(),
            stop: self.stop != Stop::No,
            reached: self.reached,
            restarted: self.restarted,
            saved: self.saved.last.0.max(self.restoring.recorded),
            next_report: self.next_report,
            ledger: self.ledger.clone(),
        }
    }
}
