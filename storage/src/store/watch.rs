//! Calls of the disk that are under way, so that one that does not return is noticed. Must not know how long is too long.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::disk::{Disk, DiskFile};
use crate::lock::held;
use crate::private::PrivateError;

/// Watches the disk of a store. Copies watch the same one.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Calls>>);

/// A call of the disk that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The operation.
    pub what: &'static str,
    /// The file or folder that it is about.
    pub path: PathBuf,
    /// For how long so far.
    pub age: Duration,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    under_way: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    what: &'static str,
    path: Arc<Path>,
    since: Instant,
}

impl Watch {
    /// The call that has been under way for longest. Depots ask, to refuse what would wait for it.
    #[must_use]
    pub fn oldest(&self) -> Option<UnderWay> {
        let calls = held(&self.0);
        let oldest = calls.under_way.values().next()?;
        Some(UnderWay {
            what: oldest.what,
            path: oldest.path.to_path_buf(),
            age: oldest.since.elapsed(),
        })
    }

    /// Does `call`, and knows of it meanwhile.
    pub(super) fn during<T>(&self, what: &'static str, path: &Arc<Path>, call: impl FnOnce() -> T) -> T {
        let (path, since) = (Arc::clone(path), Instant::now());
        let number = {
            let mut calls = held(&self.0);
            calls.next += 1;
            let number = calls.next;
            calls.under_way.insert(number, Call { what, path, since });
            number
        };
        let _returned = Returned { watch: self, number };
        call()
    }
}

/// Forgets a call when it returns, or panics.
struct Returned<'a> {
    watch: &'a Watch,
    number: u64,
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        held(&self.watch.0).under_way.remove(&self.number);
    }
}

/// A disk that is watched.
#[derive(Debug)]
pub(super) struct WatchedDisk {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) watch: Watch,
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    path: Arc<Path>,
    watch: Watch,
}

impl WatchedDisk {
    fn during<T>(&self, what: &'static str, path: &Path, call: impl FnOnce() -> T) -> T {
        self.watch.during(what, &Arc::from(path), call)
    }

    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (path, watch) = (Arc::from(path), self.watch.clone());
        Arc::new(WatchedFile { file, path, watch })
    }
}

impl Disk for WatchedDisk {
    fn is_the_hosts(&self) -> bool {
        self.disk.is_the_hosts()
    }

    fn make_folder(&self, path: &Path) -> Result<(), PrivateError> {
        self.during("make", path, || self.disk.make_folder(path))
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError> {
        self.during("list", folder, || self.disk.names(folder))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let made = self.during("make", path, || self.disk.create(path));
        made.map(|file| self.file(path, file))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let opened = self.during("open", path, || self.disk.open(path));
        opened.map(|file| self.file(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError> {
        self.during("rename", from, || self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), PrivateError> {
        self.during("remove", path, || self.disk.remove(path))
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError> {
        self.during("sync", folder, || self.disk.sync_folder(folder))
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.watch.during("read", &self.path, || self.file.read_at(buffer, offset))
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.watch.during("write", &self.path, || self.file.write_at(parts, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.during("sync", &self.path, || self.file.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.watch.during("measure", &self.path, || self.file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.watch.during("cut", &self.path, || self.file.set_len(len))
    }

    fn written(&self, offset: u64, len: u64) {
        self.watch.during("write", &self.path, || self.file.written(offset, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_returned_is_known_the_oldest_first() {
        let watch = Watch::default();
        let [one, two] = ["one", "two"].map(|path| Arc::<Path>::from(Path::new(path)));
        let oldest = || watch.oldest().map(|call| (call.what, call.path));
        assert_eq!(oldest(), None);
        watch.during("read", &one, || {
            watch.during("write", &two, || assert_eq!(oldest(), Some(("read", PathBuf::from("one")))));
            assert_eq!(oldest(), Some(("read", PathBuf::from("one"))));
        });
        assert_eq!(oldest(), None);
    }
}
