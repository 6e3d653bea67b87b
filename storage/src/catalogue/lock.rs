//! One process at a time.

use std::path::Path;

use super::error::CatalogueError;
use crate::lock::{FileLock, Holder};
use crate::private::{Otherwise, PrivateError, open_private};

/// The file's name.
pub const LOCK_FILE: &str = "lock";

/// Takes the catalogue in `folder` for this process. sled locks its file too, but does not say who has it.
pub(crate) fn take(folder: &Path) -> Result<FileLock, CatalogueError> {
    let path = folder.join(LOCK_FILE);
    let taken = FileLock::take(open_private(&path, Otherwise::Make)?);
    let taken = taken.map_err(|error| CatalogueError::Private(PrivateError::system(&path, error)))?;
    taken.map_err(|Holder { pid }| CatalogueError::Locked {
        path: folder.to_owned(),
        pid,
    })
}
