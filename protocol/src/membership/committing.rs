//! The end of a checkpoint: all its pieces are durable, and now its manifest is made, on each of its depots.

use super::saves::{Contents, Saving, Stage};
use super::{Command, JobEvent, Membership, Saves};
use crate::checkpoint::{DepotId, Head};
use crate::snapshot::SnapshotId;

impl Membership {
    /// All pieces are durable where they should be: now the manifest is to be.
    pub(super) fn commit(&mut self) {
        let now = self.now;
        let Some(saving) = &mut self.saving else { return };
        let to: Vec<DepotId> = saving.depots.iter().map(|one| one.depot).collect();
        saving.stage = Stage::Committing {
            awaited: to.iter().copied().collect(),
            head: None,
        };
        (saving.asked, saving.heard) = (now, now);
        self.send_commit(to);
    }

    fn send_commit(&mut self, to: Vec<DepotId>) {
        let Some(saving) = &self.saving else { return };
        let mut shares = saving.shares.values();
        let Some(first) = shares.next() else { return };
        let description = first.description.clone();
        if shares.any(|share| share.description != description) {
            return self.fail(format!(
                "two workers describe the tensors of the state at {} differently (BITS-1)",
                saving.snapshot().step
            ));
        }
        let contents = Contents {
            snapshot: saving.snapshot(),
            description,
            pieces: saving
                .shares
                .values()
                .flat_map(|share| share.pieces.iter().copied())
                .collect(),
            bytes: saving.shares.values().map(|share| share.bytes).sum(),
            replicas: self.config.saves.map_or(1, |saves| saves.replicas),
            depots: saving.depots.iter().map(|one| one.depot).collect(),
        };
        self.out.push(Command::Commit {
            to,
            contents: Box::new(contents),
        });
    }

    /// A depot has made the manifest durable. With the last of them the checkpoint is committed.
    pub(super) fn committed(&mut self, depot: DepotId, snapshot: SnapshotId, head: Head) {
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.snapshot() == snapshot) else {
            return;
        };
        let same = head.depots.iter().eq(saving.depots.iter().map(|one| &one.depot));
        let Stage::Committing { head: known, .. } = &mut saving.stage else {
            return;
        };
        if same {
            *known = Some(head);
            self.committed_by(depot);
        }
    }

    pub(super) fn committed_by(&mut self, depot: DepotId) {
        let now = self.now;
        let Some(saving) = &mut self.saving else { return };
        let Stage::Committing { awaited, head } = &mut saving.stage else {
            return;
        };
        if !awaited.remove(&depot) {
            return;
        }
        saving.heard = now;
        if let (true, Some(head)) = (awaited.is_empty(), head.clone()) {
            self.all_committed(&head);
        }
    }

    fn all_committed(&mut self, head: &Head) {
        let Some(saving) = &self.saving else { return };
        let snapshot = saving.snapshot();
        let (took, hosts) = (self.now.saturating_sub(saving.begun), saving.depots.len());
        let due = |saves: Saves| saves.every.due(self.saved.last, snapshot.step, saving.begun);
        let merged = self.config.saves.map_or(0, due).saturating_sub(1);
        self.end_saving();
        self.saved.last = (snapshot.step, self.now);
        let counts = &mut self.saved.counts;
        counts.committed += 1;
        counts.merged += merged;
        counts.largest_lag = counts.largest_lag.max(self.reached.get().saturating_sub(snapshot.step.get()));
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
        self.tell(JobEvent::Saved {
            key: head.key,
            hosts: hosts.min(head.replicas),
            wanted: head.replicas,
            took,
        });
        self.prune();
    }

    pub(super) fn commit_refused(&mut self, depot: DepotId, snapshot: SnapshotId, reason: String) {
        let committing =
            |saving: &&Saving| saving.snapshot() == snapshot && matches!(saving.stage, Stage::Committing { .. });
        if self.saving.as_ref().filter(committing).is_some() {
            self.refused(depot, snapshot.step, reason);
        }
    }
}
