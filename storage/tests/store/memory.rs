//! A disk in memory that writes down what is done to it, so that it can be cut off at any point; and that fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sardana_storage::private::PrivateError;
use sardana_storage::store::{Disk, DiskFile, ManifestKey, PieceHash, Recorded};

/// What was done.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// To the names of files.
    Move(Move),
    SyncFolder(PathBuf),
    /// Which names are on the disk is not known, and no later sync writes those that are not.
    SyncFolderFailed(PathBuf),
    /// To what is in the file of this number.
    Write(u64, Write),
    Sync(u64),
    /// What of it is on the disk is not known, and no later sync writes what is not.
    SyncFailed(u64),
    /// The index says this from here on.
    Index(Arc<Recorded>),
    /// What the test was told by then.
    Said(Arc<Said>),
}

/// What was done to the names of files.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Create(PathBuf, u64),
    Rename(PathBuf, PathBuf, u64),
    Remove(PathBuf),
}

/// What was done to a file.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    At(u64, Vec<u8>),
    SetLen(u64),
}

/// What must hold, whatever happens next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) pieces: BTreeSet<PieceHash>,
    pub(crate) committed: BTreeSet<ManifestKey>,
    pub(crate) deleted: BTreeSet<ManifestKey>,
}

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Once, with this error.
    Once(i32),
    /// From there on, with this error.
    Forever(i32),
    /// The next sync from there on, with this error.
    Sync(i32),
    /// A write writes only some of it, and says so.
    Short,
    /// A write writes some of it, and fails with this error.
    Torn(i32),
}

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;

/// What is on a disk.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Debug, Default)]
struct World {
    files: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<PathBuf, u64>,
    next: u64,
    log: Vec<Op>,
    /// Calls so far that can fail.
    calls: u64,
    failure: Option<(u64, Failure)>,
    failed: bool,
    /// The test looks at the store: that neither counts nor fails.
    quiet: bool,
}

/// What a call does, for a failure that concerns only some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Over,
    Create,
    Move,
    Sync,
}

fn needs_room(call: Call) -> bool {
    matches!(call, Call::Write | Call::Create)
}

impl World {
    fn fails(&mut self, call: Call) -> Option<Failure> {
        if self.quiet {
            return None;
        }
        self.calls += 1;
        let (at, failure) = self.failure?;
        let now = match failure {
            Failure::Sync(_) => !self.failed && self.calls >= at && call == Call::Sync,
            Failure::Once(ENOSPC) => !self.failed && self.calls >= at && needs_room(call),
            Failure::Once(_) => self.calls == at,
            // On a full disk one can read, sync, rename and remove.
            Failure::Forever(ENOSPC) => self.calls >= at && needs_room(call),
            Failure::Forever(_) => self.calls >= at,
            Failure::Short | Failure::Torn(_) => !self.failed && self.calls >= at && call == Call::Write,
        };
        self.failed |= now;
        now.then_some(failure)
    }

    fn check(&mut self, call: Call) -> io::Result<()> {
        match self.fails(call) {
            Some(Failure::Once(error) | Failure::Forever(error) | Failure::Sync(error)) => {
                Err(io::Error::from_raw_os_error(error))
            }
            Some(Failure::Short | Failure::Torn(_)) | None => Ok(()),
        }
    }

    /// The same for a call that is about `path`.
    fn check_at(&mut self, call: Call, path: &Path) -> Result<(), PrivateError> {
        self.check(call).map_err(|error| PrivateError::system(path, error))
    }

    fn add(&mut self, path: &Path, bytes: Vec<u8>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.files.insert(id, bytes);
        self.names.insert(path.to_owned(), id);
        id
    }

    /// Takes the name of a file away: which file.
    fn forget(&mut self, path: &Path) -> Result<u64, PrivateError> {
        self.names.remove(path).ok_or_else(|| missing(path))
    }
}

fn missing(path: &Path) -> PrivateError {
    PrivateError::system(path, io::ErrorKind::NotFound.into())
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<World>>);

