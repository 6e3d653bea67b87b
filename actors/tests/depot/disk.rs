//! A disk that has no room, breaks, or hangs, when it is told to.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use sardana_actors::depot::Patience;
use sardana_net::trust::Authority;
use sardana_storage::private::PrivateError;
use sardana_storage::store::{Disk, DiskFile, OpenError, Opened, Options, RealDisk, Store};

use crate::site::Place;

/// What is wrong with it at the moment.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    pub(crate) full: AtomicBool,
    pub(crate) no_sync: AtomicBool,
    hangs: Gate,
}

/// What does not return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hang {
    Read,
    Write,
    Sync,
    Rename,
}

#[derive(Debug, Default)]
struct Gate(Mutex<Option<Hang>>, Condvar);

/// While there is this, the disk hangs.
pub(crate) struct Hung<'a>(&'a Wrong);

impl Wrong {
    pub(crate) fn hang(&self, call: Hang) -> Hung<'_> {
        *self.hangs.0.lock().unwrap() = Some(call);
        Hung(self)
    }

    fn passes(&self, call: Hang) {
        let hangs = self.hangs.0.lock().unwrap();
        drop(self.hangs.1.wait_while(hangs, |hangs| *hangs == Some(call)).unwrap());
    }
}

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        *self.0.hangs.0.lock().unwrap() = None;
        self.0.hangs.1.notify_all();
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Faulty(pub(crate) Arc<Wrong>);

#[derive(Debug)]
struct File(Arc<dyn DiskFile>, Arc<Wrong>);

/// A depot on such a disk, and what is wrong with that.
pub(crate) fn place(authority: &Authority, id: u64, patience: Patience) -> (Place, Arc<Wrong>) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::default();
    let wrong = Arc::clone(&disk.0);
    let store = disk.open_store(&folder.path().join("store")).unwrap().store;
    (Place::with(authority, id, (store, folder), patience), wrong)
}

impl Faulty {
    /// Opens a store on it.
    pub(crate) fn open_store(&self, folder: &Path) -> Result<Opened, OpenError> {
        Store::open_on(Arc::new(self.clone()), folder, None, Options::default())
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(File(file, Arc::clone(&self.0)))
    }
}

impl Disk for Faulty {
    fn is_the_hosts(&self) -> bool {
        false
    }

    fn make_folder(&self, path: &Path) -> Result<(), PrivateError> {
        RealDisk.make_folder(path)
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError> {
        RealDisk.names(folder)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        RealDisk.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        RealDisk.open(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError> {
        self.0.passes(Hang::Rename);
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), PrivateError> {
        RealDisk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError> {
        RealDisk.sync_folder(folder)
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.passes(Hang::Read);
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.1.passes(Hang::Write);
        if self.1.full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.passes(Hang::Sync);
        if self.1.no_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn written(&self, offset: u64, len: u64) {
        self.0.written(offset, len);
    }
}
