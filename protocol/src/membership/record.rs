//! What a coordinator writes down of a job, so that its next life counts on. The machine does not wait for it to be written, and nothing is
//! lost without it but counts and reports: what is true of the job is what the workers say.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ledger::{Back, EarlierLedger, Ledger, Missed};
use super::remembering::Release;
use super::{Membership, Stop};
use crate::messages::Bounds;
use crate::words::{Generation, Step, WorkerId};

/// A job as its coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The generation that was current, as far as this life and the records before it know.
    pub(super) formed: Generation,
    /// All workers that were connected, or missed.
    pub(super) workers: BTreeSet<WorkerId>,
    /// Workers that were to leave.
    pub(super) leaving: BTreeSet<WorkerId>,
    /// Workers that have left last, and where.
    pub(super) released: BTreeMap<WorkerId, Release>,
    /// Of workers that left before them, none knows of a newer generation.
    pub(super) forgotten: Generation,
    /// Whether the job was to end at the next boundary.
    pub(super) stop: bool,
    /// The newest step that any worker was known to have reached.
    pub(super) reached: Step,
    pub(super) restarted: Step,
    /// The step of the newest checkpoint.
    pub(super) saved: Step,
    pub(super) next_report: Step,
    pub(super) ledger: Ledger,
}

/// What a record says of one worker. A record changes in few of them at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Whether it was connected, or missed.
    there: bool,
    /// Whether it was to leave.
    leaving: bool,
    released: Option<Release>,
    unknown: Option<Missed>,
    back: Option<Back>,
}

/// A record as versions up to wire version 5 wrote it: with all workers that had ever left.
#[derive(Debug, Clone, Deserialize)]
pub struct EarlierRecord {
    formed: Generation,
    workers: BTreeSet<WorkerId>,
    leaving: BTreeSet<WorkerId>,
    released: BTreeMap<WorkerId, Step>,
    stop: bool,
    reached: Step,
    restarted: Step,
    saved: Step,
    next_report: Step,
    ledger: EarlierLedger,
}

impl From<EarlierRecord> for JobRecord {
    fn from(earlier: EarlierRecord) -> Self {
        // In which generation each has left was not written down.
        let generation = earlier.formed;
        let release = |(worker, step)| (worker, Release { step, generation });
        Self {
            formed: earlier.formed,
            workers: earlier.workers,
            leaving: earlier.leaving,
            released: earlier.released.into_iter().map(release).collect(),
            forgotten: Generation::NONE,
            stop: earlier.stop,
            reached: earlier.reached,
            restarted: earlier.restarted,
            saved: earlier.saved,
            next_report: earlier.next_report,
            ledger: earlier.ledger.into(),
        }
    }
}

impl JobRecord {
    /// The record without its workers, and what it says of each of them.
    #[must_use]
    pub fn apart(self) -> (Self, BTreeMap<WorkerId, WorkerRecord>) {
        let (ledger, unknown, back) = self.ledger.apart();
        let mut each: BTreeMap<WorkerId, WorkerRecord> = BTreeMap::new();
        for worker in self.workers {
            each.entry(worker).or_default().there = true;
        }
        for worker in self.leaving {
            each.entry(worker).or_default().leaving = true;
        }
        for (worker, release) in self.released {
            each.entry(worker).or_default().released = Some(release);
        }
        for (worker, missed) in unknown {
            each.entry(worker).or_default().unknown = Some(missed);
        }
        for (worker, back) in back {
            each.entry(worker).or_default().back = Some(back);
        }
        let rest = Self {
            workers: BTreeSet::new(),
            leaving: BTreeSet::new(),
            released: BTreeMap::new(),
            ledger,
            ..self
        };
        (rest, each)
    }

    /// The reverse of [`Self::apart`].
    #[must_use]
    pub fn together(rest: Self, each: BTreeMap<WorkerId, WorkerRecord>) -> Self {
        let (mut record, mut unknown, mut back) = (rest, BTreeMap::new(), BTreeMap::new());
        for (worker, one) in each {
            if one.there {
                record.workers.insert(worker);
            }
            if one.leaving {
                record.leaving.insert(worker);
            }
            record.released.extend(one.released.map(|release| (worker, release)));
            unknown.extend(one.unknown.map(|missed| (worker, missed)));
            back.extend(one.back.map(|back| (worker, back)));
        }
        record.ledger = record.ledger.together(unknown, back);
        record
    }

    /// It was read while it was being changed: parts of it are newer than others, and its count is not sure.
    #[must_use]
    pub fn torn(mut self) -> Self {
        self.ledger.rescued();
        self
    }

    /// Whether training had begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.formed.count() > 0 || self.reached > Step::ZERO
    }

    /// As it may be believed in a job with these bounds: an earlier version wrote down whatever it was told, and no life may be stuck for
    /// that. What cannot be is as much as can be.
    pub(super) fn within(mut self, bounds: Bounds) -> Self {
        let steps = [&mut self.reached, &mut self.restarted, &mut self.saved, &mut self.next_report];
        let left = self.released.values_mut().map(|release| &mut release.step);
        steps.into_iter().chain(left).for_each(|step| *step = bounds.steps.min(*step));
        self.ledger = self.ledger.within(bounds);
        self
    }

    /// Workers that have left.
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
            forgotten,
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
            && *forgotten == older.forgotten
            && *ledger == older.ledger;
        !same
    }
}

impl Membership {
    /// What the next life of this coordinator should know.
    #[must_use]
    pub fn record(&self) -> JobRecord {
        let leaving = self.members.iter().filter(|(_, record)| record.leaving().is_some());
        JobRecord {
            formed: if self.formed.count() > 0 {
                self.formed
            } else {
                self.earlier.recorded
            },
            workers: self.members.keys().chain(self.absent.missed.keys()).copied().collect(),
            leaving: leaving
                .map(|(&worker, _)| worker)
                .chain(self.earlier.asked_before.iter().copied())
                .collect(),
            released: self.absent.released.by_name().clone(),
            forgotten: self.absent.released.forgotten(),
            stop: self.stop != Stop::No,
            reached: self.training.reached,
            restarted: self.training.restarted,
            saved: self.checkpoints.newest_committed(),
            next_report: self.training.next_report,
            ledger: self.ledger.clone(),
        }
    }
}
