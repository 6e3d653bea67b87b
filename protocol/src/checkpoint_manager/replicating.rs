//! A checkpoint that is on too few hosts is placed on all that are there, once they have been there for a while. Its new manifest names
//! the new depots, and takes the place of the old one. Where a depot that is there has lost some of it, that is fetched again: then all is
//! as it was.
//!
//! One checkpoint at a time, the newest first, and only while none is being written: what is new matters more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::depot::Depot;
use super::{CheckpointEvent, CheckpointManager, Facts};
use crate::checkpoint::{Condition, DepotId, Head, ManifestKey, Placing};
use crate::limits::{DEPOT_GONE, DEPOTS_SETTLE, FETCH_MOST, FETCH_PATIENCE};
use crate::messages::DepotOrder;
use crate::planted::{Bug, bites};
use crate::snapshot::SnapshotId;
use crate::words::Step;

/// Where replicating stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Replicating {
    /// When a depot last came, went, or could not do what it should.
    restless: Duration,
    /// When a depot last came or went.
    changed: Duration,
    /// Depots that an order came to nothing for, and until when they are done without: others are not to wait for them.
    failed: BTreeMap<DepotId, Duration>,
    order: Option<Fetching>,
    /// What there was when nothing was found to be done, if nothing was told since: how many depots could keep a checkpoint, and whether
    /// depots that are gone were waited for any longer.
    idle: Option<(usize, Gone)>,
    /// How many checkpoints were looked at, to see whether they are on too few hosts.
    #[cfg(test)]
    looked_at: usize,
}

/// Whether a depot that is gone may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Awaited,
    GivenUp,
}

/// An order to all depots that a checkpoint is placed on.
#[derive(Debug, Clone)]
struct Fetching {
    old: Head,
    depots: Vec<DepotId>,
    placing: Placing,
    awaited: BTreeSet<DepotId>,
    begun: Duration,
    heard: Duration,
}

impl Fetching {
    /// Whether this is what the depots are to have.
    fn places(&self, head: &Head) -> bool {
        head.snapshot == self.old.snapshot && head.placing == self.placing
    }
}

impl CheckpointManager {
    /// The depots are not the same as before, or one failed: what is under way is given up, and nothing begins for a while.
    pub(super) fn depots_are_restless(&mut self, facts: &Facts) {
        self.replicating.restless = facts.now;
        self.replicating.order = None;
        self.replicating.idle = None;
    }

    /// A depot came or went.
    pub(super) fn depots_changed(&mut self, facts: &Facts) {
        self.replicating.changed = facts.now;
        self.replicating.failed.clear();
        self.depots_are_restless(facts);
    }

    /// A checkpoint is to be written: that comes first.
    pub(super) fn end_replicating(&mut self) {
        self.replicating.order = None;
    }

    /// A depot has told something of what it keeps.
    pub(super) fn replicas_to_be_looked_at(&mut self) {
        self.replicating.idle = None;
    }

    /// Places the newest checkpoint that needs it on all depots that are there.
    pub(crate) fn tend_replicas(&mut self, facts: &Facts) {
        if let Some(order) = &self.replicating.order {
            let ago = |since| facts.now.saturating_sub(since);
            if ago(order.heard) >= FETCH_PATIENCE || ago(order.begun) >= FETCH_MOST {
                let late: Vec<DepotId> = order.awaited.iter().copied().collect();
                self.give_up_replicating(&late, facts);
            }
            return;
        }
        let quiet = facts.now.saturating_sub(self.replicating.restless);
        let told = !self.depots.values().any(Depot::is_about_to_tell);
        let Some(saves) = self
            .rules
            .saves
            .filter(|_| self.saving.is_none() && told && quiet >= DEPOTS_SETTLE)
        else {
            return;
        };
        self.replicating.failed.retain(|_, until| *until > facts.now);
        let mut targets = self.targets(facts);
        targets.retain(|one| !self.replicating.failed.contains_key(&one.depot));
        let depots: Vec<DepotId> = targets.iter().map(|one| one.depot).collect();
        let unchanged = facts.now.saturating_sub(self.replicating.changed);
        let gone = if unchanged >= DEPOT_GONE {
            Gone::GivenUp
        } else {
            Gone::Awaited
        };
        // Looking at all that is kept takes long.
        if self.replicating.idle == Some((depots.len(), gone)) {
            return;
        }
        #[cfg(test)]
        self.count_looks();
        let mut kept = self.kept_checkpoints();
        // What has expired is being deleted.
        let keys: Vec<ManifestKey> = kept.iter().map(|head| head.key).collect();
        let expired = saves.keep.expired(|key: ManifestKey| key.step, &keys);
        kept.retain(|head| !expired.contains(&head.key));
        let thin = kept.into_iter().rfind(|head| self.is_on_too_few(head, depots.len(), gone));
        let Some(old) = thin.cloned() else {
            self.replicating.idle = Some((depots.len(), gone));
            return;
        };
        self.name_to_depots();
        // On the same depots it is the same one: what is missing there is fetched, and all is as it was.
        let placing = if old.depots == depots {
            old.placing
        } else {
            self.saved.attempt += 1;
            self.placing(self.saved.attempt, facts)
        };
        for &depot in &depots {
            let (snapshot, key, depots) = (old.snapshot, old.key, targets.clone());
            let order = DepotOrder::Fetch {
                snapshot,
                key,
                depots,
                placing,
            };
            self.order(depot, order);
        }
        self.replicating.order = Some(Fetching {
            old,
            awaited: depots.iter().copied().collect(),
            depots,
            placing,
            begun: facts.now,
            heard: facts.now,
        });
    }

