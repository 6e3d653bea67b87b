//! The depots that are there, and the checkpoints that they keep.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::depot::Depot;
use super::{CheckpointEvent, CheckpointManager, Command, Facts};
use crate::checkpoint::{Condition, DepotAddress, DepotId, Head, Keep, ManifestKey};
use crate::limits::{DEPOTS_PATIENCE, MAX_DEPOTS, MAX_HEADS};
use crate::messages::{DepotMessage, DepotOrder, Senseless, Sensible};
use crate::planted::{Bug, bites};
use crate::words::Step;

/// What happened to a depot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DepotEvent {
    /// It was admitted. What it said before counts no more.
    Arrived {
        /// What people call its host.
        host: String,
        /// The id in its certificate.
        certified: u64,
        /// Where it is reached.
        address: SocketAddr,
    },
    /// It said something.
    Said(Box<DepotMessage>),
    /// Its connection is lost.
    Lost {
        /// What the transport said.
        why: String,
    },
}

impl CheckpointManager {
    pub(crate) fn depot(&mut self, depot: DepotId, event: DepotEvent, facts: &Facts) {
        match event {
            DepotEvent::Arrived {
                host,
                certified,
                address,
            } => {
                let address = DepotAddress {
                    depot,
                    certified,
                    address,
                };
                self.depot_arrived(host, address, facts);
            }
            DepotEvent::Said(said) if self.depots.contains_key(&depot) => self.depot_said(depot, *said, facts),
            DepotEvent::Said(_) => {}
            DepotEvent::Lost { why } => {
                if let Some(gone) = self.depots.remove(&depot) {
                    self.misses_checkpoints(depot, &gone);
                    if gone.is_new {
                        self.vanished.leaves(depot, gone.told, facts.now);
                    } else {
                        self.depots_changed(facts);
                    }
                    self.tell(CheckpointEvent::DepotLost { depot, why });
                    self.save_elsewhere(depot, facts);
                }
            }
        }
    }

    fn depot_arrived(&mut self, host: String, address: DepotAddress, facts: &Facts) {
        let depot = address.depot;
        if self.depots.len() >= MAX_DEPOTS && !self.depots.contains_key(&depot) {
            return;
        }
        // One that comes again and again and tells nothing is not waited for anew.
        let owes_since = self.depots.get(&depot).filter(|known| known.is_new).map(|known| known.told);
        let told = owes_since
            .or_else(|| self.vanished.returns(depot, facts.now))
            .unwrap_or(facts.now);
        // It has forgotten which processes may put and read, and what it was asked last.
        let before = self.depots.insert(
            depot,
            Depot {
                host: host.clone(),
                address,
                has_told_all: false,
                is_new: true,
                told,
                is_silent: false,
                heads: BTreeMap::new(),
                unreadable: BTreeSet::new(),
                failures: 0,
                rests: Duration::ZERO,
            },
        );
        match before {
            None => self.tell(CheckpointEvent::DepotCame { depot, host }),
            Some(before) => {
                self.misses_checkpoints(depot, &before);
                if !before.is_new {
                    self.depots_changed(facts);
                }
            }
        }
        self.name_to_depots();
        self.save_elsewhere(depot, facts);
    }

    /// Depots that do not tell what they keep, since their disks hang or they are at fault, hold up nothing for long: they count as gone
    /// until they do.
    pub(crate) fn tend_depots(&mut self, facts: &Facts) {
        let late = |depot: &Depot| depot.is_about_to_tell() && facts.now.saturating_sub(depot.told) >= DEPOTS_PATIENCE;
        let silent: Vec<DepotId> = self.depots.iter().filter(|(_, one)| late(one)).map(|(&id, _)| id).collect();
        for depot in silent {
            if let Some(known) = self.depots.get_mut(&depot) {
                known.is_silent = true;
            }
            let why = format!(
                "it has not told for {} s what it keeps; see in its log whether its disk hangs",
                DEPOTS_PATIENCE.as_secs()
            );
            self.replicas_to_be_looked_at();
            self.tell(CheckpointEvent::DepotLost { depot, why });
        }
    }

    /// A depot that says what cannot be is done without until it comes anew.
    fn depot_is_at_fault(&mut self, depot: DepotId, senseless: &Senseless, facts: &Facts) {
        let why = format!("{senseless}; start it anew, with another folder if that does not help");
        self.depot(depot, DepotEvent::Lost { why }, facts);
    }

