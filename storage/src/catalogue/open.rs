//! A folder becomes an open catalogue, in a thread of its own, which is not waited for for ever: nothing bounds what sled
//! does with damaged files, and nothing can stop it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use super::check::{self, Contents};
use super::error::CatalogueError;
use super::marker::{self, Mark, Marker};
use super::record::Head;
use super::repair::{self, Repair};
use super::store::{self, DATA_FILE, STORE_FOLDER, Store};
use crate::lock::FileLock;
use crate::private::{Missing, PrivateError, PrivateFolder, sync_folder};

/// All that an open catalogue has.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) folder: PathBuf,
    pub(super) lock: FileLock,
    pub(super) store: Store,
    pub(super) marker: Marker,
    pub(super) head: Head,
    pub(super) contents: Contents,
    pub(super) since: u64,
    pub(super) found: Found,
}

/// What was there before a catalogue was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it is new.
    Fresh,
    /// All that was acknowledged.
    Used,
    /// All that was acknowledged, after repairs.
    Repaired(Vec<Repair>),
}

/// Opens the catalogue in `folder`, or gives up after `patience`.
pub(super) fn open(folder: &Path, patience: Duration) -> Result<Parts, CatalogueError> {
    let path = folder.to_owned();
    let (answer, answered) = mpsc::sync_channel(1);
    let opening = thread::Builder::new().name("catalogue-open".to_owned()).spawn(move || {
        let opened = begin(&path);
        // The caller does not wait any more: it is closed again.
        if let Err(mpsc::SendError(Ok(parts))) = answer.send(opened) {
            parts.store.close(Some(parts.lock));
        }
    });
    let path = folder.to_owned();
    if let Err(source) = opening {
        return Err(CatalogueError::Disk { path, source });
    }
    match answered.recv_timeout(patience) {
        Ok(opened) => opened,
        Err(RecvTimeoutError::Timeout) => Err(CatalogueError::Stuck { path, patience }),
        // Cannot be, since panics of sled's end where it is called.
        Err(RecvTimeoutError::Disconnected) => Err(CatalogueError::Damaged {
            path,
            reason: "the thread that opened it ended without an answer".to_owned(),
        }),
    }
}

fn begin(folder: &Path) -> Result<Parts, CatalogueError> {
    PrivateFolder::open(folder, Missing::Create)?;
    let lock = repair::take_lock(folder)?;
    let inside = PrivateFolder::open(folder, Missing::Refuse)?.file(STORE_FOLDER);
    let mut repairs = Vec::new();
    let (mark, marker) = match marker::read(folder)? {
        marker::MarkerState::Missing => {
            let mark = fresh(folder, &inside)?;
            let marker = Marker::renew(folder, &mark)?;
            (mark, Some(marker))
        }
        marker::MarkerState::Whole(mark) => (mark, None),
        marker::MarkerState::Half(mark) => {
            repairs.push(Repair::Marker);
            (mark, None)
        }
    };
    let new = mark.commits == 0;
    if !new && data_bytes(&inside)? == 0 {
        return Err(check::emptied(&mark, &inside));
    }
    PrivateFolder::open(&inside, Missing::Create)?;
    store::prepare(&inside)?;
    repair::remove_unfinished(&inside)?;
    repair::read_through(&inside)?;
    let (store, contents) = match attempt(&inside, &mark) {
        Ok(opened) => opened,
        Err(error) => again(folder, &inside, &mark, error, &mut repairs)?,
    };
    let found = if !repairs.is_empty() {
        Found::Repaired(repairs)
    } else if new && contents.head.is_none() {
        Found::Fresh
    } else {
        Found::Used
    };
    let head = contents.head.clone().unwrap_or_else(|| Head::new(mark.id));
    let marker = match settle(folder, &store, &Mark::of(&head, mark.since), marker) {
        Ok(marker) => marker,
        Err(error) => {
            store.close(Some(lock));
            return Err(error);
        }
    };
    Ok(Parts {
        folder: folder.to_owned(),
        lock,
        store,
        marker,
        head,
        contents,
        since: mark.since,
        found,
    })
}

/// A mark for a new catalogue, if there is nothing yet.
fn fresh(folder: &Path, inside: &Path) -> Result<Mark, CatalogueError> {
    if data_bytes(inside)? > 0 {
        let path = folder.join(marker::MARKER_FILE);
        return Err(CatalogueError::MarkerLost(path));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| CatalogueError::Disk {
        path: folder.to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Mark::new(id, since.map_or(0, |since| since.as_secs())))
}

/// How long sled's data is; 0 if there is none.
fn data_bytes(inside: &Path) -> Result<u64, PrivateError> {
    let path = inside.join(DATA_FILE);
    match fs::metadata(&path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(PrivateError::system(&path, error)),
    }
}

/// Opens sled and compares all that is there with what should be.
fn attempt(inside: &Path, mark: &Mark) -> Result<(Store, Contents), CatalogueError> {
    let store = Store::open(inside).map_err(|fault| check::failed(&inside.join(DATA_FILE), fault))?;
    let contents = check::contents(&store).and_then(|contents| {
        check::against(mark, &contents, inside)?;
        Ok(contents)
    });
    match contents {
        Ok(contents) => Ok((store, contents)),
        Err(error) => {
            store.close(None);
            Err(error)
        }
    }
}

/// Tries without what sled can do without. If that does not help either, the first error is the one to tell.
fn again(
    folder: &Path,
    inside: &Path,
    mark: &Mark,
    first: CatalogueError,
    repairs: &mut Vec<Repair>,
) -> Result<(Store, Contents), CatalogueError> {
    let damaged = matches!(
        first,
        CatalogueError::Damaged { .. }
            | CatalogueError::Record { .. }
            | CatalogueError::Behind { .. }
            | CatalogueError::Emptied { .. }
    );
    if !damaged {
        return Err(first);
    }
    let Some(aside) = repair::move_summaries(folder)? else {
        return Err(first);
    };
    store::prepare(inside)?;
    let opened = attempt(inside, mark).map_err(|_again| first)?;
    repairs.push(Repair::Summaries(aside));
    Ok(opened)
}

/// What was found is on the disk, and the marker says so, before the caller sees it: after a crash sled may show more than was
/// synced.
fn settle(folder: &Path, store: &Store, mark: &Mark, marker: Option<Marker>) -> Result<Marker, CatalogueError> {
    let inside = folder.join(STORE_FOLDER);
    store.sync().map_err(|fault| check::failed(store.path(), fault))?;
    repair::make_private(&inside)?;
    sync_folder(&inside)?;
    sync_folder(folder)?;
    match marker {
        Some(marker) => {
            repair::sync_all(folder)?;
            Ok(marker)
        }
        None => Ok(Marker::renew(folder, mark)?),
    }
}
