//! A disk in memory that writes down what is done to it, so that it can be cut off at any point; and that fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sardana_actors::store::{Change, Disk, DiskFile, Fate, Index, ManifestKey, PieceHash, Place, Recorded};
use sardana_actors::trust::PrivateError;

use crate::random::Random;

/// What was done.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(PathBuf, u64),
    Rename(PathBuf, PathBuf, u64),
    Remove(PathBuf),
    SyncFolder(PathBuf),
    /// Nobody knows which names are on the disk, and no later sync writes those that are not.
    SyncFolderFailed(PathBuf),
    Write(u64, u64, Vec<u8>),
    SetLen(u64, u64),
    Sync(u64),
    /// Nobody knows what of it is on the disk, and no later sync writes what is not.
    SyncFailed(u64),
    /// The index says this from here on.
    Index(Arc<Recorded>),
    /// What the test was told by then.
    Said(Arc<Said>),
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
    /// Somebody looks at the store: that neither counts nor fails.
    quiet: bool,
}

/// What a call does, for a failure that concerns only some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Write,
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
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<World>>);

impl MemoryDisk {
    pub(crate) fn with(image: &Image) -> Self {
        let disk = Self::default();
        let mut world = disk.world();
        for (path, bytes) in image {
            let id = world.next;
            world.next += 1;
            world.files.insert(id, bytes.clone());
            world.names.insert(path.clone(), id);
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
    fn make_folder(&self, _path: &Path) -> Result<(), PrivateError> {
        Ok(())
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError> {
        let mut world = self.world();
        world.check(Call::Read).map_err(|error| PrivateError::system(folder, error))?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let mut world = self.world();
        world.check(Call::Create).map_err(|error| PrivateError::system(path, error))?;
        assert!(!world.names.contains_key(path), "{path:?} is there already");
        let id = world.next;
        world.next += 1;
        world.files.insert(id, Vec::new());
        world.names.insert(path.to_owned(), id);
        world.log.push(Op::Create(path.to_owned(), id));
        Ok(Arc::new(MemoryFile { disk: self.clone(), id }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let mut world = self.world();
        let checked = world.check(Call::Read);
        checked.map_err(|error| PrivateError::system(path, error))?;
        let missing = || PrivateError::system(path, io::ErrorKind::NotFound.into());
        let id = *world.names.get(path).ok_or_else(missing)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        world.check(Call::Move).map_err(|error| PrivateError::system(from, error))?;
        let missing = || PrivateError::system(from, io::ErrorKind::NotFound.into());
        let id = world.names.remove(from).ok_or_else(missing)?;
        world.names.insert(to.to_owned(), id);
        world.log.push(Op::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        world.check(Call::Move).map_err(|error| PrivateError::system(path, error))?;
        let missing = || PrivateError::system(path, io::ErrorKind::NotFound.into());
        world.names.remove(path).ok_or_else(missing)?;
        world.log.push(Op::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError> {
        let mut world = self.world();
        let checked = world.check(Call::Sync);
        let folder = folder.to_owned();
        let failed = checked.map_err(|error| PrivateError::system(&folder, error));
        let op = if failed.is_ok() {
            Op::SyncFolder(folder)
        } else {
            Op::SyncFolderFailed(folder)
        };
        world.log.push(op);
        failed
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
        let failure = world.fails(Call::Write);
        match failure {
            None => {}
            Some(Failure::Once(error) | Failure::Forever(error) | Failure::Sync(error)) => {
                return Err(io::Error::from_raw_os_error(error));
            }
            Some(Failure::Short | Failure::Torn(_)) => bytes.truncate((bytes.len() * 2 / 3).max(1)),
        }
        apply(&mut world.files.get_mut(&self.id).unwrap(), offset, &bytes);
        let count = bytes.len();
        world.log.push(Op::Write(self.id, offset, bytes));
        match failure {
            Some(Failure::Torn(error)) => Err(io::Error::from_raw_os_error(error)),
            Some(Failure::Once(_) | Failure::Forever(_) | Failure::Sync(_) | Failure::Short) | None => Ok(count),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.world();
        let checked = world.check(Call::Sync);
        let op = if checked.is_ok() {
            Op::Sync(self.id)
        } else {
            Op::SyncFailed(self.id)
        };
        world.log.push(op);
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
        world.log.push(Op::SetLen(self.id, len));
        Ok(())
    }

    fn written(&self, _offset: u64, _len: u64) {}
}

fn apply(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

/// What becomes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Kept,
    Dropped,
    /// Some is kept, some dropped, some torn.
    Any,
}

/// What a disk that had `base` on it has after `log` and a power cut.
pub(crate) fn cut(base: &Image, log: &[Op], unsynced: Unsynced, random: &mut Random) -> Image {
    let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut names: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for (id, (path, bytes)) in base.iter().enumerate() {
        files.insert(id as u64, bytes.clone());
        names.insert(path.clone(), id as u64);
    }
    let (mut writes, mut moves): (Vec<&Op>, Vec<&Op>) = (Vec::new(), Vec::new());
    for op in log {
        match op {
            Op::Create(..) | Op::Rename(..) | Op::Remove(_) => moves.push(op),
            Op::Write(..) | Op::SetLen(..) => writes.push(op),
            Op::Sync(id) => settle(&mut writes, |op| concerns(op, *id), |op| write(&mut files, op)),
            // What was under way is lost, or on the disk, or half of it.
            Op::SyncFailed(id) => settle(
                &mut writes,
                |op| concerns(op, *id),
                |op| perhaps(&mut files, op, unsynced, random),
            ),
            Op::SyncFolder(folder) => settle(&mut moves, |op| is_in(op, folder), |op| rename(&mut names, op)),
            Op::SyncFolderFailed(folder) => settle(
                &mut moves,
                |op| is_in(op, folder),
                |op| {
                    if keep(unsynced, random) {
                        rename(&mut names, op);
                    }
                },
            ),
            Op::Index(_) | Op::Said(_) => {}
        }
    }
    for op in writes {
        perhaps(&mut files, op, unsynced, random);
    }
    for op in moves {
        if keep(unsynced, random) {
            rename(&mut names, op);
        }
    }
    let bytes = |id: &u64| files.get(id).cloned().unwrap_or_default();
    names.iter().map(|(path, id)| (path.clone(), bytes(id))).collect()
}

fn keep(unsynced: Unsynced, random: &mut Random) -> bool {
    match unsynced {
        Unsynced::Kept => true,
        Unsynced::Dropped => false,
        Unsynced::Any => random.below(2) == 0,
    }
}

/// Takes those of `ops` out that are `chosen`.
fn settle<'a>(ops: &mut Vec<&'a Op>, chosen: impl Fn(&Op) -> bool, mut take: impl FnMut(&'a Op)) {
    ops.retain(|op| {
        let taken = chosen(op);
        if taken {
            take(op);
        }
        !taken
    });
}

fn concerns(op: &Op, file: u64) -> bool {
    matches!(op, Op::Write(id, ..) | Op::SetLen(id, _) if *id == file)
}

fn is_in(op: &Op, folder: &Path) -> bool {
    matches!(op, Op::Create(path, _) | Op::Rename(path, ..) | Op::Remove(path) if path.parent() == Some(folder))
}

fn rename(names: &mut BTreeMap<PathBuf, u64>, op: &Op) {
    match op {
        Op::Create(path, id) => drop(names.insert(path.clone(), *id)),
        Op::Rename(from, to, id) => {
            names.remove(from);
            names.insert(to.clone(), *id);
        }
        Op::Remove(path) => drop(names.remove(path)),
        other => panic!("{other:?} moves nothing"),
    }
}

fn write(files: &mut BTreeMap<u64, Vec<u8>>, op: &Op) {
    match op {
        Op::Write(id, offset, bytes) => apply(files.entry(*id).or_default(), *offset, bytes),
        Op::SetLen(id, len) => files.entry(*id).or_default().resize(*len as usize, 0),
        other => panic!("{other:?} writes nothing"),
    }
}

fn perhaps(files: &mut BTreeMap<u64, Vec<u8>>, op: &Op, unsynced: Unsynced, random: &mut Random) {
    match (unsynced, op) {
        (Unsynced::Kept, _) => write(files, op),
        (Unsynced::Dropped, _) => {}
        (Unsynced::Any, Op::Write(id, offset, bytes)) => match random.below(4) {
            0 => write(files, op),
            1 => {}
            2 => {
                let torn = &bytes[..random.below(bytes.len() as u64) as usize];
                apply(files.entry(*id).or_default(), *offset, torn);
            }
            // The disk writes sectors, in any order; the file's length may come before them.
            _ => {
                let mut at = *offset as usize;
                let end = at + bytes.len();
                let file = files.entry(*id).or_default();
                file.resize(file.len().max(end), 0);
                while at < end {
                    let next = (at / 512 + 1) * 512;
                    if random.below(2) == 0 {
                        let part = at - *offset as usize..next.min(end) - *offset as usize;
                        apply(file, at as u64, &bytes[part]);
                    }
                    at = next;
                }
            }
        },
        (Unsynced::Any, _) => {
            if random.below(2) == 0 {
                write(files, op);
            }
        }
    }
}

/// An index in memory that outlives the store, and writes down in a disk's log what it says.
#[derive(Clone, Debug)]
pub(crate) struct MemoryIndex {
    pieces: Arc<Mutex<BTreeMap<PieceHash, Place>>>,
    others: Arc<Mutex<Recorded>>,
    disk: MemoryDisk,
    /// The changes that it still takes before it fails.
    patience: Arc<Mutex<u64>>,
}

impl MemoryIndex {
    pub(crate) fn new(disk: &MemoryDisk, recorded: Recorded) -> Self {
        Self {
            pieces: Arc::new(Mutex::new(recorded.pieces.iter().copied().collect())),
            others: Arc::new(Mutex::new(recorded)),
            disk: disk.clone(),
            patience: Arc::new(Mutex::new(u64::MAX)),
        }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        let mut recorded = self.others.lock().unwrap().clone();
        recorded.pieces = self
            .pieces
            .lock()
            .unwrap()
            .iter()
            .map(|(hash, place)| (*hash, *place))
            .collect();
        recorded
    }

    /// Fails after so many changes.
    pub(crate) fn fail_after(&self, changes: u64) {
        *self.patience.lock().unwrap() = changes;
    }
}

impl Index for MemoryIndex {
    fn note(&mut self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            {
                let mut patience = self.patience.lock().unwrap();
                if *patience == 0 {
                    return Err("told to fail".to_owned());
                }
                *patience -= 1;
            }
            let mut others = self.others.lock().unwrap();
            let mut pieces = self.pieces.lock().unwrap();
            match *change {
                Change::Piece(hash, place) => drop(pieces.insert(hash, place)),
                Change::NoPiece(hash) => drop(pieces.remove(&hash)),
                Change::Covered(segment, end) => drop(others.covered.insert(segment, end)),
                Change::NoSegment(segment) => drop(others.covered.remove(&segment)),
                Change::Manifest(key, fate) => drop(others.manifests.insert(key, fate)),
                Change::NoManifest(key) => drop(others.manifests.remove(&key)),
            }
        }
        if !changes.is_empty() {
            let recorded = Arc::new(self.recorded());
            assert!(
                recorded
                    .manifests
                    .values()
                    .all(|fate| matches!(fate, Fate::Committed | Fate::Deleted))
            );
            self.disk.world().log.push(Op::Index(recorded));
        }
        Ok(())
    }
}