    fn depot_said(&mut self, depot: DepotId, said: DepotMessage, facts: &Facts) {
        if let Err(senseless) = said.check(self.rules.bounds) {
            return self.depot_is_at_fault(depot, &senseless, facts);
        }
        self.replicas_to_be_looked_at();
        match said {
            DepotMessage::Holds {
                heads,
                is_last,
                unreadable,
            } => self.depot_holds(depot, heads, (unreadable, is_last), facts),
            DepotMessage::Deleted { key } => {
                if let Some(known) = self.depots.get_mut(&depot) {
                    known.heads.remove(&key);
                    known.unreadable.remove(&key);
                }
                self.recheck_what_it_committed(depot, facts);
            }
            DepotMessage::Committed { snapshot, head } => {
                if let Some(known) = self.depots.get_mut(&depot) {
                    known.heads.insert(head.key, head.clone());
                    known.unreadable.remove(&head.key);
                    known.failures = 0;
                }
                self.replicated(depot, &head, facts);
                self.committed(depot, snapshot, head, facts);
            }
            DepotMessage::Refused {
                snapshot,
                placing,
                reason,
            } => {
                self.not_replicated(depot, snapshot, placing, facts);
                self.commit_refused(depot, snapshot, placing, reason, facts);
            }
            DepotMessage::Fetching { snapshot, placing } => {
                self.still_replicating(depot, snapshot, placing, facts);
                self.still_committing(depot, snapshot, placing, facts);
            }
            // Certificates are not this machine's business.
            DepotMessage::Renew { .. } => {}
        }
    }

    /// A depot tells some of what it keeps, or the rest.
    fn depot_holds(
        &mut self,
        depot: DepotId,
        heads: Vec<Head>,
        (unreadable, is_last): (Vec<ManifestKey>, bool),
        facts: &Facts,
    ) {
        let (mut is_back, mut is_new) = (None, false);
        if let Some(known) = self.depots.get_mut(&depot) {
            known.tells(heads, unreadable, facts.now);
            if is_last {
                is_new = std::mem::take(&mut known.is_new);
                is_back = std::mem::take(&mut known.is_silent).then(|| known.host.clone());
            }
            known.has_told_all = is_last;
            let most = known.heads.len().max(known.unreadable.len());
            if most > MAX_HEADS {
                let (expected, found) = (format!("at most {MAX_HEADS} checkpoints"), format!("{most} checkpoints"));
                return self.depot_is_at_fault(depot, &Senseless { expected, found }, facts);
            }
        }
        if is_new || is_back.is_some() {
            self.depots_changed(facts);
        }
        if let Some(host) = is_back {
            self.tell(CheckpointEvent::DepotCame { depot, host });
        }
        if is_last {
            self.misses_no_checkpoints(depot);
            self.recheck_what_it_committed(depot, facts);
        }
        self.prune();
    }

    /// A depot that lacks again what it has committed, while others have yet to, does not count: the checkpoint is placed anew.
    fn recheck_what_it_committed(&mut self, depot: DepotId, facts: &Facts) {
        if let Some(lost) = self.lost_while_committing(depot) {
            let reason = "it lacks some of the checkpoint again that was durable there".to_owned();
            self.refused(depot, lost.step, reason, facts);
        }
        if self.lost_while_replicating(depot) {
            self.depots_are_restless(facts);
        }
    }

    /// Tells depots which processes may put and read pieces.
    pub(super) fn name_to_depots(&mut self) {
        self.out.push(Command::NamePeers);
    }

    pub(super) fn order(&mut self, depot: DepotId, order: DepotOrder) {
        self.out.push(Command::Order {
            depot,
            order: Box::new(order),
        });
    }

    /// The depots that a checkpoint is placed on: one on each host, since replicas are for hosts that are lost.
    pub(crate) fn targets(&self, facts: &Facts) -> Vec<DepotAddress> {
        let mut hosts = BTreeSet::new();
        // What is the last that can be saved is tried with all.
        let rests = |depot: &Depot| depot.rests > facts.now && !self.is_last(facts.reached, facts);
        let ready = self.depots.iter().filter(|(_, depot)| depot.has_told_all && !rests(depot));
        let refused = |depot: &DepotId| self.saving.as_ref().is_some_and(|saving| saving.refused.contains(depot));
        ready
            .filter(|(id, depot)| !refused(id) && hosts.insert(depot.host.as_str()))
            .map(|(_, depot)| depot.address)
            .collect()
    }

    /// Checkpoints of which each piece is somewhere, by what the depots say.
    pub(super) fn whole_checkpoints(&self) -> BTreeMap<ManifestKey, &Head> {
        self.known()
            .into_iter()
            .filter(|(key, head)| self.lacks_of(*key, head) == 0)
            .collect()
    }

