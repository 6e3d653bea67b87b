//! CKPT-1: a manifest names only pieces that are durable R times; a committed checkpoint survives R-1 losses, until newer ones make it
//! needless.

use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestKey};
use sardana_protocol::membership::{Contents, DepotEvent, Saves};
use sardana_protocol::messages::DepotMessage;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::Step;

use super::{Held, Law, Violation};

/// What is true of checkpoints, and what the coordinator has heard of them.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub(super) rule: Option<Saves>,
    /// All manifests that any depot has ever made durable.
    pub(super) manifests: BTreeMap<ManifestKey, Contents>,
    kept: BTreeMap<(DepotId, ManifestKey), Fate>,
    rotted: BTreeSet<DepotId>,
    /// What each connected depot has told.
    heard: BTreeMap<DepotId, (bool, BTreeMap<ManifestKey, Head>)>,
    /// What each depot told last in the coordinator's present life, also if it is gone since.
    told: BTreeMap<DepotId, BTreeSet<ManifestKey>>,
    /// How often each checkpoint could not be loaded, in the coordinator's present life.
    pub(super) failures: BTreeMap<ManifestKey, u32>,
    /// What the generation that forms now is to start from.
    pub(super) resumes: Option<ManifestKey>,
    /// The step of the checkpoint that training last began from: that state is in no worker's hands alone.
    pub(super) source: Step,
    /// The newest step that people were told is saved, and the steps that they were told are not.
    pub(super) saved: Step,
    pub(super) not_saved: BTreeSet<Step>,
}

/// What has become of a manifest at a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Its disk was lost.
    Lost,
}

impl Checkpoints {
    /// The checkpoints that are complete by what connected depots have told, the newest last.
    pub(super) fn complete(&self) -> impl DoubleEndedIterator<Item = ManifestKey> + '_ {
        self.manifests.keys().copied().filter(|key| self.margin(*key) > 0)
    }

    /// How many hosts that have it whole, by what was told, must be lost before some of it is nowhere.
    fn margin(&self, key: ManifestKey) -> usize {
        let Some(contents) = self.manifests.get(&key) else { return 0 };
        let has = |depot: &&DepotId| {
            let head = self.heard.get(depot).and_then(|(_, heads)| heads.get(&key));
            head.is_some_and(|head| head.condition == Condition::Whole)
        };
        let missing = contents.depots.len() - contents.depots.iter().filter(has).count();
        (contents.replicas.max(1) as usize)
            .min(contents.depots.len())
            .saturating_sub(missing)
    }
}

impl Law {
    /// The job is saved like this.
    pub(crate) fn is_saved(&mut self, rule: Option<Saves>) {
        self.checkpoints.rule = rule;
    }

    /// The coordinator begins another life, and knows of no depot.
    pub(crate) fn no_depots(&mut self) {
        self.checkpoints.heard.clear();
        self.checkpoints.told.clear();
        self.checkpoints.failures.clear();
    }

    /// The coordinator hears of a depot.
    pub(crate) fn depot_is_heard(&mut self, depot: DepotId, event: &DepotEvent) {
        let Checkpoints { heard, told: last, .. } = &mut self.checkpoints;
        let last = last.entry(depot).or_default();
        match event {
            DepotEvent::Arrived { .. } => {
                heard.insert(depot, (false, BTreeMap::new()));
            }
            DepotEvent::Lost { .. } => {
                heard.remove(&depot);
            }
            DepotEvent::Said(said) => {
                let Some((all, known)) = heard.get_mut(&depot) else { return };
                match said.as_ref() {
                    DepotMessage::Holds { heads, is_last, .. } => {
                        if *all {
                            known.clear();
                        }
                        known.extend(heads.iter().map(|head| (head.key, head.clone())));
                        *all = *is_last;
                        last.extend(known.keys());
                        if *is_last {
                            last.retain(|key| known.contains_key(key));
                        }
                    }
                    DepotMessage::Deleted { key } => {
                        known.remove(key);
                        last.remove(key);
                    }
                    DepotMessage::Committed { head, .. } => {
                        known.insert(head.key, head.clone());
                        last.insert(head.key);
                    }
                    DepotMessage::Refused { .. } | DepotMessage::Renew { .. } | DepotMessage::Fetching { .. } => {}
                }
            }
        }
    }

