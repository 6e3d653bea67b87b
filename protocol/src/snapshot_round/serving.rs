//! How joiners come to the state: which of them copy the snapshot that is served, which follow, and what its holders keep for them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::joiner::{Counts, Joiner};
use super::{Command, Facts, Kept, SnapshotRound, Stage};
use crate::limits::{COPY_STILL, MAX_COPY_ATTEMPTS};
use crate::messages::{CoordinatorMessage, Joiners, Serve, Shares};
use crate::snapshot::SnapshotId;
use crate::words::{Step, WorkerId};

/// Questions about joiners.
impl SnapshotRound {
    /// How many joiners are how far.
    pub(crate) fn counts(&self) -> Counts {
        self.joiners.counts()
    }

    /// Updates that the state of `worker` has had. None if it is no joiner.
    pub(crate) fn step_of(&self, worker: WorkerId) -> Option<Step> {
        self.joiners.get(worker).map(|joiner| joiner.step)
    }

    /// Whether `worker` is a joiner that has the state it was told to copy.
    pub(crate) fn has_loaded(&self, worker: WorkerId) -> bool {
        self.joiners.get(worker).is_some_and(|joiner| joiner.loaded)
    }

    /// Whether `worker` is a joiner that follows the ring without a lag.
    pub(crate) fn has_caught_up(&self, worker: WorkerId) -> bool {
        self.joiners.get(worker).is_some_and(|joiner| joiner.caught_up)
    }

    /// Whether joiners have waited in vain `most` times, so that all are to wait for them where they have halted anyway: workers are lost
    /// faster than others come to the state.
    pub(crate) fn is_overdue(&self, most: u32, facts: &Facts) -> bool {
        self.coming(facts).any(|(_, joiner)| joiner.attempts >= most)
    }

    /// The joiners, but for those that are kept waiting, or leave again and are not planned in.
    fn coming<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = (WorkerId, &'a Joiner)> {
        let waits = |worker, joiner: &Joiner| joiner.copies.is_none() && facts.cooling.contains(&worker);
        self.joiners
            .iter()
            .filter(move |(worker, joiner)| !facts.leaving.contains(worker) && !waits(*worker, joiner))
    }

    /// All workers that the holders of a snapshot serve: joiners, and members that have just switched and may lack the last sum.
    pub(super) fn served(&self, facts: &Facts) -> BTreeSet<WorkerId> {
        let joiners = self.coming(facts).map(|(worker, _)| worker);
        joiners.chain(facts.switching.iter().copied()).collect()
    }

    /// Whether a generation has room for more members than there are and will be once all joiners that copy have come.
    fn has_seats(&self, facts: &Facts) -> bool {
        self.counts().copying < facts.seats
    }
}

/// What happens to joiners.
impl SnapshotRound {
    /// `worker` joins, with a state at `step`.
    pub(crate) fn joins(&mut self, worker: WorkerId, step: Step) {
        self.joiners.insert(worker, step);
    }

    /// `worker` takes part now, or is gone. Nothing happens if it is no joiner.
    pub(crate) fn joins_no_more(&mut self, worker: WorkerId) {
        self.joiners.remove(worker);
    }

    /// The joiners, and what they copy, are to be looked at.
    pub(crate) fn stir(&mut self) {
        self.joiners.stir();
    }

    /// A joiner has its order to copy.
    pub(crate) fn copy_answered(&mut self, worker: WorkerId, id: SnapshotId) {
        self.joiners
            .change(worker, |joiner| joiner.answered |= joiner.copies == Some(id));
    }

