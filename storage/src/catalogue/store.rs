//! sled, held at arm's length: it panics on some damage, and its threads may hold its file a moment longer than it lives. No
//! panic leaves this file. Must not know what is kept.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sled::{Batch, Db, IVec};

use super::limits::{CACHE_BYTES, CLOSE_PATIENCE, LOCK_PATIENCE, SEGMENT_BYTES};
use crate::lock::FileLock;
use crate::private::{Missing, PrivateError, open_private};

/// The folder that sled has for itself.
pub const STORE_FOLDER: &str = "store";
/// sled's data.
pub const DATA_FILE: &str = "db";
/// sled's settings.
pub(super) const SETTINGS_FILE: &str = "conf";

/// What sled, or the disk under it, did wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The system said no.
    #[error("{0}")]
    Disk(io::Error),
    /// sled found its files damaged.
    #[error("{0}")]
    Damaged(String),
    /// sled panicked: what it has in memory is not to be used any more.
    #[error("sled panicked: {0}")]
    Panicked(String),
}

impl From<sled::Error> for Fault {
    fn from(error: sled::Error) -> Self {
        match error {
            // sled makes errors of its own of these kinds when what it reads makes no sense; the system's have a number.
            sled::Error::Io(error)
                if error.raw_os_error().is_none()
                    && matches!(
                        error.kind(),
                        io::ErrorKind::Other
                            | io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::InvalidData
                            | io::ErrorKind::NotFound
                    ) =>
            {
                Self::Damaged(format!("sled: {error}"))
            }
            sled::Error::Io(error) => Self::Disk(error),
            sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_)
            | sled::Error::Corruption { .. } => Self::Damaged(format!("sled: {error}")),
        }
    }
}

/// Calls sled.
///
/// A panic is caught here, because sled answers some damage with an assertion. A caller that gets [`Fault::Panicked`] uses this
/// store no more, so that it does not matter in what state the panic has left it.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => Ok(answer?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            Err(Fault::Panicked(text.to_owned()))
        }
    }
}

/// sled, open. [`Store::close`] it: else it is closed where it is dropped, without a bound on the time.
#[derive(Debug)]
pub(super) struct Store {
    db: Option<Db>,
    /// sled's data, opened before sled wrote to it: the system tells each open file of a failed write once, and sled
    /// swallows its own.
    data: File,
    path: PathBuf,
    /// sled has panicked, so: it is not asked again.
    panicked: OnceLock<String>,
}

impl Store {
    /// Opens sled's files in `folder`, which are there, if only empty.
    pub(super) fn open(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(DATA_FILE);
        let data = File::open(&path).map_err(Fault::Disk)?;
        let until = Instant::now() + LOCK_PATIENCE;
        let config = sled::Config::new()
            .path(folder)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(CACHE_BYTES)
            // No thread that syncs now and then: every batch is synced, and sled collects its garbage as it writes.
            .flush_every_ms(None);
        loop {
            match guarded(|| config.open()) {
                Ok(db) => {
                    break Ok(Self {
                        db: Some(db),
                        data,
                        path,
                        panicked: OnceLock::new(),
                    });
                }
                // A store that was just closed.
                Err(Fault::Damaged(reason)) if reason.contains("could not acquire lock") => {
                    if Instant::now() > until {
                        let reason = "another program, or a thread of this process that hangs, has it locked; end that";
                        break Err(Fault::Disk(io::Error::new(io::ErrorKind::ResourceBusy, reason)));
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                Err(fault) => break Err(fault),
            }
        }
    }

    /// sled's data file, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn call<T>(&self, call: impl FnOnce(&Db) -> sled::Result<T>) -> Result<T, Fault> {
        match (self.panicked.get(), &self.db) {
            (Some(reason), _) => Err(Fault::Panicked(reason.clone())),
            (None, Some(db)) => {
                let answer = guarded(|| call(db));
                if let Err(Fault::Panicked(reason)) = &answer {
                    self.panicked.get_or_init(|| reason.clone());
                }
                answer
            }
            (None, None) => Err(Fault::Damaged("it is being closed".to_owned())),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<IVec>, Fault> {
        self.call(|db| db.get(key))
    }

    /// At most `limit` records whose keys are not below `from`, in order.
    pub(super) fn scan(&self, from: &[u8], limit: usize) -> Result<Vec<(IVec, IVec)>, Fault> {
        self.call(|db| db.range(from..).take(limit).collect())
    }

    /// All of `batch`, or nothing after a crash. Not on the disk before [`Store::sync`].
    pub(super) fn apply(&self, batch: Batch) -> Result<(), Fault> {
        self.call(|db| db.apply_batch(batch))
    }

    /// What was applied before is on the disk when this returns. sled's `flush` alone is not enough: it hands the bytes to
    /// the disk, without the file's new length or places, and without waiting for the disk's own cache.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.call(|db| db.flush())?;
        self.data.sync_data().map_err(Fault::Disk)
    }

    /// Ends it, within [`CLOSE_PATIENCE`]. The lock is given back when sled has let go of its files, if it ever does.
    pub(super) fn close(mut self, lock: Option<FileLock>) {
        let Some(db) = self.db.take() else { return };
        let (done, ended) = mpsc::channel::<()>();
        let closing = thread::Builder::new().name("catalogue-close".to_owned()).spawn(move || {
            if guarded(|| {
                drop(db);
                Ok(())
            })
            .is_err()
            {
                tracing::warn!("sled panicked while it was closed; what was committed is not touched by it");
            }
            drop((lock, done));
        });
        if closing.is_ok() {
            // Nothing is ever sent: this waits for the other end to be dropped.
            let _ = ended.recv_timeout(CLOSE_PATIENCE);
        }
    }
}

/// Makes sled's files, empty and private, if they are not there: sled itself would make them readable by all.
pub(super) fn prepare(folder: &Path) -> Result<(), PrivateError> {
    for name in [DATA_FILE, SETTINGS_FILE] {
        drop(open_private(&folder.join(name), Missing::Create)?);
    }
    Ok(())
}
