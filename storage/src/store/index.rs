//! The index: where each piece is, so that not every segment is read when the store is opened; and which manifests there should be, so
//! that a lost one is missed. Never the only copy of anything but the latter: lost or behind, it is made anew from the files.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use sardana_protocol::words::Step;

use super::names::{ManifestId, ManifestKey, PieceHash, Place};
use crate::bytes::take;
use crate::catalogue::{Batch, Catalogue, CatalogueError, limits};
use crate::private::PrivateError;

/// What is noted of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was committed.
    Committed,
    /// It was deleted.
    Deleted,
}

/// A change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The piece is there, synced.
    Piece(PieceHash, Place),
    /// It is not there any more.
    NoPiece(PieceHash),
    /// All of the segment before this offset is synced, and all pieces in it that are held are noted.
    Covered(u64, u64),
    /// The segment is removed.
    NoSegment(u64),
    /// What became of a manifest, on the disk.
    Manifest(ManifestKey, Fate),
    /// Nothing is known of it any more.
    NoManifest(ManifestKey),
    /// It is the index of the store that says this number, and has been told all.
    Own(u64),
}

/// What an index says when it is opened. It may be behind.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The place of each piece.
    pub pieces: Vec<(PieceHash, Place)>,
    /// Up to where each segment is known.
    pub covered: BTreeMap<u64, u64>,
    /// Which manifests there are and were.
    pub manifests: BTreeMap<ManifestKey, Fate>,
    /// The number of its store; zero if it has been told none.
    pub own: u64,
}

/// Notes changes, so that they survive the process.
pub trait Index: Debug + Send {
    /// Notes `changes`. After a crash the first of them are there, up to some point: all, if it has returned.
    ///
    /// # Errors
    /// When that is not so: then it is not asked again.
    fn note(&mut self, changes: &[Change]) -> Result<(), String>;
}

const PIECES: &str = "pieces";
const SEGMENTS: &str = "segments";
const MANIFESTS: &str = "manifests";
const STORE: &str = "store";
const OWN: &[u8] = b"own";
const COMMITTED: &[u8] = b"committed";
const DELETED: &[u8] = b"deleted";
const ASIDE: &str = "aside-";

/// An index in a [`Catalogue`].
#[derive(Debug)]
pub(super) struct CatalogueIndex(Catalogue);

/// Why a store has no index.
#[derive(Debug)]
pub(super) enum NoIndex {
    /// The store is not opened.
    Refused(CatalogueError),
    /// The store is opened without, and reads all segments.
    Without(CatalogueError),
}

/// An index that was opened.
#[derive(Debug)]
pub(super) struct OpenedIndex {
    pub(super) index: CatalogueIndex,
    pub(super) recorded: Recorded,
    /// Why it was made anew, if it was.
    pub(super) rebuilt: Option<String>,
}

impl CatalogueIndex {
    /// Opens the index in `folder`. A damaged one is moved aside there, and a new one made.
    pub(super) fn open(folder: &Path) -> Result<OpenedIndex, NoIndex> {
        let loaded = Catalogue::open(folder).and_then(|opened| {
            let recorded = load(&opened.catalogue)?;
            let (index, rebuilt) = (Self(opened.catalogue), None);
            Ok(OpenedIndex {
                index,
                recorded,
                rebuilt,
            })
        });
        let damage = match loaded {
            Ok(opened) => {
                remove_aside(folder);
                return Ok(opened);
            }
            Err(error) => judge(error)?,
        };
        let begun = Catalogue::set_aside(folder).and_then(|_aside| Catalogue::open(folder));
        Ok(OpenedIndex {
            index: Self(begun.map_err(NoIndex::Without)?.catalogue),
            recorded: Recorded::default(),
            rebuilt: Some(damage.to_string()),
        })
    }
}

/// Passes on an error after which a new index may be begun.
fn judge(error: CatalogueError) -> Result<CatalogueError, NoIndex> {
    let damaged = matches!(
        error,
        CatalogueError::MarkerLost(_)
            | CatalogueError::MarkerDamaged(_)
            | CatalogueError::Foreign { .. }
            | CatalogueError::Emptied { .. }
            | CatalogueError::Behind { .. }
            | CatalogueError::Damaged { .. }
            | CatalogueError::Record { .. }
    );
    let refused = matches!(
        error,
        CatalogueError::Newer { .. }
            | CatalogueError::Private(PrivateError::Open { .. } | PrivateError::Owner { .. } | PrivateError::Kind { .. })
    );
    match (damaged, refused) {
        (true, _) => Ok(error),
        (false, true) => Err(NoIndex::Refused(error)),
        (false, false) => Err(NoIndex::Without(error)),
    }
}

