//! What an open store knows, in memory. Must not do anything to the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::disk::DiskFile;
use super::index::Change;
use super::limits::OPEN_SEGMENTS;
use super::names::{ManifestKey, PieceHash, PinId, Place};

/// How good a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// On the disk, as far as is known.
    Synced,
    /// Whole when it was read, but perhaps not on the disk.
    Unsure,
    /// It could not be read, or is not what was written.
    Damaged,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) health: Health,
}

/// A piece that is written and not synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) place: Place,
    /// It is a copy of what is there: if it is not needed any more by then, this one is not either.
    pub(super) copy_of: Option<Place>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SegmentInfo {
    pub(super) len: u64,
    /// There is something in it that could not be read. It is kept as long as anything is missing.
    pub(super) gaps: bool,
}

/// What is known of a manifest that was not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Present,
    Missing,
    Damaged(String),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pieces: HashMap<PieceHash, Slot>,
    pub(super) pending: HashMap<PieceHash, Pending>,
    /// Pieces whose segment, by the index's word, is gone, cannot be read, or is too short.
    pub(super) lost: HashMap<PieceHash, u64>,
    pub(super) segments: BTreeMap<u64, SegmentInfo>,
    pub(super) manifests: BTreeMap<ManifestKey, Kept>,
    pub(super) deleted: BTreeSet<ManifestKey>,
    pub(super) pins: BTreeMap<PinId, HashSet<PieceHash>>,
    /// What the index has not been told.
    pub(super) changes: Vec<Change>,
    /// Segments that are open for reading.
    files: HashMap<u64, Arc<dyn DiskFile>>,
}

impl State {
    /// Whether this piece need not be written.
    pub(super) fn holds(&self, piece: &PieceHash) -> bool {
        self.is_synced(piece) || self.pending.contains_key(piece)
    }

    pub(super) fn is_synced(&self, piece: &PieceHash) -> bool {
        let slot = self.pieces.get(piece);
        slot.is_some_and(|slot| slot.health == Health::Synced)
    }

    /// Whether it can be read, as far as is known.
    pub(super) fn is_readable(&self, piece: &PieceHash) -> bool {
        let slot = self.pieces.get(piece);
        slot.is_some_and(|slot| slot.health != Health::Damaged)
    }

    /// Its bytes, if it can be read, as far as is known.
    pub(super) fn length(&self, piece: &PieceHash) -> Option<u32> {
        let slot = self.pieces.get(piece)?;
        (slot.health != Health::Damaged).then_some(slot.place.len)
    }

    /// Takes a piece that was found at `place` for synced, unless a newer one is known.
    pub(super) fn found(&mut self, piece: PieceHash, place: Place) {
        let newer = self.pieces.get(&piece).is_some_and(|slot| slot.place > place);
        if !newer {
            let health = Health::Synced;
            self.pieces.insert(piece, Slot { place, health });
        }
    }

    /// All that was written is synced now.
    pub(super) fn settle(&mut self) {
        for (piece, pending) in std::mem::take(&mut self.pending) {
            let superseded = pending
                .copy_of
                .is_some_and(|original| self.pieces.get(&piece).is_none_or(|slot| slot.place != original));
            if !superseded {
                let (place, health) = (pending.place, Health::Synced);
                self.pieces.insert(piece, Slot { place, health });
                self.changes.push(Change::Piece(piece, place));
            }
        }
    }

    /// Says how good the piece at this place is, if it is still there.
    pub(super) fn judge(&mut self, piece: &PieceHash, at: Place, health: Health) {
        if let Some(slot) = self.pieces.get_mut(piece).filter(|slot| slot.place == at) {
            slot.health = health;
        }
    }

    pub(super) fn is_pinned(&self, piece: &PieceHash) -> bool {
        self.pins.values().any(|pinned| pinned.contains(piece))
    }

    pub(super) fn file(&self, segment: u64) -> Option<Arc<dyn DiskFile>> {
        self.files.get(&segment).cloned()
    }

    /// Keeps the file of a segment open for the next reader, if there is still such a segment.
    pub(super) fn keep_open(&mut self, segment: u64, file: &Arc<dyn DiskFile>) {
        if self.files.contains_key(&segment) || !self.segments.contains_key(&segment) {
            return;
        }
        if self.files.len() >= OPEN_SEGMENTS {
            self.files.clear();
        }
        self.files.insert(segment, Arc::clone(file));
    }

    /// Forgets a segment that is about to be removed.
    pub(super) fn drop_segment(&mut self, segment: u64) {
        self.segments.remove(&segment);
        self.files.remove(&segment);
        self.changes.push(Change::NoSegment(segment));
    }
}