    /// A worker says where its state stands, and how many bytes it has moved. False if it is no joiner.
    pub(crate) fn stands_at(&mut self, worker: WorkerId, (step, moved): (Step, u64), now: Duration) -> bool {
        let copies_anew = self.copies_anew;
        let joins = self.joiners.change(worker, |joiner| {
            joiner.step = step;
            if joiner.moved.0 != moved {
                joiner.moved = (moved, now);
            }
            // A state that it had before is as new as the snapshot, perhaps, and yet not what it copies.
            let has_changed = step != joiner.began_at || !copies_anew;
            joiner.loaded |= has_changed && joiner.copies.is_some_and(|id| step >= id.step);
            if joiner.loaded {
                joiner.follows.get_or_insert(now);
            }
        });
        joins.is_some()
    }

    /// A joiner follows the ring without a lag.
    pub(crate) fn caught_up(&mut self, worker: WorkerId, id: SnapshotId, step: Step) {
        let news = self.joiners.change(worker, |joiner| {
            let copies = joiner.copies == Some(id);
            if copies {
                joiner.answered = true;
                joiner.step = joiner.step.max(step);
                joiner.loaded = true;
            }
            copies && !std::mem::replace(&mut joiner.caught_up, true)
        });
        if news == Some(true) {
            self.out.push(Command::CaughtUp { worker, step });
        }
    }

    /// A joiner could not copy.
    pub(crate) fn copy_failed(&mut self, worker: WorkerId, id: SnapshotId, reason: String) {
        let failed = self.joiners.change(worker, |joiner| {
            let copies = joiner.copies == Some(id);
            if copies {
                joiner.failed = Some(id);
            }
            copies
        });
        // What it says of an earlier one is no news.
        if failed == Some(true) {
            self.out.push(Command::Unplan { worker });
            self.copied_in_vain(worker, reason);
        }
    }

    /// A joiner's copy will not become a state. After some such times it is waited for.
    fn copied_in_vain(&mut self, worker: WorkerId, reason: String) {
        let again = self.joiners.change(worker, |joiner| {
            joiner.forget_copy();
            joiner.attempts += 1;
            joiner.attempts < MAX_COPY_ATTEMPTS
        });
        let Some(again) = again else { return };
        self.out.push(Command::JoinsAnew { worker, reason });
        if !again {
            self.out.push(Command::Hold { worker });
        }
    }

    /// All halt, and a snapshot that is being taken will not be whole: joiners that wait for it have waited in vain.
    pub(crate) fn broken_off(&mut self) {
        if !matches!(self.stage, Stage::Idle | Stage::Serving { .. }) {
            self.joiners.change_all(|joiner| joiner.attempts += 1);
        }
    }

    /// A holder has dropped what it held of this snapshot.
    pub(crate) fn dropped(&mut self, worker: WorkerId, id: SnapshotId, facts: &Facts) {
        if self.taken().is_some_and(|taken| taken.id == id) {
            self.gone(worker, facts);
        }
    }

    /// A worker is gone, or has dropped what it held.
    pub(crate) fn gone(&mut self, worker: WorkerId, facts: &Facts) {
        let (Stage::Collecting { taken, .. } | Stage::Serving { taken, .. }) = &mut self.stage else {
            return;
        };
        if !taken.gone(worker) {
            return;
        }
        let is_whole = taken.is_whole();
        let coming: Vec<(WorkerId, bool)> = self
            .coming(facts)
            .map(|(worker, joiner)| (worker, joiner.copies.is_some()))
            .collect();
        if is_whole {
            coming.into_iter().for_each(|(worker, _)| self.order_copy(worker, facts));
            return self.settle(facts);
        }
        for (worker, _) in coming.into_iter().filter(|(_, copies)| *copies) {
            self.out.push(Command::Unplan { worker });
            self.copied_in_vain(worker, "both holders of a share are gone".to_owned());
        }
        self.end(facts);
    }
}

/// Which joiners copy, and what is kept for them.
impl SnapshotRound {
    /// Whether a look at the joiners may change anything: one has come, gone or failed since the last look, or a save is due.
    pub(crate) fn is_to_be_looked_at(&mut self, save_due: bool) -> bool {
        self.joiners.take_stirred() || (save_due && matches!(self.stage, Stage::Idle))
    }

