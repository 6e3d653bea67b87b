//! The catalogue: small records that must not be lost, in named tables. A coordinator keeps a job's history here. It must
//! not know what the records mean.
//!
//! Below it is sled, which is fast and convenient and does four things that no caller may see: its `flush` does not survive a
//! power cut; damaged files it often opens as if they were old, or empty; on other damage it panics, or refuses to open
//! though all is there; and errors of its background syncs it swallows. So this room
//! - syncs each batch itself, before it says that it is there ([`Catalogue::commit`]);
//! - keeps a [marker](MARKER_FILE) beside sled's files, which says how much there should be;
//! - reads everything when it is opened, compares each record with its hash, and all of them with the head and the marker;
//! - calls sled only where a panic is caught, and opens it in a thread that it need not wait for;
//! - does without sled's snapshots where they are damaged, and touches sled's data only on an explicit
//!   [`Catalogue::set_aside`].
//!
//! So an opened catalogue has all that was acknowledged, or opening it says what is missing and what to do. What it cannot
//! notice: that the whole folder is gone, or was exchanged for an older copy of itself.
//!
//! ```text
//! folder/  0700      lock        which process uses it
//!                    marker      how much there should be
//!                    store/      sled's: db (the data), snap.… (summaries), conf (settings), blobs/ (stays empty)
//!                    aside-N/    what was moved out of the way
//! ```
//!
//! A panic of sled's is caught, but the process's panic hook has printed it by then.
//!
//! Calls block, a commit for as long as the disk takes: from async code, go through `spawn_blocking`.

mod batch;
mod check;
mod commit;
mod error;
#[cfg(feature = "fuzzing")]
mod fuzz;
pub mod limits;
mod marker;
mod open;
mod record;
mod repair;
mod store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use batch::Batch;
pub use commit::Entries;
pub use error::CatalogueError;
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use marker::MARKER_FILE;
pub use open::Found;
pub use repair::Repair;
pub use store::{DATA_FILE, STORE_FOLDER};

pub use crate::lock::LOCK_FILE;

/// A catalogue that is open. Copies are the same catalogue; it is closed when the last one, and the last of its tables, is
/// dropped.
#[derive(Clone, Debug)]
pub struct Catalogue(Arc<commit::Open>);

/// A catalogue, and what was there.
#[derive(Debug)]
pub struct Opened {
    /// The catalogue.
    pub catalogue: Catalogue,
    /// Whether it is new, or was repaired.
    pub found: Found,
}

impl Catalogue {
    /// Opens the catalogue in the folder `path`, or makes one there. All of it is read, so that it takes longer the more
    /// there is.
    ///
    /// # Errors
    /// When anything that was acknowledged is missing or damaged, another process uses it, others could have changed it, or
    /// the disk says no. See [`CatalogueError`]; nothing that is damaged is removed.
    pub fn open(path: &Path) -> Result<Opened, CatalogueError> {
        Self::open_within(path, limits::OPEN_PATIENCE)
    }

    /// The same, for a caller that cannot wait for [`limits::OPEN_PATIENCE`], or can wait for longer.
    ///
    /// # Errors
    /// See [`Catalogue::open`].
    pub fn open_within(path: &Path, patience: Duration) -> Result<Opened, CatalogueError> {
        let mut parts = open::open(path, patience)?;
        let found = std::mem::replace(&mut parts.found, Found::Used);
        Ok(Opened {
            catalogue: Self(Arc::new(commit::Open::new(parts))),
            found,
        })
    }

    /// Moves what is in the folder `path` out of the way, so that the next [`open`](Catalogue::open) begins anew: whereto.
    /// For a user who has read what is wrong, and can do without what is there. Nothing is removed.
    ///
    /// # Errors
    /// When it is in use, is not there, or the disk says no.
    pub fn set_aside(path: &Path) -> Result<PathBuf, CatalogueError> {
        repair::set_aside(path)
    }

    /// The table `name`. A table is there as long as it has entries; nothing needs to make it.
    ///
    /// # Errors
    /// When a table cannot be called so.
    pub fn table(&self, name: &str) -> Result<Table, CatalogueError> {
        if !record::is_name(name) {
            return Err(CatalogueError::Name(name.to_owned()));
        }
        Ok(Table {
            open: Arc::clone(&self.0),
            name: name.to_owned(),
        })
    }

    /// Makes the changes of `batch`, all or none. When this returns they are on the disk, and survive a power cut. Batches
    /// that are committed at once by several threads share their syncs. Says how many commits there were, this one included.
    ///
    /// # Errors
    /// When something in it is too large: then nothing was changed. [`CatalogueError::Poisoned`] when the disk failed: then
    /// whether it was is not known, and nothing works any more until the catalogue is opened anew.
    pub fn commit(&self, batch: &Batch) -> Result<u64, CatalogueError> {
        self.0.commit(batch)
    }

    /// How many commits are on the disk.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.commits()
    }

    /// When the catalogue was made, in seconds since 1970 by the clock of its host.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.0.since
    }
}

/// A table of a catalogue: keys with values, in the order of the keys' bytes. Others may see a batch shortly before it is on
/// the disk; the caller that committed it knows that it is when [`Catalogue::commit`] returns.
#[derive(Clone, Debug)]
pub struct Table {
    open: Arc<commit::Open>,
    name: String,
}

impl Table {
    /// The value under `key`.
    ///
    /// # Errors
    /// When it is not what was written, or something has failed before.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        self.open.get(&self.name, key)
    }

    /// Puts `value` under `key`, in place of what is there: on the disk when this returns.
    ///
    /// # Errors
    /// See [`Catalogue::commit`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), CatalogueError> {
        self.open.commit(&Batch::new().put(&self.name, key, value)).map(drop)
    }

    /// Removes `key`, if it is there: from the disk when this returns.
    ///
    /// # Errors
    /// See [`Catalogue::commit`].
    pub fn remove(&self, key: &[u8]) -> Result<(), CatalogueError> {
        self.open.commit(&Batch::new().remove(&self.name, key)).map(drop)
    }

    /// At most `limit` entries, and at most [`limits::SCAN_ENTRIES`], whose keys are not below `from`. For the next ones ask
    /// from the last key with a zero byte appended.
    ///
    /// # Errors
    /// When an entry is not what was written, or something has failed before.
    pub fn scan(&self, from: &[u8], limit: usize) -> Result<Entries, CatalogueError> {
        self.open.scan(&self.name, from, limit)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.open.len(&self.name)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
