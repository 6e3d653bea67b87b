//! What is done to sled's files before and after sled has failed on them. sled's data is never removed, and moved only
//! when the caller asks for it.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::CatalogueError;
use super::marker::MARKER_FILE;
use super::store::{DATA_FILE, SETTINGS_FILE, STORE_FOLDER};
use crate::lock::{FileLock, Holder};
use crate::private::{Missing, PrivateError, PrivateFolder, sync_folder};

/// What begins the names of sled's snapshots: summaries of its data, which it can do without.
const SNAPSHOT: &str = "snap.";

/// What ends the name of a snapshot that was being written when the process died. sled cannot open its files while one is there.
const UNFINISHED: &str = ".generating";

/// What was repaired. The catalogue has everything that was acknowledged; the caller logs this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Half of the marker was damaged, as it is when the power fails in the middle of a commit. If the disk has damaged it
    /// by itself, and lost the last commit's data as well, that cannot be noticed.
    Marker,
    /// sled could not use its snapshots or settings, and opened its data without them. They were moved to this folder, which
    /// may be removed.
    Summaries(PathBuf),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker => f.write_str("half of the marker was damaged, and is written anew"),
            Self::Summaries(aside) => write!(
                f,
                "the database's summaries could not be used, and are in {}, which may be removed",
                aside.display()
            ),
        }
    }
}

fn system(path: &Path) -> impl Fn(io::Error) -> PrivateError {
    move |error| PrivateError::system(path, error)
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, PrivateError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(system(folder))? {
        let path = entry.map_err(system(folder))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        found.push((name.unwrap_or_default(), path));
    }
    found.sort();
    Ok(found)
}

/// Removes snapshots that were never finished.
pub(super) fn remove_unfinished(store: &Path) -> Result<(), PrivateError> {
    for (name, path) in entries(store)? {
        if name.starts_with(SNAPSHOT) && name.ends_with(UNFINISHED) {
            fs::remove_file(&path).map_err(system(&path))?;
        }
    }
    Ok(())
}

/// Makes sled's snapshots as private as the rest: sled makes them readable by all.
pub(super) fn make_private(store: &Path) -> Result<(), PrivateError> {
    for (name, path) in entries(store)? {
        if name.starts_with(SNAPSHOT) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(system(&path))?;
        }
    }
    Ok(())
}

/// Reads all of sled's data once. sled takes what it cannot read for the end of its data, and overwrites what follows; a
/// disk that does not answer must be noticed before. What was read is in memory then, and sled reads it from there.
pub(super) fn read_through(store: &Path) -> Result<(), PrivateError> {
    let path = store.join(DATA_FILE);
    let mut file = File::open(&path).map_err(system(&path))?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).map_err(system(&path))? > 0 {}
    Ok(())
}

/// Moves snapshots and settings out of sled's way, if there are any: whereto.
pub(super) fn move_summaries(folder: &Path) -> Result<Option<PathBuf>, PrivateError> {
    let store = folder.join(STORE_FOLDER);
    let mut summaries = entries(&store)?;
    summaries.retain(|(name, _)| name.starts_with(SNAPSHOT) || name == SETTINGS_FILE);
    if summaries.is_empty() {
        return Ok(None);
    }
    let aside = new_folder(folder)?;
    for (name, path) in summaries {
        fs::rename(&path, aside.join(name)).map_err(system(&path))?;
    }
    sync_folder(&store)?;
    Ok(Some(aside))
}

/// A new folder `aside-N` in `folder`.
fn new_folder(folder: &Path) -> Result<PathBuf, PrivateError> {
    let mut number = 1_u64;
    loop {
        let path = folder.join(format!("aside-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(system(&path)(error)),
            Ok(()) => return Ok(path),
        }
    }
}

/// Everything of the file system of `folder` is on the disk when this returns: also the names of the folders above, which
/// may be new and of which some may not be ours to open.
pub(super) fn sync_all(folder: &Path) -> Result<(), PrivateError> {
    let opened = File::open(folder).map_err(system(folder))?;
    rustix::fs::syncfs(opened).map_err(|error| system(folder)(error.into()))
}

/// Takes the catalogue in `folder` for this process. sled locks its file too, but does not say which process has it.
pub(super) fn take_lock(folder: &Path) -> Result<FileLock, CatalogueError> {
    let path = folder.to_owned();
    FileLock::take_in(folder)?.map_err(|Holder { pid }| CatalogueError::Locked { path, pid })
}

/// Moves what is in `folder` into a folder `aside-N` there, and says which; the next opening begins anew. See
/// [`Catalogue::set_aside`](super::Catalogue::set_aside).
pub(super) fn set_aside(folder: &Path) -> Result<PathBuf, CatalogueError> {
    PrivateFolder::open(folder, Missing::Refuse)?;
    let _lock = take_lock(folder)?;
    let aside = new_folder(folder)?;
    // The marker last: what is left in between is a marker without a store, which is not taken for new.
    for name in [STORE_FOLDER, MARKER_FILE] {
        let path = folder.join(name);
        match fs::rename(&path, aside.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(&path)(error).into()),
            Err(_) | Ok(()) => {}
        }
        sync_folder(&aside)?;
        sync_folder(folder)?;
    }
    Ok(aside)
}