    #[cfg(test)]
    fn count_looks(&mut self) {
        self.replicating.looked_at += self.known().len();
    }

    /// How many checkpoints were looked at, since this was asked last, to see whether they are on too few hosts.
    #[cfg(test)]
    pub(crate) fn take_looked_at(&mut self) -> usize {
        std::mem::take(&mut self.replicating.looked_at)
    }

    /// Whether a complete checkpoint is on fewer hosts than it could be, with so many there. A depot that is gone may come back for a
    /// while; a depot that is there and has lost something does not get it back by itself.
    fn is_on_too_few(&self, head: &Head, targets: usize, gone: Gone) -> bool {
        let wanted = (head.replicas.max(1) as usize).min(targets);
        let whole = head.depots.iter().filter(|depot| self.has_whole(**depot, head.key)).count();
        let is_there = |depot| self.depots.get(depot).is_some_and(|one: &Depot| one.has_told_all);
        let all_there = head.depots.iter().all(is_there);
        let lacks = whole < head.depots.len() && targets >= 2 && (all_there || gone == Gone::GivenUp);
        head.depots.len() < wanted || lacks
    }

    /// A depot has a manifest, for whatever reason. With the last one of the order the old manifest is not needed any more.
    pub(super) fn replicated(&mut self, depot: DepotId, head: &Head, facts: &Facts) {
        let now = facts.now;
        let Some(order) = &mut self.replicating.order else { return };
        if !order.places(head) || !order.awaited.remove(&depot) {
            return;
        }
        order.heard = now;
        if !order.awaited.is_empty() {
            return;
        }
        let took = now.saturating_sub(order.begun);
        let hosts = u32::try_from(order.depots.len()).unwrap_or(u32::MAX);
        self.replicating.order = None;
        self.tell(CheckpointEvent::Saved {
            key: head.key,
            hosts: hosts.min(head.replicas),
            wanted: head.replicas,
            took,
        });
        self.prune();
    }

    /// A depot is not done yet.
    pub(super) fn still_replicating(&mut self, depot: DepotId, snapshot: SnapshotId, placing: Placing, facts: &Facts) {
        if self.awaits(depot, snapshot, placing)
            && let Some(order) = &mut self.replicating.order
        {
            order.heard = facts.now;
        }
    }

    /// A depot could not fetch what it should.
    pub(super) fn not_replicated(&mut self, depot: DepotId, snapshot: SnapshotId, placing: Placing, facts: &Facts) {
        if self.awaits(depot, snapshot, placing) {
            self.give_up_replicating(&[depot], facts);
        }
    }

    /// Whether a depot has yet to answer this order: what it says of an earlier one says nothing of this.
    fn awaits(&self, depot: DepotId, snapshot: SnapshotId, placing: Placing) -> bool {
        let order = self.replicating.order.as_ref();
        order.is_some_and(|order| {
            order.awaited.contains(&depot) && (order.old.snapshot, order.placing) == (snapshot, placing)
        })
    }