    /// All checkpoints that any depot keeps.
    pub(super) fn known(&self) -> BTreeMap<ManifestKey, &Head> {
        let heads = self.depots.values().flat_map(|depot| &depot.heads);
        heads.map(|(&key, head)| (key, head)).collect()
    }

    /// How many of the depots that a checkpoint was placed on are missed beyond those that may be.
    pub(super) fn lacks_of(&self, key: ManifestKey, head: &Head) -> usize {
        // A depot that is none of them has a copy of everything.
        let copied = |depot: &&DepotId| !head.depots.contains(depot) && self.has_whole(**depot, key);
        if self.depots.keys().any(|depot| copied(&depot)) {
            return 0;
        }
        let replicas = head.is_kept_by();
        let missing = head.depots.iter().filter(|depot| !self.has_whole(**depot, key)).count();
        (missing + 1).saturating_sub(replicas)
    }

    pub(super) fn has_whole(&self, depot: DepotId, key: ManifestKey) -> bool {
        let head = self.depots.get(&depot).and_then(|depot| depot.heads.get(&key));
        head.is_some_and(|head| head.condition == Condition::Whole)
    }

    /// Deletes what is not kept any more, wherever some of it is left: also where that was tried before and has failed, or was not there.
    /// What is not complete does not count: it goes once as many complete ones are newer, and before that what it lacks may come back.
    pub(super) fn prune(&mut self) {
        let Some(saves) = self.rules.saves else { return };
        // What is being committed or placed may be there in two forms, of which one is not wanted any more: which one, is not known yet.
        if self.saving.is_some() || self.depots.values().any(Depot::is_about_to_tell) {
            return;
        }
        let placed = self.placed_anew();
        // A checkpoint that could not be loaded may not be what it seems: it does not stand in for older ones.
        let kept = self.kept_checkpoints();
        let own: Vec<ManifestKey> = kept
            .iter()
            .map(|head| head.key)
            .filter(|key| !self.is_doubtful(*key))
            .collect();
        let mut expired = saves.keep.expired(|key: ManifestKey| key.step, &own);
        if bites(Bug::NewestDeleted) && !expired.is_empty() {
            expired.extend(own.last());
        }
        expired.extend(self.replaced_checkpoints());
        let complete = Complete::of(own);
        expired.extend(self.left_over(saves.keep, &complete));
        for key in expired.into_iter().filter(|key| Some(key.step) != placed) {
            self.delete(key);
        }
        self.delete_the_unreadable(saves.keep, &complete, placed);
    }

    /// Deletes checkpoints that cannot be read and would have expired by now. The others are fetched again from other depots, or people see
    /// to them.
    fn delete_the_unreadable(&mut self, keep: Keep, own: &Complete, placed: Option<Step>) {
        let unreadable = |(&depot, known): (&DepotId, &Depot)| -> Vec<(DepotId, ManifestKey)> {
            let expired = |key: &ManifestKey| Some(key.step) != placed && own.outlive(keep, *key);
            let keys = known.unreadable.iter().copied().filter(expired);
            keys.map(|key| (depot, key)).collect()
        };
        let orders: Vec<(DepotId, ManifestKey)> = self.depots.iter().flat_map(unreadable).collect();
        for (depot, key) in orders {
            self.order(depot, DepotOrder::Delete { key });
        }
    }

    /// Checkpoints of this job that are not complete, and would have expired if they were: `own` are the complete ones.
    fn left_over(&self, keep: Keep, own: &Complete) -> Vec<ManifestKey> {
        let known = self.known();
        let whole = self.whole_checkpoints();
        let rest = known
            .iter()
            .filter(|(key, head)| self.is_own(head) && !whole.contains_key(key));
        rest.map(|(key, _)| *key).filter(|key| own.outlive(keep, *key)).collect()
    }

    fn delete(&mut self, key: ManifestKey) {
        let holders: Vec<DepotId> = self
            .depots
            .iter()
            .filter(|(_, depot)| depot.heads.contains_key(&key))
            .map(|(&depot, _)| depot)
            .collect();
        for depot in holders {
            self.order(depot, DepotOrder::Delete { key });
        }
    }
}

/// Checkpoints of this job that are complete, in ascending order.
struct Complete {
    keys: Vec<ManifestKey>,
    steps: Vec<Step>,
}

impl Complete {
    fn of(keys: Vec<ManifestKey>) -> Self {
        let steps = keys.iter().map(|key| key.step).collect();
        Self { keys, steps }
    }

    /// Whether `key` is none of them, and would be deleted if it were one. If it is one, it is deleted with them.
    fn outlive(&self, keep: Keep, key: ManifestKey) -> bool {
        self.keys.binary_search(&key).is_err() && keep.would_expire(key.step, &self.steps)
    }
}
