//! The store of checkpoints on one host's disk: pieces, which are bytes that are called by their hash, and manifests, which name the
//! pieces of a checkpoint. It knows no network, no actors, and not what the bytes mean.
//!
//! - [`Store::put`] writes pieces that are not there yet, [`Store::sync`] makes them durable; before that no worker may be told that they are
//!   held.
//! - [`Store::commit`] makes a manifest durable, all of whose pieces are (CKPT-1).
//! - [`Store::read`] gives the bytes that were put, or an error that says what is wrong where (CKPT-2); [`Store::heal`] replaces them,
//!   [`Store::verify`] reads everything.
//! - [`Store::delete`] leaves a durable tombstone, so that a copy that returns is known; [`Store::collect`] gives back the room.
//!
//! ```text
//! folder/  0700      lock                    which process uses it
//!                    format                  of which version it is, and which index is its own
//!                    segments/NNNNNNNN.seg   pieces, one after the other, each with a header that says what it is
//!                    manifests/STEP-ID.manifest, .deleted
//!                    catalogue/              the index: where each piece is, and which manifests there should be
//! ```
//!
//! The index is never the only copy of where a piece is: lost, damaged or behind, it is made anew from the segments. Nothing that is
//! damaged is removed; what is wrong is said in [`Opened::findings`] and with each manifest that it concerns.
//!
//! What it cannot notice: that the whole folder was exchanged for an older copy, and a manifest that is gone together with the index, or
//! before the index was told of it, which happens for a few at a time.
//!
//! All calls block, for as long as the disk takes: from async code, go through `spawn_blocking`.

mod collect;
mod disk;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod index;
pub mod limits;
mod manifest;
mod manifests;
mod names;
mod near;
mod open;
mod put;
mod read;
mod record;
mod recover;
mod report;
mod scan;
mod shared;
mod state;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardana_protocol::words::Step;

pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{CollectError, CommitError, DeleteError, OpenError, ReadError, Remains, ShowError, WriteError};
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use index::{Change, Fate, Index, Recorded};
pub use manifest::Manifest;
pub use names::{ManifestId, ManifestKey, PieceHash, PinId, Place};
pub use near::{Places, Reading, Wanted, read_near};
pub use report::{Collected, Finding, Harm, Listed, Newest, Problem, Progress, Usage, Verified};
pub use watch::{UnderWay, Watch};

/// The folder of segments.
pub const SEGMENTS_FOLDER: &str = "segments";
/// The folder of manifests.
pub const MANIFESTS_FOLDER: &str = "manifests";
/// The folder of the index.
pub const INDEX_FOLDER: &str = "catalogue";
/// The file that says of which version the store is.
pub const FORMAT_FILE: &str = "format";

/// How a store lays out what it writes. What is there may have been written otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A segment ends before it would get longer; one piece fits in any case.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: limits::SEGMENT_BYTES,
        }
    }
}

/// A store that is open. Copies are the same store; it is closed when the last one is dropped. Any thread may call anything at any time:
/// reads go on beside each other and beside everything else.
#[derive(Clone, Debug)]
pub struct Store(Arc<shared::Shared>);

/// A store, and what was noticed when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What is not as it should be, and what was repaired. Empty when all is well.
    pub findings: Vec<Finding>,
}

impl Store {
    /// Opens the store in `folder`, or makes one there.
    ///
    /// # Errors
    /// When another process has it, others could have changed it, a later release wrote it, or the disk says no.
    pub fn open(folder: &Path) -> Result<Opened, OpenError> {
        Self::open_with(folder, Options::default())
    }

