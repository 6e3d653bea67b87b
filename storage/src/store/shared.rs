//! What all parts of an open store share, and what happens when the disk says no.
//!
//! Locks are taken in this order, and none is taken again: collecting, changing, writer, index, state. The state's is never held while the
//! disk is asked for anything.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::disk::Disk;
use super::error::WriteError;
use super::format;
use super::index::Index;
use super::names::segment_name;
use super::state::State;
use super::watch::Watch;
use super::writer::Writer;
use crate::lock::FileLock;
pub(super) use crate::lock::held;
use crate::private::PrivateError;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) segments: PathBuf,
    pub(super) manifests: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    /// Watches the disk, and the index, which is on it too.
    pub(super) watch: Watch,
    pub(super) segment_bytes: u64,
    /// One collection at a time.
    pub(super) collecting: Mutex<()>,
    /// Held while the set of manifests changes, and while it decides which pieces are needed.
    pub(super) changing: Mutex<()>,
    pub(super) writer: Mutex<Writer>,
    /// None if there is none, or it has failed.
    pub(super) index: Mutex<Option<Box<dyn Index>>>,
    pub(super) state: Mutex<State>,
    /// Why nothing more is written.
    pub(super) poison: OnceLock<String>,
    pub(super) lock: Option<FileLock>,
}

impl Shared {
    pub(super) fn writable(&self) -> Result<(), WriteError> {
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(self.poisoned(reason.clone())),
        }
    }

    pub(super) fn poisoned(&self, reason: String) -> WriteError {
        WriteError::Poisoned {
            path: self.folder.clone(),
            reason,
        }
    }

    /// From here on nothing is written any more, and what was not acknowledged is not held.
    pub(super) fn spoil(&self, error: &PrivateError) -> WriteError {
        self.spoil_for(error.to_string())
    }

    fn spoil_for(&self, reason: String) -> WriteError {
        let reason = self.poison.get_or_init(|| reason).clone();
        held(&self.state).pending.clear();
        self.poisoned(reason)
    }

    /// What a failed write means. A disk without room says so at once, and nothing is unclear; after anything else it is.
    pub(super) fn refuse(&self, error: PrivateError) -> WriteError {
        if matches!(error, PrivateError::NoSpace { .. }) {
            WriteError::Full(error)
        } else {
            self.spoil(&error)
        }
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, path: &Path) -> Result<(), WriteError> {
        match self.disk.remove(path) {
            Ok(()) | Err(PrivateError::Missing { .. }) => Ok(()),
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// Tells the index what has changed. If that fails there is none from here on: what it says is still true, and the rest is found
    /// again by reading.
    pub(super) fn note(&self) {
        let mut index = held(&self.index);
        let changes = std::mem::take(&mut held(&self.state).changes);
        let noted = index.as_mut().map_or(Ok(()), |index| {
            self.watch
                .during("write the index in", &self.folder.as_path().into(), || index.note(&changes))
        });
        if let Err(reason) = noted {
            tracing::warn!(
                folder = %self.folder.display(), reason,
                "the index of the checkpoints has failed; the store goes on without, and is slower to open the next time"
            );
            *index = None;
            // What is acknowledged from here on it does not know.
            match format::read(&*self.disk, &self.folder) {
                Ok(found) => drop(self.fence(found)),
                Err(error) => drop(self.spoil_for(error.to_string())),
            }
        }
    }

    pub(super) fn segment_path(&self, number: u64) -> PathBuf {
        self.segments.join(segment_name(number))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.note();
    }
}
