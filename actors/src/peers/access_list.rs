//! The workers that this worker serves bytes to: those that its coordinator has named. Not being named is revocation (SEC-1).

use std::collections::BTreeSet;

use sardana_protocol::words::WorkerId;

use crate::watched::Watched;

/// As what a worker is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerGroup {
    /// Members of the generation that this worker is in.
    Present,
    /// Members of the generation that is prepared.
    Prepared,
    /// Workers that copy the state to join.
    Joiners,
    /// Workers that load a checkpoint together with this one.
    Restoring,
}

#[derive(Debug, Default)]
struct Named {
    present: BTreeSet<WorkerId>,
    prepared: BTreeSet<WorkerId>,
    joiners: BTreeSet<WorkerId>,
    restoring: BTreeSet<WorkerId>,
    /// All that were ever named and are not parted with yet.
    known: BTreeSet<WorkerId>,
}

impl Named {
    fn has(&self, worker: WorkerId) -> bool {
        [&self.present, &self.prepared, &self.joiners, &self.restoring]
            .iter()
            .any(|group| group.contains(&worker))
    }

    fn learn(&mut self) {
        let Self {
            present,
            prepared,
            joiners,
            restoring,
            known,
        } = self;
        let all = [present, prepared, joiners, restoring];
        known.extend(all.into_iter().flat_map(|group| group.iter()));
    }
}

#[derive(Debug, Default)]
pub(super) struct AccessList {
    named: Watched<Named>,
    /// How many wait for a change.
    #[cfg(test)]
    asked: std::sync::Arc<()>,
}

impl AccessList {
    /// From now on these are named so, and no other worker is.
    pub(super) fn name(&self, group: PeerGroup, workers: BTreeSet<WorkerId>) {
        self.named.modify(|named| {
            match group {
                PeerGroup::Present => named.present = workers,
                PeerGroup::Prepared => named.prepared = workers,
                PeerGroup::Joiners => named.joiners = workers,
                PeerGroup::Restoring => named.restoring = workers,
            }
            named.learn();
        });
    }

    /// The prepared generation is the present one.
    pub(super) fn switch(&self) {
        self.named.modify(|named| named.present = std::mem::take(&mut named.prepared));
    }

    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.named.read(|named| named.has(worker))
    }

    /// Workers that were named once and are no more; each is told of once.
    pub(super) fn parted(&self) -> Vec<WorkerId> {
        self.named.modify_quietly(|named| {
            let parted: Vec<WorkerId> = named.known.iter().copied().filter(|&worker| !named.has(worker)).collect();
            named.known.retain(|worker| !parted.contains(worker));
            parted
        })
    }

    /// Waits until `worker`, which has asked for nothing yet, is named.
    pub(super) async fn learned(&self, worker: WorkerId) {
        self.named.find(|named| named.has(worker).then_some(())).await;
    }

    /// Waits until `worker` is named.
    pub(super) async fn named(&self, worker: WorkerId) {
        self.wait_for(|named| named.has(worker).then_some(())).await;
    }

    /// Waits until `worker` is not named any more.
    pub(super) async fn revoked(&self, worker: WorkerId) {
        self.wait_for(|named| (!named.has(worker)).then_some(())).await;
    }

    async fn wait_for(&self, holds: impl FnMut(&Named) -> Option<()>) {
        #[cfg(test)]
        let _asked = std::sync::Arc::clone(&self.asked);
        self.named.find(holds).await;
    }
}

#[cfg(test)]
impl AccessList {
    /// How many requests wait for a change of the names, or would end by one.
    pub(super) fn asked(&self) -> usize {
        std::sync::Arc::strong_count(&self.asked) - 1
    }
}