    /// These depots have not done it. What of it was to be deleted has waited.
    fn give_up_replicating(&mut self, depots: &[DepotId], facts: &Facts) {
        let until = facts.now + DEPOT_GONE;
        self.replicating.failed.extend(depots.iter().map(|&depot| (depot, until)));
        self.depots_are_restless(facts);
        self.prune();
    }

    /// The step of the checkpoint that is being placed on other depots.
    pub(super) fn placed_anew(&self) -> Option<Step> {
        self.replicating.order.as_ref().map(|order| order.old.key.step)
    }

    /// Whether a depot has fetched what it should and lacks some of it again.
    pub(super) fn lost_while_replicating(&self, depot: DepotId) -> bool {
        let Some(order) = &self.replicating.order else { return false };
        let counted = order.depots.contains(&depot) && !order.awaited.contains(&depot);
        let has = |head: &Head| order.places(head) && head.condition == Condition::Whole;
        counted && !self.depots.get(&depot).is_some_and(|known| known.heads.values().any(has))
    }

    /// The job's complete checkpoints, oldest first: of those that were made of one snapshot, the one that most depots have.
    pub(crate) fn kept_checkpoints(&self) -> Vec<&Head> {
        let own = self.own_checkpoints();
        let best = self.best_of(&own);
        own.into_iter()
            .filter(|head| best.get(&head.snapshot).is_some_and(|best| best.key == head.key))
            .collect()
    }

    /// Complete checkpoints whose place another has taken: on as many hosts as it should be, or wherever they are. As long as it has not,
    /// both together survive what neither would.
    pub(crate) fn replaced_checkpoints(&self) -> Vec<ManifestKey> {
        let own = self.own_checkpoints();
        let mut of_one: BTreeMap<SnapshotId, Vec<&Head>> = BTreeMap::new();
        for head in own {
            of_one.entry(head.snapshot).or_default().push(head);
        }
        let several = of_one.into_values().filter(|heads| heads.len() > 1);
        several.flat_map(|heads| self.replaced_among(&heads)).collect()
    }

    fn replaced_among(&self, heads: &[&Head]) -> Vec<ManifestKey> {
        let holders = |head: &Head| {
            head.depots
                .iter()
                .copied()
                .filter(|depot| self.has_whole(*depot, head.key))
                .collect()
        };
        let placed = |one: &Head, other: &Head| {
            let (has, needs): (BTreeSet<DepotId>, BTreeSet<DepotId>) = (holders(one), holders(other));
            self.margin(one) >= one.replicas.max(1) as usize || has.is_superset(&needs)
        };
        let replaces = |one: &Head, other: &Head| self.goodness(one) > self.goodness(other) && placed(one, other);
        let replaced = heads.iter().filter(|head| heads.iter().any(|other| replaces(other, head)));
        replaced.map(|head| head.key).collect()
    }

    /// The best checkpoint of each snapshot.
    fn best_of<'a>(&self, heads: &[&'a Head]) -> BTreeMap<SnapshotId, &'a Head> {
        let mut best: BTreeMap<SnapshotId, &Head> = BTreeMap::new();
        for head in heads {
            let before = best.entry(head.snapshot).or_insert(head);
            if before.key != head.key && self.goodness(head) > self.goodness(before) {
                *before = head;
            }
        }
        best
    }

    /// Of two checkpoints of one snapshot the better one survives the loss of more hosts, or of as many and is on more of them.
    fn goodness(&self, head: &Head) -> (usize, usize, Option<Placing>, ManifestKey) {
        let whole = head.depots.iter().filter(|depot| self.has_whole(**depot, head.key)).count();
        if bites(Bug::ThinnerKept) {
            return (0, whole, None, head.key);
        }
        (self.margin(head), whole, Some(head.placing), head.key)
    }

    /// How many more of its hosts must be lost, at least, before some of it is nowhere.
    fn margin(&self, head: &Head) -> usize {
        let missing = head.depots.iter().filter(|depot| !self.has_whole(**depot, head.key)).count();
        head.is_kept_by().saturating_sub(missing)
    }

    fn own_checkpoints(&self) -> Vec<&Head> {
        self.whole_checkpoints()
            .into_values()
            .filter(|head| self.is_own(head))
            .collect()
    }

    /// Whether this job, as it is built, has made the checkpoint.
    pub(super) fn is_own(&self, head: &Head) -> bool {
        head.task == self.rules.task && head.build == self.rules.build
    }
}