    /// The same, laid out otherwise.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open_with(folder: &Path, options: Options) -> Result<Opened, OpenError> {
        Ok(Self::opened(open::open(folder, options)?))
    }

    /// The same on another disk and with another index, or none: for tests. The caller sees to it that it is opened once.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        index: Option<(Box<dyn Index>, Recorded)>,
        options: Options,
    ) -> Result<Opened, OpenError> {
        Ok(Self::opened(open::open_on(disk, folder, index, options)?))
    }

    fn opened((shared, findings): (shared::Shared, Vec<Finding>)) -> Opened {
        let store = Self(Arc::new(shared));
        Opened { store, findings }
    }

    /// Pins `pieces` until [`Store::unpin`], and writes those that are not held: their hashes, in order. They are held, and readable,
    /// after [`Store::sync`].
    ///
    /// # Errors
    /// When a piece is too long; nothing was written then. When the disk says no: then some may be written, and are held after a sync.
    pub fn put(&self, pin: PinId, pieces: &[&[u8]]) -> Result<Vec<PieceHash>, WriteError> {
        self.0.put(pin, pieces)
    }

    /// All that was put before is on the disk, and held, when this returns.
    ///
    /// # Errors
    /// [`WriteError::Poisoned`] when the disk failed: nothing that was put since the last sync is held then, and nothing is written any
    /// more until the store is opened anew.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.0.sync()
    }

    /// Pins those of `pieces` that are held, so that they stay: the others, which are to be put. The maker of a checkpoint asks this
    /// first, and so does a server that hands one out.
    #[must_use]
    pub fn pin(&self, pin: PinId, pieces: &[PieceHash]) -> Vec<PieceHash> {
        self.0.pin(pin, pieces)
    }

    /// Nothing is kept for the sake of `pin` any more. Called when its manifest is committed, or given up.
    pub fn unpin(&self, pin: PinId) {
        self.0.unpin(pin);
    }

    /// Makes `manifest` durable: it is when this returns. To do it again is no harm, and replaces a damaged one.
    ///
    /// # Errors
    /// When one of its pieces is not on the disk, it was deleted here before, is too large, or the disk says no.
    pub fn commit(&self, manifest: &Manifest) -> Result<ManifestKey, CommitError> {
        self.0.commit(manifest)
    }

    /// Deletes a manifest: for good when this returns. Its pieces stay until [`Store::collect`]. Of more than [`limits::MOST_TOMBSTONES`] that
    /// were deleted the oldest are forgotten.
    ///
    /// # Errors
    /// When there is none, or the disk says no.
    pub fn delete(&self, key: ManifestKey) -> Result<(), DeleteError> {
        self.0.delete(key)
    }

    /// Why nothing is written any more until it is opened anew, if so.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        self.0.poison.get().map(String::as_str)
    }

    /// Whether this manifest was deleted here.
    #[must_use]
    pub fn is_deleted(&self, key: ManifestKey) -> bool {
        shared::held(&self.0.state).deleted.contains(&key)
    }

    /// All manifests that were deleted, and are not forgotten.
    #[must_use]
    pub fn deleted(&self) -> Vec<ManifestKey> {
        shared::held(&self.0.state).deleted.iter().copied().collect()
    }

    /// Forgets that manifests of steps below `before` were deleted: how many. Called when no copy of them can return any more.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn forget(&self, before: Step) -> Result<usize, WriteError> {
        self.0.forget(before)
    }

    /// Lets go of the pieces that no manifest and no pin names, and gives their room back, which takes as long as copying what is good
    /// beside them. Everything else goes on meanwhile.
    ///
    /// # Errors
    /// When a manifest cannot be read, so that what it needs is not known; nothing was changed then. Or when the disk says no.
    pub fn collect(&self) -> Result<Collected, CollectError> {
        self.0.collect()
    }

    /// The bytes of a piece.
    ///
    /// # Errors
    /// When it is not held, or not what was put.
    pub fn read(&self, piece: PieceHash) -> Result<Vec<u8>, ReadError> {
        let mut buffer = Vec::new();
        self.0.read_into(piece, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads many pieces with several threads. Calls `each` with each one's number and bytes, from any thread and in any order.
    pub fn read_many(&self, pieces: &[PieceHash], each: impl Fn(usize, Result<&[u8], ReadError>) + Sync) {
        self.0.read_many(pieces, each);
    }

    /// Where other processes of this host find these pieces. None if they do not see the disk.
    #[must_use]
    pub fn places(&self, pieces: &[PieceHash]) -> Option<Places> {
        self.0.places(pieces)
    }

    /// Puts `bytes` in place of a piece that is damaged or missing: durable when this returns.
    ///
    /// # Errors
    /// When they are not its bytes, or the disk says no.
    pub fn heal(&self, piece: PieceHash, bytes: &[u8]) -> Result<(), WriteError> {
        self.0.heal(piece, bytes)
    }

    /// Reads every piece and every manifest, and calls `progress` after each piece.
    #[must_use]
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Verified {
        self.0.verify(progress)
    }

    /// All manifests that were not deleted, the oldest first, and what is wrong with them as far as can be seen without reading their
    /// pieces.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        self.0.list()
    }

    /// A manifest.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn show(&self, key: ManifestKey) -> Result<Manifest, ShowError> {
        self.0.show(key)
    }

    /// The file of a manifest: whether there is one, and of which time, is for the caller to see.
    #[must_use]
    pub fn path_of(&self, key: ManifestKey) -> PathBuf {
        self.0.committed(key)
    }

    /// Bytes of a piece that can be read here, as far as is known without reading it; none if it cannot.
    #[must_use]
    pub fn length_of(&self, piece: PieceHash) -> Option<u32> {
        shared::held(&self.0.state).length(&piece)
    }

    /// The newest manifest all of whose pieces are held, and the newer ones that were passed over. Their bytes are compared when they are
    /// read; after a damaged one this passes over what names it.
    #[must_use]
    pub fn newest(&self) -> Newest {
        self.0.newest()
    }

    /// What the disk is asked to do at the moment.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// How much is kept.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }
}
