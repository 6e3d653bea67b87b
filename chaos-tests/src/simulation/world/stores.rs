//! A depot: what its process has in memory, and what is on its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestKey, PieceHash, placement};
use sardana_protocol::membership::Contents;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Incarnation, WorkerId};

use super::process::Control;
use super::{BUILD, TASK};

/// A depot: its process, and its disk.
pub(crate) struct Depot {
    /// The id of its store.
    pub(crate) id: DepotId,
    pub(super) host: u32,
    pub(crate) up: bool,
    /// How often its process has started.
    pub(crate) boot: u64,
    /// Its disk takes no more.
    pub(crate) full: bool,
    pub(super) control: Control,
    /// The highest incarnation of a coordinator that it has served.
    pub(super) served: Incarnation,
    /// When the last message over its connection arrives.
    pub(super) upstream: Duration,
    /// The workers that may put and read.
    pub(super) admits: BTreeSet<WorkerId>,
    /// Which other depots may read.
    pub(super) peers: BTreeSet<DepotId>,
    /// Pieces on its disk that are safe there.
    pub(super) durable: BTreeSet<PieceHash>,
    /// Pieces on its disk that cannot be read any more, before that is noticed.
    pub(crate) rotten: BTreeSet<PieceHash>,
    pub(super) manifests: BTreeMap<ManifestKey, Kept>,
    /// Manifests on its disk that say nothing any more.
    pub(super) unreadable: BTreeSet<ManifestKey>,
    /// Manifests that it has deleted: they never come back.
    pub(super) buried: BTreeSet<ManifestKey>,
    /// Pieces that are kept although no manifest names them yet.
    pub(super) pins: BTreeMap<PieceHash, SnapshotId>,
}

/// A checkpoint on a depot's disk.
pub(crate) struct Kept {
    /// As it was told last.
    pub(super) head: Head,
    pub(super) contents: Rc<Contents>,
}

impl Depot {
    pub(super) fn new(id: DepotId, host: u32) -> Self {
        Self {
            id,
            host,
            up: true,
            boot: 0,
            full: false,
            control: Control::Dialing,
            served: Incarnation::ZERO,
            upstream: Duration::ZERO,
            admits: BTreeSet::new(),
            peers: BTreeSet::new(),
            durable: BTreeSet::new(),
            rotten: BTreeSet::new(),
            manifests: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            buried: BTreeSet::new(),
            pins: BTreeMap::new(),
        }
    }

    /// Its process ends: what it had only in memory is gone.
    pub(crate) fn goes_down(&mut self) {
        self.up = false;
        self.boot += 1;
        self.control = Control::Dialing;
        self.admits.clear();
        self.peers.clear();
        self.pins.clear();
        self.sweep();
    }

    /// Its disk is another one.
    pub(crate) fn forgets(&mut self, id: DepotId) {
        self.id = id;
        self.durable.clear();
        self.rotten.clear();
        self.manifests.clear();
        self.unreadable.clear();
        self.buried.clear();
        self.served = Incarnation::ZERO;
    }

    /// Pieces of these contents that it should have.
    pub(super) fn own(&self, contents: &Contents) -> Vec<PieceHash> {
        let needs = contents.description.iter().chain(&contents.pieces).copied();
        needs
            .filter(|piece| placement::is_home(self.id, *piece, &contents.depots, contents.replicas))
            .collect()
    }

    pub(super) fn condition(&self, contents: &Contents) -> Condition {
        let whole = self.own(contents).iter().all(|piece| self.durable.contains(piece));
        if whole { Condition::Whole } else { Condition::Lacking }
    }

    /// Gives back the room of what nothing names.
    pub(super) fn sweep(&mut self) {
        // What an unreadable manifest names is not known.
        if !self.unreadable.is_empty() {
            return;
        }
        let named: BTreeSet<PieceHash> = self
            .manifests
            .values()
            .flat_map(|kept| kept.contents.description.iter().chain(&kept.contents.pieces))
            .copied()
            .collect();
        let pins = &self.pins;
        let wanted = |piece: &PieceHash| named.contains(piece) || pins.contains_key(piece);
        self.durable.retain(wanted);
        self.rotten.retain(wanted);
    }

    /// Whether a piece is on its disk and can be read.
    pub(super) fn has(&self, piece: &PieceHash) -> bool {
        self.durable.contains(piece) && !self.rotten.contains(piece)
    }

    /// What is on its disk and can be read.
    pub(crate) fn pieces(&self) -> Vec<PieceHash> {
        self.durable.difference(&self.rotten).copied().collect()
    }

    /// Whether it has all that it should of this checkpoint.
    pub(super) fn has_whole(&self, key: ManifestKey) -> bool {
        let kept = self.manifests.get(&key);
        kept.is_some_and(|kept| self.own(&kept.contents).iter().all(|piece| self.has(piece)))
    }

    /// The job's checkpoints that it has manifests of.
    pub(crate) fn checkpoints(&self) -> Vec<ManifestKey> {
        let own = |kept: &Kept| (kept.head.task, kept.head.build) == (TASK, BUILD);
        let kept = self.manifests.iter().filter(|(_, kept)| own(kept));
        kept.map(|(key, _)| *key).collect()
    }

    /// A manifest says nothing any more.
    pub(crate) fn loses_manifest(&mut self, key: ManifestKey) {
        if self.manifests.remove(&key).is_some() {
            self.unreadable.insert(key);
        }
    }
}