    /// Takes joiners in, as far as that goes at the moment: asks for a snapshot where one is needed, gives one up that is not.
    pub(crate) fn look(&mut self, facts: &Facts) {
        let waiting = self.has_seats(facts) && self.coming(facts).any(|(_, joiner)| joiner.copies.is_none());
        let needed = waiting || facts.save_due;
        match &self.stage {
            Stage::Idle if needed => self.make_room(facts),
            Stage::Collecting { .. } | Stage::Serving { .. } if facts.is_last => {}
            Stage::MakingRoom { .. } | Stage::Asked { .. } | Stage::Collecting { .. } if !needed => self.end(facts),
            Stage::Serving { taken, .. } if !self.is_copied(taken.id, facts) => {
                self.end(facts);
                if needed {
                    self.make_room(facts);
                }
            }
            Stage::Idle
            | Stage::MakingRoom { .. }
            | Stage::Asked { .. }
            | Stage::Collecting { .. }
            | Stage::Serving { .. } => {}
        }
    }

    fn is_copied(&self, id: SnapshotId, facts: &Facts) -> bool {
        self.coming(facts).any(|(_, joiner)| joiner.copies == Some(id))
    }

    /// A snapshot is there: its holders are told which workers they serve, and all joiners copy it.
    pub(super) fn share(&mut self, facts: &Facts) {
        let copying = self.let_copy(facts);
        let served = self.served(facts);
        let Stage::Serving { taken, kept, named } = &mut self.stage else {
            return;
        };
        named.clone_from(&served);
        let serve = Serve {
            joiners: Joiners::Only(served.into_iter().collect()),
            snapshot: Some(taken.id),
            shares: kept.shares,
            sums_from: kept.sums_from,
        };
        let holders: Vec<WorkerId> = taken.all().collect();
        self.serve(holders, &serve);
        copying.into_iter().for_each(|worker| self.order_copy(worker, facts));
    }

    /// Tells those of `workers` that are no joiners themselves.
    pub(super) fn serve(&mut self, workers: impl IntoIterator<Item = WorkerId>, serve: &Serve) {
        for worker in workers {
            if !self.joiners.contains(worker) {
                self.send(worker, CoordinatorMessage::Serve(serve.clone()));
            }
        }
    }

    /// All joiners copy the snapshot that is served, as far as there is room for them among the members. Returns joiners that did not
    /// before.
    fn let_copy(&mut self, facts: &Facts) -> Vec<WorkerId> {
        let Stage::Serving { taken, .. } = &self.stage else {
            return Vec::new();
        };
        let id = taken.id;
        let joiners: Vec<WorkerId> = self
            .coming(facts)
            .filter(|(_, one)| one.copies != Some(id) && one.failed != Some(id))
            .map(|(worker, _)| worker)
            .collect();
        let begins = |joiner: &mut Joiner| {
            joiner.copies = Some(id);
            joiner.began_at = joiner.step;
            joiner.loaded = false;
            joiner.follows = None;
            joiner.caught_up = false;
        };
        let mut copying = Vec::new();
        for worker in joiners {
            if self.has_seats(facts) && self.joiners.change(worker, begins).is_some() {
                copying.push(worker);
            }
        }
        copying
    }

    /// Tells a joiner that copies what to copy, and from which holders.
    pub(crate) fn order_copy(&mut self, worker: WorkerId, facts: &Facts) {
        let Stage::Serving { taken, .. } = &self.stage else {
            return;
        };
        let copies = self.joiners.get(worker).is_some_and(|joiner| joiner.copies == Some(taken.id));
        if let Some(order) = taken.order().filter(|_| copies) {
            self.joiners.change(worker, |joiner| {
                joiner.answered = false;
                joiner.asked = facts.now;
            });
            self.send(worker, CoordinatorMessage::Copy(Box::new(order)));
        }
    }

