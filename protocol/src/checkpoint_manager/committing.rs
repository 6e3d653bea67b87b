//! The end of a checkpoint: all its pieces are durable, and now its manifest is made, on each of its depots.

use super::saves::{Contents, Saving, Stage};
use super::{CheckpointEvent, CheckpointManager, Command, Facts, Saves};
use crate::checkpoint::{DepotId, Head, ManifestKey, Placing};
use crate::limits::{COMMIT_MOST, SAVE_PATIENCE};
use crate::snapshot::SnapshotId;
use crate::words::Incarnation;

impl CheckpointManager {
    /// All pieces are durable where they should be: now the manifest is to be.
    pub(super) fn commit(&mut self, facts: &Facts) {
        let now = facts.now;
        let Some(saving) = &mut self.saving else { return };
        let to: Vec<DepotId> = saving.depots.iter().map(|one| one.depot).collect();
        saving.stage = Stage::Committing {
            awaited: to.iter().copied().collect(),
            head: None,
        };
        (saving.asked, saving.heard) = (now, now);
        self.send_commit(to, facts);
    }

    fn send_commit(&mut self, to: Vec<DepotId>, facts: &Facts) {
        let Some(saving) = &self.saving else { return };
        let Some(first) = saving.shares.values().next() else { return };
        let description = first.described.description.clone();
        let contents = Contents {
            snapshot: saving.snapshot(),
            description,
            pieces: saving
                .shares
                .values()
                .flat_map(|share| share.pieces.iter().copied())
                .collect(),
            bytes: saving.shares.values().fold(0, |sum, share| sum.saturating_add(share.bytes)),
            replicas: self.rules.saves.map_or(1, |saves| saves.replicas),
            depots: saving.depots.iter().map(|one| one.depot).collect(),
            placing: self.placing(saving.attempt, facts),
        };
        self.out.push(Command::Commit {
            to,
            contents: Box::new(contents),
        });
    }

    /// A depot has made the manifest durable. With the last of them the checkpoint is committed.
    pub(super) fn committed(&mut self, depot: DepotId, snapshot: SnapshotId, head: Head, facts: &Facts) {
        let (incarnation, placing) = (self.incarnation(facts), head.placing);
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot) else {
            return;
        };
        let same = placing.incarnation == incarnation && placing.number == saving.attempt;
        let Stage::Committing { head: known, .. } = &mut saving.stage else {
            return;
        };
        if same {
            *known = Some(Box::new(head));
            self.committed_by(depot, facts);
        }
    }

    pub(super) fn committed_by(&mut self, depot: DepotId, facts: &Facts) {
        let now = facts.now;
        let Some(saving) = &mut self.saving else { return };
        let Stage::Committing { awaited, head } = &mut saving.stage else {
            return;
        };
        if !awaited.remove(&depot) {
            return;
        }
        saving.heard = now;
        if let (true, Some(head)) = (awaited.is_empty(), head.clone()) {
            self.all_committed(&head, facts);
        }
    }

    fn all_committed(&mut self, head: &Head, facts: &Facts) {
        let Some(saving) = &self.saving else { return };
        let snapshot = saving.snapshot();
        let (took, hosts) = (facts.now.saturating_sub(saving.begun), saving.depots.len());
        let due = |saves: Saves| saves.every.due(self.saved.last, snapshot.step, saving.begun);
        let merged = self.rules.saves.map_or(0, due).saturating_sub(1);
        self.end_saving();
        self.saved.last = (snapshot.step, facts.now);
        let counts = &mut self.saved.counts;
        counts.committed += 1;
        counts.merged += merged;
        counts.largest_lag = counts
            .largest_lag
            .max(facts.reached.get().saturating_sub(snapshot.step.get()));
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
        self.tell(CheckpointEvent::Saved {
            key: head.key,
            hosts: hosts.min(head.replicas),
            wanted: head.replicas,
            took,
        });
        self.prune();
    }

    /// A depot that is to make the manifest durable is not done yet.
    pub(super) fn still_committing(&mut self, depot: DepotId, snapshot: SnapshotId, placing: Placing, facts: &Facts) {
        let incarnation = self.incarnation(facts);
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot) else {
            return;
        };
        let same = placing.incarnation == incarnation && placing.number == saving.attempt;
        if let Stage::Committing { awaited, .. } = &saving.stage
            && same
            && awaited.contains(&depot)
            && facts.now.saturating_sub(saving.asked) < COMMIT_MOST
        {
            saving.heard = facts.now;
        }
    }

    pub(super) fn commit_refused(
        &mut self,
        depot: DepotId,
        snapshot: SnapshotId,
        placing: Placing,
        reason: String,
        facts: &Facts,
    ) {
        let committing = |saving: &&Saving| saving.snapshot() == snapshot && saving.is_committing();
        let attempt = self.saving.as_ref().filter(committing).map(|saving| saving.attempt);
        // What is said of an earlier placing says nothing of this one.
        if attempt.is_some_and(|attempt| self.placing(attempt, facts) == placing) {
            self.refused(depot, snapshot.step, reason, facts);
        }
    }

    /// The checkpoint of which a depot has made the manifest durable and lacks some again.
    pub(super) fn lost_while_committing(&self, depot: DepotId) -> Option<ManifestKey> {
        let saving = self.saving.as_ref()?;
        let Stage::Committing {
            awaited,
            head: Some(head),
        } = &saving.stage
        else {
            return None;
        };
        let counted = saving.depots.iter().any(|one| one.depot == depot) && !awaited.contains(&depot);
        (counted && !self.has_whole(depot, head.key)).then_some(head.key)
    }

    /// Depots that do not answer for long hold up all others: they are done without.
    pub(super) fn commit_without_the_silent(&mut self, facts: &Facts) {
        let Some(saving) = &self.saving else { return };
        let Stage::Committing { awaited, .. } = &saving.stage else {
            return;
        };
        let (silent, step) = (awaited.clone(), saving.snapshot().step);
        for depot in silent {
            let reason = format!(
                "it has not said for {} s whether the manifest is durable",
                SAVE_PATIENCE.as_secs()
            );
            self.done_without(depot, step, reason, facts);
        }
    }

    /// The name of a placing.
    pub(super) fn placing(&self, number: u32, facts: &Facts) -> Placing {
        Placing {
            incarnation: self.incarnation(facts),
            number,
        }
    }

    fn incarnation(&self, facts: &Facts) -> Incarnation {
        facts.generation.incarnation()
    }
}