impl MemoryDisk {
    pub(crate) fn with(image: &Image) -> Self {
        let disk = Self::default();
        let mut world = disk.world();
        for (path, bytes) in image {
            world.add(path, bytes.clone());
        }
        drop(world);
        disk
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub(crate) fn log(&self) -> Vec<Op> {
        self.world().log.clone()
    }

    pub(crate) fn say(&self, said: Said) {
        self.world().log.push(Op::Said(Arc::new(said)));
    }

    /// The index says this from here on.
    pub(crate) fn noted(&self, recorded: Recorded) {
        self.world().log.push(Op::Index(Arc::new(recorded)));
    }

    /// Whether calls neither count nor fail.
    pub(crate) fn quiet(&self, quiet: bool) {
        self.world().quiet = quiet;
    }

    /// Fails at the call of this number, counted from now on.
    pub(crate) fn fail(&self, at: u64, failure: Failure) {
        let mut world = self.world();
        world.failure = Some((world.calls + at, failure));
        world.failed = false;
    }

    pub(crate) fn failed(&self) -> bool {
        self.world().failed
    }

    pub(crate) fn mend(&self) {
        self.world().failure = None;
    }

    /// What is there, as programs see it.
    pub(crate) fn image(&self) -> Image {
        let world = self.world();
        let files = world.names.iter().map(|(path, id)| (path.clone(), world.files[id].clone()));
        files.collect()
    }
}

impl Disk for MemoryDisk {
    fn is_the_hosts(&self) -> bool {
        false
    }

    fn make_folder(&self, _path: &Path) -> Result<(), PrivateError> {
        Ok(())
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError> {
        let mut world = self.world();
        world.check_at(Call::Read, folder)?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let mut world = self.world();
        world.check_at(Call::Create, path)?;
        assert!(!world.names.contains_key(path), "{path:?} is there already");
        let id = world.add(path, Vec::new());
        world.log.push(Op::Move(Move::Create(path.to_owned(), id)));
        Ok(Arc::new(MemoryFile { disk: self.clone(), id }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let mut world = self.world();
        world.check_at(Call::Read, path)?;
        let id = *world.names.get(path).ok_or_else(|| missing(path))?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        world.check_at(Call::Move, from)?;
        let id = world.forget(from)?;
        world.names.insert(to.to_owned(), id);
        world.log.push(Op::Move(Move::Rename(from.to_owned(), to.to_owned(), id)));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        world.check_at(Call::Move, path)?;
        world.forget(path)?;
        world.log.push(Op::Move(Move::Remove(path.to_owned())));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        let checked = world.check_at(Call::Sync, folder);
        let op = if checked.is_ok() {
            Op::SyncFolder
        } else {
            Op::SyncFolderFailed
        };
        world.log.push(op(folder.to_owned()));
        checked
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    id: u64,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.world();
        world.check(Call::Read)?;
        let rest = world.files[&self.id].get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.world();
        let mut bytes = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        // What is written over needs no room.
        let longer = offset as usize + bytes.len() > world.files[&self.id].len();
        let failure = world.fails(if longer { Call::Write } else { Call::Over });
        match failure {
            None => {}
            Some(Failure::Once(error) | Failure::Forever(error) | Failure::Sync(error)) => {
                return Err(io::Error::from_raw_os_error(error));
            }
            Some(Failure::Short | Failure::Torn(_)) => bytes.truncate((bytes.len() * 2 / 3).max(1)),
        }
        apply(world.files.get_mut(&self.id).unwrap(), offset, &bytes);
        let count = bytes.len();
        world.log.push(Op::Write(self.id, Write::At(offset, bytes)));
        match failure {
            Some(Failure::Torn(error)) => Err(io::Error::from_raw_os_error(error)),
            Some(Failure::Once(_) | Failure::Forever(_) | Failure::Sync(_) | Failure::Short) | None => Ok(count),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.world();
        let checked = world.check(Call::Sync);
        let op = if checked.is_ok() { Op::Sync } else { Op::SyncFailed };
        world.log.push(op(self.id));
        checked
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.disk.world();
        world.check(Call::Read)?;
        Ok(world.files[&self.id].len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.disk.world();
        world.check(Call::Move)?;
        world.files.get_mut(&self.id).unwrap().resize(len as usize, 0);
        world.log.push(Op::Write(self.id, Write::SetLen(len)));
        Ok(())
    }

    fn written(&self, _offset: u64, _len: u64) {}
}

/// Writes `bytes` there, after zeros if it was shorter.
pub(crate) fn apply(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}