    /// Time passes: lets go of what no joiner needs any more, and says again what may have been lost.
    pub(crate) fn tend(&mut self, facts: &Facts) {
        self.tend_taking(facts);
        if facts.switching.is_empty() {
            self.tend_copying(facts);
        }
    }

    fn tend_copying(&mut self, facts: &Facts) {
        let Stage::Serving { taken, kept, .. } = &self.stage else {
            return;
        };
        let id = taken.id;
        let whole = Kept {
            shares: Shares::Keep,
            sums_from: id.step,
        };
        // Nothing of it is let go yet, so that joiners that have come since can copy it too.
        let came = if *kept == whole && facts.takes_in {
            self.let_copy(facts)
        } else {
            Vec::new()
        };
        let kept = if facts.last_to_save {
            whole
        } else {
            self.needed(id, facts).unwrap_or(whole)
        };
        let late = self.late(id, facts);
        self.serve_changes(kept, facts);
        came.into_iter().chain(late).for_each(|worker| self.order_copy(worker, facts));
        self.hold_the_slow(facts);
    }

    /// What joiners that copy the snapshot need of it still, if not all.
    fn needed(&self, id: SnapshotId, facts: &Facts) -> Option<Kept> {
        let copying = || self.coming(facts).filter(|(_, joiner)| joiner.copies == Some(id));
        let from = copying().map(|(_, joiner)| joiner.step.max(id.step)).min();
        copying().all(|(_, joiner)| joiner.loaded).then_some(Kept {
            shares: Shares::Drop,
            sums_from: from.unwrap_or(id.step),
        })
    }

    /// Joiners that have not answered the order to copy, or have moved nothing for long: that their copy has failed may have been lost on the way.
    fn late(&self, id: SnapshotId, facts: &Facts) -> Vec<WorkerId> {
        let is_late = |joiner: &Joiner| {
            let has_not_moved = |most| !joiner.loaded && joiner.is_still_for(facts.now) >= most;
            let is_late = if joiner.answered {
                has_not_moved(facts.resend_patience * COPY_STILL)
            } else {
                facts.now.saturating_sub(joiner.asked) >= facts.resend_patience
            };
            joiner.copies == Some(id) && is_late
        };
        let late = self.coming(facts).filter(|(_, joiner)| is_late(joiner));
        late.map(|(worker, _)| worker).collect()
    }

    /// Tells the holders of the snapshot that is served what has changed: which workers they serve, and what of it is needed.
    fn serve_changes(&mut self, needed: Kept, facts: &Facts) {
        let served = self.served(facts);
        let Stage::Serving { taken, kept, named } = &mut self.stage else {
            return;
        };
        let came: Vec<WorkerId> = served.difference(named).copied().collect();
        let gone: Vec<WorkerId> = named.difference(&served).copied().collect();
        if *kept == needed && came.is_empty() && gone.is_empty() {
            return;
        }
        (*kept, *named) = (needed, served);
        let (holders, id): (Vec<WorkerId>, _) = (taken.all().collect(), taken.id);
        let serve = Serve {
            joiners: Joiners::Changed { came, gone },
            snapshot: Some(id),
            shares: needed.shares,
            sums_from: needed.sums_from,
        };
        self.serve(holders, &serve);
    }

    /// A joiner whose lag does not shrink would never join. One that stands where the members stand has none: a step may take minutes.
    fn hold_the_slow(&mut self, facts: &Facts) {
        let too_long = |joiner: &Joiner| {
            let lags = joiner.loaded && !joiner.caught_up && joiner.step < facts.reached;
            let follows = joiner.follows.filter(|_| lags);
            follows.is_some_and(|since| facts.now.saturating_sub(since) >= facts.catch_up_patience)
        };
        let slow = self
            .coming(facts)
            .find(|(_, joiner)| too_long(joiner))
            .map(|(worker, _)| worker);
        if let Some(worker) = slow {
            self.out.push(Command::Hold { worker });
        }
    }
}