/// Removes what was moved aside in an earlier life, since the index is whole now and holds nothing that is not elsewhere.
fn remove_aside(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(ASIDE) {
            // It is tried again the next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Index for CatalogueIndex {
    fn note(&mut self, changes: &[Change]) -> Result<(), String> {
        // The longest changes are 40 bytes of key and 20 of value, so that any such batch is short enough.
        for changes in changes.chunks(limits::BATCH_CHANGES) {
            let batch = changes.iter().fold(Batch::new(), add);
            self.0.commit(&batch).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

const _: () = assert!(limits::BATCH_CHANGES * 60 < limits::BATCH_BYTES);

fn add(batch: Batch, change: &Change) -> Batch {
    match change {
        Change::Piece(hash, place) => {
            let mut bytes = place.segment.to_be_bytes().to_vec();
            bytes.extend(place.offset.to_be_bytes());
            bytes.extend(place.len.to_be_bytes());
            batch.put(PIECES, &hash.bytes(), &bytes)
        }
        Change::NoPiece(hash) => batch.remove(PIECES, &hash.bytes()),
        Change::Covered(segment, offset) => batch.put(SEGMENTS, &segment.to_be_bytes(), &offset.to_be_bytes()),
        Change::NoSegment(segment) => batch.remove(SEGMENTS, &segment.to_be_bytes()),
        Change::Manifest(key, Fate::Committed) => batch.put(MANIFESTS, &manifest_key(*key), COMMITTED),
        Change::Manifest(key, Fate::Deleted) => batch.put(MANIFESTS, &manifest_key(*key), DELETED),
        Change::NoManifest(key) => batch.remove(MANIFESTS, &manifest_key(*key)),
        Change::Own(number) => batch.put(STORE, OWN, &number.to_be_bytes()),
    }
}

fn manifest_key(key: ManifestKey) -> Vec<u8> {
    [key.step.get().to_be_bytes().as_slice(), &key.id.bytes()].concat()
}

fn load(catalogue: &Catalogue) -> Result<Recorded, CatalogueError> {
    let mut recorded = Recorded::default();
    each(catalogue, PIECES, |key, value| {
        let mut rest = value;
        let place = Place {
            segment: u64::from_be_bytes(take(&mut rest)?),
            offset: u64::from_be_bytes(take(&mut rest)?),
            len: u32::from_be_bytes(take(&mut rest)?),
        };
        recorded.pieces.push((PieceHash::new(key.try_into().ok()?), place));
        Some(())
    })?;
    each(catalogue, SEGMENTS, |key, value| {
        let number = u64::from_be_bytes(key.try_into().ok()?);
        recorded.covered.insert(number, u64::from_be_bytes(value.try_into().ok()?));
        Some(())
    })?;
    each(catalogue, MANIFESTS, |mut key, value| {
        let key = ManifestKey {
            step: Step::new(u64::from_be_bytes(take(&mut key)?)),
            id: ManifestId::new(key.try_into().ok()?),
        };
        let fate = match value {
            COMMITTED => Fate::Committed,
            DELETED => Fate::Deleted,
            _ => return None,
        };
        recorded.manifests.insert(key, fate);
        Some(())
    })?;
    each(catalogue, STORE, |_own, value| {
        recorded.own = u64::from_be_bytes(value.try_into().ok()?);
        Some(())
    })?;
    Ok(recorded)
}

/// Calls `read` with each entry of a table. None of `read` means that the entry makes no sense.
fn each(catalogue: &Catalogue, name: &str, mut read: impl FnMut(&[u8], &[u8]) -> Option<()>) -> Result<(), CatalogueError> {
    let table = catalogue.table(name)?;
    let mut from = Vec::new();
    loop {
        let page = table.scan(&from, limits::SCAN_ENTRIES)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = [last.as_slice(), &[0]].concat();
        for (key, value) in &page {
            read(key, value).ok_or_else(|| CatalogueError::Record {
                path: PathBuf::new(),
                table: name.to_owned(),
                key: data_encoding::HEXLOWER.encode(key),
                reason: "it is not one of the index".to_owned(),
            })?;
        }
    }
}
