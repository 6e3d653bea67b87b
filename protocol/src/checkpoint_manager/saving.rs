//! A checkpoint under way: the holders of a snapshot write their shares to depots, and once all is durable there, its manifest is.
//!
//! ```text
//!        a snapshot is whole              all shares Saved            all Committed
//!  None ────────────────────▶ Writing ────────────────────▶ Committing ────────────▶ None
//!                              │  ▲ │                             │
//!                 both holders │  └─┴─────────────────────────────┘
//!                 of a share   ▼   a depot is gone, comes, or refuses: anew, on those that are there
//!                 are gone   None
//! ```
//! It outlives generations, as a snapshot round does: whatever happens to the ring, the copies of a snapshot stay as they are. One
//! is under way at a time; what becomes due meanwhile is the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::depot::Depot;
use super::saves::{Saving, Stage, Written, WrittenPart};
use super::{CheckpointEvent, CheckpointManager, Command, Facts};
use crate::checkpoint::DepotId;
use crate::holders::Taken;
use crate::laggards::Laggards;
use crate::limits::{DEPOT_TELLS, RESEND, SAVE_ATTEMPTS, SAVE_PATIENCE};
use crate::messages::{CoordinatorMessage, DepotOrder, Save, Shares};
use crate::planted::{Bug, bites};
use crate::snapshot::SnapshotId;
use crate::state::share_hash;
use crate::words::{Step, WorkerId};

impl CheckpointManager {
    /// Whether there is a place for checkpoints.
    pub(crate) fn can_save(&self, facts: &Facts) -> bool {
        self.rules.saves.is_some() && !self.targets(facts).is_empty()
    }

    /// Whether the state at `step` is durable.
    pub(crate) fn is_saved(&self, step: Step) -> bool {
        self.rules.saves.is_some() && self.saved.last.0 >= step
    }

    /// A checkpoint is wanted at once, of the state at `step` or a later one.
    pub(crate) fn want(&mut self, step: Step) {
        self.saved.wanted = Some(step);
    }

    /// No checkpoint is wanted at once any more.
    pub(crate) fn want_no_more(&mut self) {
        self.saved.wanted = None;
    }

    /// Whether a checkpoint is wanted at once.
    pub(crate) fn is_wanted(&self) -> bool {
        self.saved.wanted.is_some()
    }

    /// Whether a checkpoint is under way.
    pub(crate) fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// A holder has come further with hashing a snapshot, or is done.
    pub(crate) fn hashed(&mut self, now: Duration) {
        self.saved.hashed = now;
    }

    /// Whether a checkpoint is to be taken as soon as that is possible.
    pub(crate) fn is_save_due(&self, facts: &Facts) -> bool {
        let Some(saves) = self.rules.saves.filter(|_| self.saving.is_none()) else {
            return false;
        };
        let asked = self.saved.wanted.is_some() || saves.every.is_due(self.saved.last, facts.reached, facts.now);
        asked && facts.reached > self.saved.last.0 && !self.targets(facts).is_empty()
    }

    /// A snapshot is whole. If a checkpoint is due, or this is the end of the job, it becomes one.
    pub(crate) fn save_if_due(&mut self, taken: &Taken, facts: &Facts) {
        let due = self.is_save_due(facts) || self.is_last(taken.id.step, facts);
        let depots = self.targets(facts);
        if self.rules.saves.is_none() || self.saving.is_some() || !due || depots.is_empty() {
            return;
        }
        if self.is_last(taken.id.step, facts) && self.awaits_hosts(taken.id, depots.len(), facts) {
            return;
        }
        self.saved.wanted = None;
        self.saved.tried = Some(taken.id);
        self.end_replicating();
        self.saving = Some(Saving {
            taken: taken.clone(),
            attempt: 0,
            tries: 0,
            depots,
            refused: BTreeSet::new(),
            accused: BTreeMap::new(),
            shares: BTreeMap::new(),
            others: Laggards::new(facts.now),
            stage: Stage::Writing,
            asked: facts.now,
            heard: facts.now,
            begun: facts.now,
        });
        self.write_anew(facts);
    }

    /// Whether the last checkpoint, which would be on so many hosts, waits for depots that have come and are about to tell what they keep:
    /// no later one makes up for a host that it is not on.
    fn awaits_hosts(&mut self, snapshot: SnapshotId, hosts: usize, facts: &Facts) -> bool {
        let wanted = self.rules.saves.map_or(0, |saves| saves.replicas as usize);
        let come = self.depots.values().any(Depot::is_about_to_tell);
        if hosts >= wanted || !come {
            return false;
        }
        let held = self.saved.held_back.filter(|(held, _)| *held == snapshot);
        let (_, since) = *self.saved.held_back.insert(held.unwrap_or((snapshot, facts.now)));
        facts.now.saturating_sub(since) < DEPOT_TELLS
    }

