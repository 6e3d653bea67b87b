//! Counts gradients: each is computed once, but for those that a death took along.
//!
//! `computed` comes from the workers' own tallies, `recomputed` from what the dead held when the next generation formed. In the
//! end `computed = K × steps + recomputed`; neither side is derived from the other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::OPEN_TALLIES;
use crate::messages::{Bounds, Sensible, Standing, Tally};
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

/// The count so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// Tallies of lost workers whose last gradients may still be lost, and how many were already counted as lost.
    recent: Vec<(Tally, u64)>,
    /// Gradients of workers lost earlier that live on in the state.
    useful: u64,
    /// Gradients of all lost workers.
    gone: u64,
    recomputed: u64,
    /// How often it is not clear what was in vain: a joiner had what all members had lost, a worker that had come back is lost again, or
    /// memory did not hold what was there beside what was missing.
    unsure: u32,
    /// Lost workers whose count is not known, and what has happened without them.
    unknown: BTreeMap<WorkerId, Missed>,
    /// Workers that came back and had computed gradients in vain, or were about to. They live, or their count is not known.
    back: BTreeMap<WorkerId, Back>,
}

/// What was counted of a worker when it came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Back {
    /// The step that it had computed of, as long as others are not far beyond.
    step: Option<Step>,
    /// Gradients that it had computed in vain, also when it had come back before.
    vain: u64,
}

/// As versions up to wire version 5 wrote it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EarlierLedger {
    recent: Vec<(Tally, u64)>,
    useful: u64,
    gone: u64,
    recomputed: u64,
    unsure: u32,
    unknown: BTreeMap<WorkerId, Missed>,
    vain: BTreeMap<WorkerId, Step>,
}

impl From<EarlierLedger> for Ledger {
    fn from(earlier: EarlierLedger) -> Self {
        // How many gradients they were was not written down.
        let doubts = u32::try_from(earlier.vain.len()).unwrap_or(u32::MAX);
        Self {
            recent: earlier.recent,
            useful: earlier.useful,
            gone: earlier.gone,
            recomputed: earlier.recomputed,
            unsure: earlier.unsure.saturating_add(doubts),
            unknown: earlier.unknown,
            back: BTreeMap::new(),
        }
    }
}

/// What a lost worker has missed. It decides which of its gradients were in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Missed {
    /// No generation resumed without it.
    Nothing,
    /// A generation did, at this step or later ones.
    Since(Step),
    /// All that it ever computed: the state was lost.
    Everything,
}

/// Whether a worker has promised to accept nothing old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halted {
    NotYet,
    Yes,
}

impl Ledger {
    /// As it may be believed: a life before this one has perhaps written down what no worker can have computed. Which of it was in vain, is
    /// not known.
    pub(super) fn within(mut self, bounds: Bounds) -> Self {
        let told = self.recent.len();
        self.recent
            .retain(|(tally, counted)| tally.check(bounds).is_ok() && *counted <= tally.total);
        let dropped = u32::try_from(told - self.recent.len()).unwrap_or(u32::MAX);
        self.unsure = self.unsure.saturating_add(dropped);
        let earlier = |step: &mut Step| *step = bounds.steps.min(*step);
        self.back.values_mut().filter_map(|back| back.step.as_mut()).for_each(earlier);
        for missed in self.unknown.values_mut() {
            if let Missed::Since(step) = missed {
                earlier(step);
            }
        }
        self
    }

    /// A worker was lost.
    pub(super) fn lost(&mut self, worker: WorkerId, tally: Option<Tally>) {
        match tally.filter(|_| !bites(Bug::CountNotNoted)) {
            Some(tally) => {
                // A worker that has come back may have ended before it had said what it had computed in vain.
                let vain = self.settle(worker, tally, 0).unwrap_or(0);
                self.ends(worker, tally, vain);
            }
            None => {
                self.unknown.entry(worker).or_insert(Missed::Nothing);
            }
        }
    }

    /// The count of a lost worker has become known after all. Whether that is news of where the job stands: nothing has resumed since.
    pub(super) fn found(&mut self, worker: WorkerId, tally: Tally) -> bool {
        let news = self.unknown.get(&worker) == Some(&Missed::Nothing);
        if let Some(vain) = self.settle(worker, tally, 0) {
            self.ends(worker, tally, vain);
        }
        news
    }

