//! One process at a time.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::error::CatalogueError;
use crate::trust::{Otherwise, PrivateError, open_private};

/// The file's name.
pub const LOCK_FILE: &str = "lock";

/// Keeps everybody else away as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone is not enough: a child of this process that is being started has the file open until it runs its
        // program.
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "the lock of a catalogue could not be given back before its file is closed");
        }
    }
}

/// Takes the catalogue in `folder` for whoever asks. sled locks its file too, but does not say who has it.
pub(crate) fn take(folder: &Path) -> Result<Lock, CatalogueError> {
    let path = folder.join(LOCK_FILE);
    let system = |error: std::io::Error| CatalogueError::Private(PrivateError::system(&path, error));
    let mut file = open_private(&path, Otherwise::Make)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // It may be writing it.
            let _ = Read::take(&mut file, 32).read_to_string(&mut pid);
            let pid = pid.trim();
            return Err(CatalogueError::Locked {
                path: folder.to_owned(),
                pid: if pid.is_empty() { "unknown" } else { pid }.to_owned(),
            });
        }
        Err(error) => return Err(system(error.into())),
    }
    // The number is for people: on a full disk it is left out, so that what is kept can still be read.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Lock(file))
}
