//! A checkpoint that is on too few hosts is placed on all that are there, once they have been there for a while. Its new manifest names
//! the new depots, and takes the place of the old one. Where a depot that is there has lost some of it, that is fetched again: then all is as
//! it was.
//!
//! One at a time, the newest first, and only while none is being written: what is new matters more.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{JobEvent, Membership};
use crate::checkpoint::{DepotId, Head, ManifestKey};
use crate::limits::{DEPOT_GONE, DEPOTS_SETTLE, SAVE_PATIENCE};
use crate::messages::{DepotOrder, Told};

/// What is known of that.
#[derive(Debug, Clone, Default)]
pub(super) struct Replicating {
    /// When a depot last came, went, or could not do what it should.
    restless: Duration,
    order: Option<Fetching>,
}

/// An order to all depots that a checkpoint is placed on.
#[derive(Debug, Clone)]
struct Fetching {
    old: Head,
    depots: Vec<DepotId>,
    awaited: BTreeSet<DepotId>,
    begun: Duration,
    heard: Duration,
}

impl Membership {
    /// The depots are others than before, or one failed: what is under way is given up, and nothing begins for a while.
    pub(super) fn depots_are_restless(&mut self) {
        self.replicating = Replicating {
            restless: self.now,
            order: None,
        };
    }

    /// A checkpoint is to be written: that comes first.
    pub(super) fn end_replicating(&mut self) {
        self.replicating.order = None;
    }

    /// Places the newest checkpoint that needs it on all depots that are there.
    pub(super) fn tend_replicas(&mut self) {
        if let Some(order) = &self.replicating.order {
            // Whoever is at it for so long may be; but nobody knows.
            if self.now.saturating_sub(order.heard) >= SAVE_PATIENCE * 4 {
                self.depots_are_restless();
            }
            return;
        }
        let quiet = self.now.saturating_sub(self.replicating.restless);
        let told = self.depots.values().all(|depot| depot.told == Told::All);
        let Some(saves) = self
            .config
            .saves
            .filter(|_| self.saving.is_none() && told && quiet >= DEPOTS_SETTLE)
        else {
            return;
        };
        let targets = self.targets();
        let depots: Vec<DepotId> = targets.iter().map(|one| one.depot).collect();
        let mut kept = self.kept_checkpoints();
        // What has expired is being deleted.
        let keys: Vec<ManifestKey> = kept.iter().map(|head| head.key).collect();
        let expired = saves.keep.expired(|key: ManifestKey| key.step, &keys);
        kept.retain(|head| !expired.contains(&head.key));
        let Some(old) = kept.into_iter().rfind(|head| self.is_on_too_few(head, depots.len(), quiet)) else {
            return;
        };
        self.name_to_depots();
        for &depot in &depots {
            let (snapshot, key, depots) = (old.snapshot, old.key, targets.clone());
            self.order(depot, DepotOrder::Fetch { snapshot, key, depots });
        }
        self.replicating.order = Some(Fetching {
            old,
            awaited: depots.iter().copied().collect(),
            depots,
            begun: self.now,
            heard: self.now,
        });
    }

    /// Whether a complete checkpoint is on fewer hosts than it could be, with so many there. Who is gone may come back for a while; who is
    /// there and has lost something does not get it back by itself.
    fn is_on_too_few(&self, head: &Head, targets: usize, quiet: Duration) -> bool {
        let wanted = (head.replicas.max(1) as usize).min(targets);
        let whole = head.depots.iter().filter(|depot| self.has_whole(**depot, head.key)).count();
        let all_there = head.depots.iter().all(|depot| self.depots.contains_key(depot));
        let lacks = whole < head.depots.len() && targets >= 2 && (all_there || quiet >= DEPOT_GONE);
        head.depots.len() < wanted || lacks
    }

    /// A depot has a manifest, for whatever reason. With the last one of the order the old manifest is not needed any more.
    pub(super) fn replicated(&mut self, depot: DepotId, head: &Head) {
        let now = self.now;
        let Some(order) = &mut self.replicating.order else { return };
        let same = head.snapshot == order.old.snapshot && head.depots == order.depots;
        if !same || !order.awaited.remove(&depot) {
            return;
        }
        order.heard = now;
        if !order.awaited.is_empty() {
            return;
        }
        let took = now.saturating_sub(order.begun);
        let hosts = u32::try_from(order.depots.len()).unwrap_or(u32::MAX);
        self.replicating.order = None;
        self.tell(JobEvent::Saved {
            key: head.key,
            hosts: hosts.min(head.replicas),
            wanted: head.replicas,
            took,
        });
        self.prune();
    }

    /// A depot could not fetch what it should.
    pub(super) fn not_replicated(&mut self, depot: DepotId) {
        let order = self.replicating.order.as_ref();
        if order.is_some_and(|order| order.awaited.contains(&depot)) {
            self.depots_are_restless();
        }
    }

    /// The job's complete checkpoints, oldest first: of those that were made of one snapshot, the one that most depots have.
    pub(super) fn kept_checkpoints(&self) -> Vec<Head> {
        let own = self.own_checkpoints();
        let better = |one: &Head| own.iter().any(|other| self.replaces(other, one));
        own.iter().filter(|one| !better(one)).cloned().collect()
    }

    /// Complete checkpoints whose place another has taken: on as many hosts as it should be, or wherever they are. As long as it has not,
    /// both together survive what neither would.
    pub(super) fn replaced_checkpoints(&self) -> Vec<ManifestKey> {
        let own = self.own_checkpoints();
        let holders = |head: &Head| {
            head.depots
                .iter()
                .copied()
                .filter(|depot| self.has_whole(*depot, head.key))
                .collect()
        };
        let placed = |one: &Head, other: &Head| {
            let (has, needs): (BTreeSet<DepotId>, BTreeSet<DepotId>) = (holders(one), holders(other));
            has.len() >= one.replicas.max(1) as usize || has.is_superset(&needs)
        };
        let better = |one: &&Head| own.iter().any(|other| self.replaces(other, one) && placed(other, one));
        own.iter().filter(better).map(|head| head.key).collect()
    }

    fn replaces(&self, one: &Head, other: &Head) -> bool {
        let rank = |head: &Head| {
            let whole = head.depots.iter().filter(|depot| self.has_whole(**depot, head.key)).count();
            (whole, head.key)
        };
        one.snapshot == other.snapshot && rank(one) > rank(other)
    }

    fn own_checkpoints(&self) -> Vec<Head> {
        self.whole_checkpoints()
            .into_values()
            .filter(|head| self.is_own(head))
            .collect()
    }

    /// Whether this job, as it is built, has made it.
    pub(super) fn is_own(&self, head: &Head) -> bool {
        head.task == self.config.task && head.build == self.config.build
    }
}
