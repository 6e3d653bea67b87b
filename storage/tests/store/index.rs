//! An index in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sardana_storage::store::{Change, Fate, Index, PieceHash, Place, Recorded};

use crate::memory::MemoryDisk;

/// An index in memory that outlives the store, and writes down in a disk's log what it says.
#[derive(Clone, Debug)]
pub(crate) struct MemoryIndex {
    pieces: Arc<Mutex<BTreeMap<PieceHash, Place>>>,
    others: Arc<Mutex<Recorded>>,
    disk: MemoryDisk,
    /// The changes that it still takes before it fails.
    patience: Arc<Mutex<u64>>,
}

impl MemoryIndex {
    pub(crate) fn new(disk: &MemoryDisk, recorded: Recorded) -> Self {
        Self {
            pieces: Arc::new(Mutex::new(recorded.pieces.iter().copied().collect())),
            others: Arc::new(Mutex::new(recorded)),
            disk: disk.clone(),
            patience: Arc::new(Mutex::new(u64::MAX)),
        }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        let mut recorded = self.others.lock().unwrap().clone();
        recorded.pieces = self
            .pieces
            .lock()
            .unwrap()
            .iter()
            .map(|(hash, place)| (*hash, *place))
            .collect();
        recorded
    }

    /// Fails after so many changes.
    pub(crate) fn fail_after(&self, changes: u64) {
        *self.patience.lock().unwrap() = changes;
    }
}

impl Index for MemoryIndex {
    fn note(&mut self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            {
                let mut patience = self.patience.lock().unwrap();
                if *patience == 0 {
                    return Err("told to fail".to_owned());
                }
                *patience -= 1;
            }
            let mut others = self.others.lock().unwrap();
            let mut pieces = self.pieces.lock().unwrap();
            match *change {
                Change::Piece(hash, place) => drop(pieces.insert(hash, place)),
                Change::NoPiece(hash) => drop(pieces.remove(&hash)),
                Change::Covered(segment, end) => drop(others.covered.insert(segment, end)),
                Change::NoSegment(segment) => drop(others.covered.remove(&segment)),
                Change::Manifest(key, fate) => drop(others.manifests.insert(key, fate)),
                Change::NoManifest(key) => drop(others.manifests.remove(&key)),
                Change::Own(number) => others.own = number,
            }
        }
        if !changes.is_empty() {
            let recorded = self.recorded();
            assert!(
                recorded
                    .manifests
                    .values()
                    .all(|fate| matches!(fate, Fate::Committed | Fate::Deleted))
            );
            self.disk.noted(recorded);
        }
        Ok(())
    }
}