    /// Whether the coordinator was told of this checkpoint in its present life, and not since that it is no more.
    pub(crate) fn is_told_of(&self, key: ManifestKey) -> bool {
        self.checkpoints.told.values().any(|keys| keys.contains(&key))
    }

    /// A manifest is to be made durable. `missing`: a depot that lacks a piece which it should have, though nothing has happened to it.
    pub(crate) fn all_durable_first(&mut self, snapshot: SnapshotId, missing: Option<DepotId>) -> Held {
        self.check("CKPT-1, pieces first", missing.is_none(), || {
            format!("the manifest of {snapshot} is to be kept, and {missing:?} lacks pieces")
        })
    }

    /// A depot has made a manifest durable.
    pub(crate) fn keeps_manifest(&mut self, depot: DepotId, key: ManifestKey, contents: &Contents) {
        self.checkpoints.manifests.insert(key, contents.clone());
        self.checkpoints.kept.insert((depot, key), Fate::Kept);
    }

    pub(crate) fn loses_disk(&mut self, depot: DepotId) {
        let of_it = self.checkpoints.kept.iter_mut().filter(|((one, _), _)| *one == depot);
        of_it.for_each(|(_, fate)| *fate = Fate::Lost);
        self.checkpoints.rotted.remove(&depot);
    }

    pub(crate) fn rots(&mut self, depot: DepotId) {
        self.checkpoints.rotted.insert(depot);
    }

    /// Whether this depot may lack something though it should not.
    pub(crate) fn has_rotted(&self, depot: DepotId) -> bool {
        self.checkpoints.rotted.contains(&depot)
    }

    pub(crate) fn should_keep(&self, depot: DepotId, key: ManifestKey) -> bool {
        self.checkpoints.kept.get(&(depot, key)) == Some(&Fate::Kept)
    }

    /// People are told that a checkpoint is committed: its manifest is on all depots that it names, or was.
    pub(crate) fn saved(&mut self, key: ManifestKey, hosts: u32, wanted: u32) -> Held {
        let Some(contents) = self.checkpoints.manifests.get(&key) else {
            let text = format!("{key} is told to be committed, and no depot has it");
            return Err(Violation::new("CKPT-1, committed", text));
        };
        let kept = |depot: &&DepotId| !self.checkpoints.kept.contains_key(&(**depot, key));
        let missing = contents.depots.iter().find(kept).copied();
        let depots = u32::try_from(contents.depots.len()).unwrap_or(u32::MAX);
        let told = (depots.min(contents.replicas), contents.replicas) == (hosts, wanted) && hosts > 0;
        self.checkpoints.saved = self.checkpoints.saved.max(key.step);
        self.check("CKPT-1, committed", missing.is_none() && told, || {
            format!("{key} is told to be on {hosts} of {wanted}, and {missing:?} does not have it")
        })
    }

    /// The same. `missing`: a depot whose disk does not have all that it should.
    pub(crate) fn is_kept(&mut self, key: ManifestKey, missing: Option<DepotId>) -> Held {
        self.check("CKPT-1, pieces on disks", missing.is_none(), || {
            format!("{key} is told to be committed, and {missing:?} lacks pieces of it")
        })
    }

    /// A depot is told to delete a checkpoint: as many as are to be kept are complete and newer, or another one of the same snapshot is as
    /// safe.
    pub(crate) fn deletes(&mut self, key: ManifestKey) -> Held {
        let newer = self.checkpoints.complete().filter(|one| *one > key).count();
        let last = self.checkpoints.rule.map_or(usize::MAX, |rule| rule.keep.last.get() as usize);
        let manifests = &self.checkpoints.manifests;
        let snapshot = |key: ManifestKey| manifests.get(&key).map(|contents| contents.snapshot);
        let mut complete = self.checkpoints.complete();
        let margin = self.checkpoints.margin(key);
        let replaced =
            complete.any(|one| one != key && snapshot(one) == snapshot(key) && self.checkpoints.margin(one) >= margin);
        drop(complete);
        let own = manifests.contains_key(&key);
        self.check("CKPT-1, deleting", own && (replaced || newer >= last), || {
            format!(
                "{key} is to be deleted, which survives {margin} losses less one; {newer} complete ones are newer, of {last} that are to \
                 be kept"
            )
        })
    }

    pub(crate) fn deleted(&mut self, depot: DepotId, key: ManifestKey) {
        self.checkpoints.kept.remove(&(depot, key));
    }
}