    /// A worker has ended, with so many of its last gradients in vain. If it had come back in the same step or the one before, some of them
    /// were counted as in vain then, and the gradient that it was at may not have come: which ones, its tally does not tell.
    fn ends(&mut self, worker: WorkerId, tally: Tally, vain: u64) {
        self.gone = self.gone.saturating_add(tally.total);
        let back = self.back.remove(&worker);
        if back.and_then(|back| back.step).is_some_and(|step| tally.step <= step.next()) {
            self.unsure = self.unsure.saturating_add(1);
        }
        let total = tally.total.saturating_sub(back.map_or(0, |back| back.vain));
        self.leave_open(Tally { total, ..tally }, vain.min(total));
    }

    /// The last gradients of a lost worker may still be lost; so many of them are.
    fn leave_open(&mut self, tally: Tally, vain: u64) {
        // A worker that has computed nothing has lost nothing: a program that ends at once does so again and again.
        if tally.total == 0 {
            return;
        }
        self.recent.push((tally, vain));
        if self.recent.len() > OPEN_TALLIES {
            let oldest = self.recent.remove(0);
            self.useful = self.useful.saturating_add(useful(vec![oldest]));
            self.unsure = self.unsure.saturating_add(1);
        }
    }

    /// The count of a lost worker is not waited for any more. It stays unknown.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        if self.unknown.remove(&worker).is_some() {
            self.unsure = self.unsure.saturating_add(1);
        }
        self.back.remove(&worker);
    }

    /// Of how many lost workers it is open whether their last gradients were in vain.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.recent.len()
    }

    /// What was counted, and apart from it what concerns single workers: those whose count is not known, and those that have come back.
    pub(super) fn apart(mut self) -> (Self, BTreeMap<WorkerId, Missed>, BTreeMap<WorkerId, Back>) {
        let unknown = std::mem::take(&mut self.unknown);
        let back = std::mem::take(&mut self.back);
        (self, unknown, back)
    }

    /// The reverse of [`Self::apart`].
    pub(super) fn together(self, unknown: BTreeMap<WorkerId, Missed>, back: BTreeMap<WorkerId, Back>) -> Self {
        Self { unknown, back, ..self }
    }

    /// A worker that was lost is back; it is one of the living again. What it has computed in vain is known once it has halted: until
    /// then it goes on with what it was doing. `reached`: where the others are. If it is there as well, what it has of that step may be
    /// used yet, unless others have it, too.
    pub(super) fn returned(&mut self, worker: WorkerId, standing: &Standing, halted: Halted, reached: Step) {
        let missed = self.unknown.get(&worker).copied();
        let has = standing.tally.this_step > 0 || under_way(standing) > 0;
        if let (Halted::Yes, Some(Missed::Since(_))) = (halted, missed)
            && has
            && standing.tally.step >= reached
        {
            self.unsure = self.unsure.saturating_add(1);
        }
        if halted == Halted::Yes || missed == Some(Missed::Nothing) {
            let vain = self.settle(worker, standing.tally, under_way(standing));
            if let Some(vain) = vain.filter(|vain| *vain > 0) {
                let vain = vain.saturating_add(self.vain_of(worker));
                let step = Some(standing.tally.step);
                self.back.insert(worker, Back { step, vain });
            }
        }
    }

    /// Gradients of a living worker that the state at `at` holds.
    pub(super) fn useful_of(&self, worker: WorkerId, standing: &Standing, at: Step) -> u64 {
        let tally = standing.tally;
        let of_this_step = if standing.step == at { u64::from(tally.this_step) } else { 0 };
        let missing = match self.back.get(&worker) {
            // Those of the step that it came back in are among those of this step.
            Some(back) if back.step == Some(tally.step) => back.vain.max(of_this_step),
            Some(back) => back.vain.saturating_add(of_this_step),
            None => of_this_step,
        };
        tally.total.saturating_sub(missing)
    }

    /// Gradients that a worker, when it came back, was found to have computed in vain.
    fn vain_of(&self, worker: WorkerId) -> u64 {
        self.back.get(&worker).map_or(0, |back| back.vain)
    }

    /// How many gradients of a worker whose count was unknown were computed again by others. So many more are `under_way`.
    fn settle(&mut self, worker: WorkerId, tally: Tally, under_way: u64) -> Option<u64> {
        let vain = match self.unknown.remove(&worker)? {
            Missed::Nothing => 0,
            Missed::Since(step) if tally.step < step => 0,
            Missed::Since(step) => {
                // It was further than was known, and what it alone had reached is lost: of those steps its tally tells the last two.
                let further = u32::from(tally.step > step.next());
                self.unsure = self.unsure.saturating_add(further);
                lost_of(tally, step).saturating_add(under_way)
            }
            // But for what was counted before.
            Missed::Everything => tally.total.saturating_add(under_way).saturating_sub(self.vain_of(worker)),
        };
        self.recomputed = self.recomputed.saturating_add(vain);
        Some(vain)
    }

    /// A generation resumes at `step`. Returns how many lost gradients are computed again for it.
    pub(super) fn resume(&mut self, step: Step) -> u64 {
        for back in self.back.values_mut() {
            back.step = back.step.filter(|since| since.next() >= step);
        }
        for missed in self.unknown.values_mut() {
            *missed = match *missed {
                Missed::Nothing => Missed::Since(step),
                Missed::Since(before) => Missed::Since(before.min(step)),
                Missed::Everything => Missed::Everything,
            };
        }
        let mut again: u64 = 0;
        for (tally, counted) in &mut self.recent {
            let lost = lost_of(*tally, step).max(*counted);
            again = again.saturating_add(lost - *counted);
            *counted = lost;
        }
        // Steps only go back by one, unless the state is lost.
        let (settled, recent) = self
            .recent
            .drain(..)
            .partition(|(tally, _)| step.previous().is_some_and(|previous| tally.step < previous));
        self.recent = recent;
        self.useful = self.useful.saturating_add(useful(settled));
        self.recomputed = self.recomputed.saturating_add(again);
        again
    }

    /// The newest state is lost: training starts again from one that holds only `kept` gradients of the lost. Returns how many of these are
    /// of workers whose count is not known: if it comes later, all gradients of that worker will count as in vain, these too.
    pub(super) fn restart(&mut self, kept: u64) -> u64 {
        self.unknown.values_mut().for_each(|missed| *missed = Missed::Everything);
        let recent = std::mem::take(&mut self.recent);
        self.useful = self.useful.saturating_add(useful(recent));
        let lost = self.useful.saturating_sub(kept);
        self.useful -= lost;
        self.recomputed = self.recomputed.saturating_add(lost);
        kept.saturating_sub(self.useful)
    }

    /// The newest state is lost: training starts again from a checkpoint that holds `kept` gradients. Of these, some may have been given up
    /// for an older one, when this one was not there: they were not computed in vain after all. Those that no worker has told any of the
    /// coordinator's lives of count as computed before. But they may be those of a worker whose count is not known yet: then they count
    /// when it comes.
    pub(super) fn resume_from_checkpoint(&mut self, kept: u64) {
        let missing = self.restart(kept);
        if self.unknown.is_empty() {
            let in_vain = self.gone.saturating_sub(self.useful).min(self.recomputed);
            let given_up = missing.min(in_vain);
            self.recomputed -= given_up;
            self.gone = self.gone.saturating_add(missing - given_up);
        } else if missing > 0 {
            self.rescued();
        }
        self.useful = self.useful.saturating_add(missing);
    }

    /// Gradients computed by the lost and by the living.
    pub(super) fn computed(&self, living: impl Iterator<Item = u64>) -> u64 {
        living.fold(self.gone, u64::saturating_add)
    }

    pub(super) fn recomputed(&self) -> u64 {
        self.recomputed
    }

    /// Gradients that were, or will be, counted as lost may live on in a joiner's state.
    pub(super) fn rescued(&mut self) {
        self.unsure = self.unsure.saturating_add(1);
    }

    /// A joiner's state is newer than that of the members, at this step: gradients of it or later ones that were counted as lost may live
    /// on.
    pub(super) fn rescued_from(&mut self, members: Step) {
        if self.recent.iter().any(|(tally, lost)| *lost > 0 && tally.step >= members) {
            self.rescued();
        }
    }

    /// Members drop gradients of the step under way, to compute them again. How many they had, they do not tell.
    pub(super) fn dropped(&mut self) {
        self.unsure = self.unsure.saturating_add(1);
    }

    pub(super) fn unknown(&self) -> u32 {
        u32::try_from(self.unknown.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.unsure)
    }
}

/// Gradients that a worker which has halted goes on computing: the one that it is at, if it has not computed all that it keeps.
fn under_way(standing: &Standing) -> u64 {
    let kept: u32 = standing.kept.iter().map(|range| range.len()).fold(0, u32::saturating_add);
    u64::from(kept > standing.tally.this_step)
}

fn useful(tallies: Vec<(Tally, u64)>) -> u64 {
    tallies.into_iter().fold(0, |sum, (tally, counted)| {
        sum.saturating_add(tally.total.saturating_sub(counted))
    })
}

/// How many of a lost worker's gradients are not part of the state at `step`.
fn lost_of(tally: Tally, step: Step) -> u64 {
    if tally.step < step {
        return 0;
    }
    let this_step = u64::from(tally.this_step);
    let lost = if tally.step == step {
        this_step
    } else {
        this_step + u64::from(tally.previous_step)
    };
    lost.min(tally.total)
}

#[cfg(test)]
mod tests;