    /// Orders all shares to be written, from the beginning, to the depots that are there now.
    pub(super) fn write_anew(&mut self, facts: &Facts) {
        let depots = self.targets(facts);
        let Some(saving) = &mut self.saving else { return };
        saving.shares.clear();
        saving.accused.clear();
        if depots.is_empty() {
            return self.give_up_saving("no checkpoint actor is there that could keep it", facts);
        }
        if !saving.has_writers() {
            return self.give_up_saving("both holders of a share are gone", facts);
        }
        self.saved.attempt += 1;
        saving.attempt = self.saved.attempt;
        saving.tries += 1;
        if saving.tries > SAVE_ATTEMPTS {
            return self.give_up_saving("it failed time and again", facts);
        }
        saving.depots = depots;
        saving.stage = Stage::Writing;
        saving.others = Laggards::new(facts.now);
        saving.heard = facts.now;
        self.name_to_depots();
        self.send_saves(facts);
    }

    /// Tells holders what to write. At first all of them: a holder that writes nothing keeps what it holds, since a writer may be lost.
    pub(super) fn send_saves(&mut self, facts: &Facts) {
        let now = facts.now;
        let Some(saving) = &mut self.saving else { return };
        let all = saving.asked < saving.heard || saving.tries == 1 && saving.asked == saving.begun;
        saving.asked = now;
        let replicas = self.rules.saves.map_or(1, |saves| saves.replicas);
        let (snapshot, attempt, depots) = (saving.snapshot(), saving.attempt, saving.depots.clone());
        for (worker, shares) in saving.orders().into_iter().filter(|(_, shares)| all || !shares.is_empty()) {
            let save = Save {
                snapshot,
                attempt,
                shares,
                depots: depots.clone(),
                replicas,
            };
            self.send(worker, CoordinatorMessage::Save(Box::new(save)));
        }
    }

    /// A holder says that a share is written, or a part of that.
    pub(crate) fn share_saved(&mut self, worker: WorkerId, snapshot: SnapshotId, part: WrittenPart, facts: &Facts) {
        let now = facts.now;
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot) else {
            return self.send(worker, CoordinatorMessage::SaveOver { snapshot });
        };
        if let Some(flaw) = saving.flaw_of(&part) {
            return self.out.push(Command::Senseless { worker, said: flaw });
        }
        let writes = saving.writer(part.share) == Some(worker);
        let other = part.attempt != saving.attempt && !bites(Bug::StaleSaved);
        if other || !writes || !matches!(saving.stage, Stage::Writing) {
            return;
        }
        saving.heard = now;
        let written = saving.shares.entry(part.share).or_insert_with(|| Written {
            by: worker,
            bytes: part.bytes,
            described: part.described.clone(),
            pieces: Vec::new(),
            whole: false,
        });
        if written.whole || part.start != written.pieces.len() as u64 {
            // It begins anew: what it said before fell into a connection that broke, or was said twice.
            return;
        }
        // What it says of the whole state it says with each part.
        written.described = part.described;
        written.pieces.extend(part.pieces);
        written.whole = part.is_last;
        if !part.is_last {
            return;
        }
        let hash = share_hash(written.bytes, &written.pieces);
        if saving.taken.share(part.share) != Some(hash) && !bites(Bug::WrongPieces) {
            let reason = format!(
                "worker {worker} wrote share {} of the state at {} with other bytes than it had copied",
                part.share, snapshot.step
            );
            saving.shares.remove(&part.share);
            return self.without_writers(&[worker], &reason, facts);
        }
        saving.one_more_is_whole(now);
        if saving.is_written() {
            self.commit_if_sound(facts);
        }
    }

    /// A depot could not keep what it should: it is written anew without it.
    pub(super) fn refused(&mut self, depot: DepotId, step: Step, reason: String, facts: &Facts) {
        self.done_without(depot, step, reason, facts);
        self.write_anew(facts);
    }

    /// A depot is done without, for this checkpoint and for a while.
    pub(super) fn done_without(&mut self, depot: DepotId, step: Step, reason: String, facts: &Facts) {
        let now = facts.now;
        if let Some(known) = self.depots.get_mut(&depot) {
            known.failed(now);
        }
        self.tell(CheckpointEvent::DepotRefused { depot, step, reason });
        if let Some(saving) = &mut self.saving {
            saving.refused.insert(depot);
        }
    }

    /// A holder is still writing.
    pub(crate) fn still_saving(&mut self, worker: WorkerId, snapshot: SnapshotId, attempt: u32, facts: &Facts) {
        let saving = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot);
        if let Some(saving) = saving.filter(|saving| saving.attempt == attempt && saving.owes(worker)) {
            saving.heard = facts.now;
        }
    }

    /// A holder could not write.
    pub(crate) fn not_saved(
        &mut self,
        worker: WorkerId,
        snapshot: SnapshotId,
        attempt: u32,
        depot: Option<DepotId>,
        reason: String,
        facts: &Facts,
    ) {
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot) else {
            return;
        };
        if saving.attempt != attempt {
            return;
        }
        match depot {
            // Each costs the other holders work.
            Some(depot) if !saving.may_accuse(worker, depot) => {}
            Some(depot) => {
                saving.accused.entry(depot).or_default().insert(worker);
                self.accused(depot, reason, facts);
            }
            None => self.saver_gone(worker, facts),
        }
    }

    /// A worker could not write to a depot. A worker that another can stand in for may be the only one that is cut off from it.
    fn accused(&mut self, depot: DepotId, reason: String, facts: &Facts) {
        let Some(saving) = &mut self.saving else { return };
        let agreed = saving.accused.get(&depot).is_some_and(|workers| workers.len() > 1);
        if agreed || !saving.has_writers() {
            let step = saving.snapshot().step;
            return self.refused(depot, step, reason, facts);
        }
        saving.drop_halves(facts.now);
        self.send_saves(facts);
    }

    /// A worker is gone, or has nothing of the snapshot any more: another holder writes what it was to write.
    pub(crate) fn saver_gone(&mut self, worker: WorkerId, facts: &Facts) {
        let Some(saving) = &mut self.saving else { return };
        if !saving.taken.gone(worker) || !matches!(saving.stage, Stage::Writing) {
            return;
        }
        saving.drop_halves(facts.now);
        let step = saving.snapshot().step;
        if saving.has_writers() {
            return self.send_saves(facts);
        }
        // Only holders that cannot reach a depot are left: it is tried without that depot.
        if let Some(&depot) = saving.accused.keys().next() {
            let reason = "the only workers that have a share cannot reach it".to_owned();
            return self.refused(depot, step, reason, facts);
        }
        self.give_up_saving("both holders of a share are gone", facts);
    }

    /// A depot came or went: what is under way is done anew if it was to be there, or stands in for too few.
    pub(super) fn save_elsewhere(&mut self, depot: DepotId, facts: &Facts) {
        let concerns = |saving: &&Saving| saving.depots.iter().any(|one| one.depot == depot);
        if self.saving.as_ref().filter(concerns).is_none() {
            return;
        }
        if bites(Bug::GoneDepotCounts) && self.saving.as_ref().is_some_and(Saving::is_committing) {
            return self.committed_by(depot, facts);
        }
        self.write_anew(facts);
    }

    pub(super) fn give_up_saving(&mut self, reason: &str, facts: &Facts) {
        let Some(step) = self.saving.as_ref().map(|saving| saving.snapshot().step) else {
            return;
        };
        // The last checkpoint is tried again: what a depot has of it by then must not be taken away by an order that comes late.
        self.end_writing(if self.is_last(step, facts) {
            Shares::Keep
        } else {
            Shares::Drop
        });
        self.saved.counts.given_up += 1;
        let reason = reason.to_owned();
        self.tell(CheckpointEvent::NotSaved { step, reason });
    }

    pub(super) fn end_saving(&mut self) {
        self.end_writing(Shares::Drop);
    }

    /// Nothing is written any more. `shares`: what becomes of what depots have of them.
    fn end_writing(&mut self, shares: Shares) {
        let Some(saving) = self.saving.take() else { return };
        let snapshot = saving.snapshot();
        // Also workers that were cut off for a while: they keep it still.
        for worker in saving.taken.all() {
            self.send(worker, CoordinatorMessage::SaveOver { snapshot });
        }
        if shares == Shares::Keep {
            return;
        }
        for depot in self.depots.keys().copied().collect::<Vec<_>>() {
            self.order(depot, DepotOrder::Release { snapshot });
        }
    }

    /// Says again what may have been lost.
    pub(crate) fn tend_saving(&mut self, kept: Option<&Taken>, facts: &Facts) {
        let now = facts.now;
        let Some(saving) = &self.saving else {
            return self.save_the_last(kept, facts);
        };
        if now.saturating_sub(saving.heard) >= SAVE_PATIENCE {
            self.commit_without_the_silent(facts);
            return self.write_anew(facts);
        }
        let late = saving.late(now);
        if !late.is_empty() {
            let reason = format!("{late:?} took many times as long as others to write what they hold, and are not done");
            return self.without_writers(&late, &reason, facts);
        }
        // Writing takes long, and a holder that is asked in vain is soon known to be gone: there is no hurry.
        if now.saturating_sub(saving.asked) < RESEND * 10 {
            return;
        }
        // Manifests are long, and a depot whose connection holds has got its own.
        if !saving.is_committing() {
            self.send_saves(facts);
        }
    }

    /// Whether a checkpoint of a newer state than `newest` is about to be committed.
    pub(super) fn is_committing_beyond(&self, newest: Step) -> bool {
        let saving = self.saving.as_ref().filter(|saving| saving.is_committing());
        saving.is_some_and(|saving| saving.snapshot().step > newest)
    }
}
