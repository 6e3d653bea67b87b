//! A directory of checkpoints is opened, and only if it is one: nothing is made where a path was mistyped.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use sardana_actors::depot::{DEPOT_FILE, IdentityError, identity};
use sardana_protocol::checkpoint::{DepotId, Manifest, ManifestKey, PieceHash};
use sardana_storage::manifest;
use sardana_storage::store::{self, FORMAT_FILE, Finding, MANIFESTS_FOLDER, SEGMENTS_FOLDER, Store};

use super::layout::PieceError;

/// Why a directory of checkpoints is not opened. Nothing was changed there. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing at this path.
    #[error("{}: expected a directory of checkpoints, found nothing; see whether the path is right", .0.display())]
    Missing(PathBuf),
    /// What is at this path is no directory of checkpoints.
    #[error(
        "{}: expected a directory of checkpoints (it has the folders {MANIFESTS_FOLDER} and {SEGMENTS_FOLDER}), found {found}; give \
         the one that the job was given with --checkpoint-dir", .path.display()
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// What is at the path.
        found: &'static str,
    },
    /// It may not be written to. It must be, though little is written: which process uses it, and what was found out about it.
    #[error(
        "{}: expected a directory that can be written to, since the process that uses it is noted there: {reason}; make it writable, or copy it \
         (cp -a) and give the copy", .path.display()
    )]
    ReadOnly {
        /// The path.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The same directory was given twice.
    #[error("{}: expected different directories, found this one twice; leave one of them out", .0.display())]
    Twice(PathBuf),
    /// A job that runs has it open.
    #[error(
        "{}: it is in use by process {pid}, most likely the agent of a job that runs; `sardana status` shows what is saved \
         meanwhile; wait until the job is over, end it (sardana stop), or look at a copy (cp -a)", .path.display()
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// The number of that process; `unknown` if it has not written it yet.
        pid: String,
    },
    /// The system does not let it be looked at.
    #[error("{}: {reason}; see whether the path is right, and yours", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It cannot be noted which depot it is, without which no job could use it.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store in it refuses: a newer version wrote it, others could have changed it, or the disk says no.
    #[error(transparent)]
    Store(store::OpenError),
}

/// Why the manifest of a checkpoint cannot be read, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadManifest(pub(super) String);

/// One directory, open. No other process can open it meanwhile.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    store: Store,
    findings: Vec<Finding>,
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        match look(path)? {
            PathKind::Ours => Self::enter(path),
            PathKind::Nothing => Err(OpenError::Missing(path.to_owned())),
            PathKind::Empty => Err(not_ours(path, "an empty one")),
            PathKind::Other(found) => Err(not_ours(path, found)),
        }
    }

    /// The same; makes one where there is nothing, or an empty folder.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_or_make(path: &Path) -> Result<Self, OpenError> {
        match look(path)? {
            PathKind::Ours | PathKind::Nothing | PathKind::Empty => {
                let directory = Self::enter(path)?;
                // Before the first checkpoint is there: afterwards a new number would not be believed.
                if directory.store.list().is_empty() {
                    directory.depot()?;
                }
                Ok(directory)
            }
            PathKind::Other(found) => Err(not_ours(path, found)),
        }
    }

    fn enter(path: &Path) -> Result<Self, OpenError> {
        let opened = Store::open(path).map_err(|error| refused(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            store: opened.store,
            findings: opened.findings,
        })
    }

    /// Where it is, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was noticed, and repaired, when it was opened.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The depot that this directory belongs to.
    pub(super) fn depot(&self) -> Result<DepotId, IdentityError> {
        identity(&self.path)
    }

    /// What a manifest says.
    pub(super) fn manifest(&self, key: ManifestKey) -> Result<Manifest, UnreadManifest> {
        let unread = |error: &dyn ToString| UnreadManifest(error.to_string());
        let stored = self.store.show(key).map_err(|error| unread(&error))?;
        manifest::decode_as(stored.bytes(), key).map_err(|error| unread(&error))
    }
}

/// A directory of checkpoints, and others that may hold pieces that are missing there.
#[derive(Debug)]
pub struct Checkpoints {
    main: Directory,
    also: Vec<Directory>,
}

impl Checkpoints {
    /// Opens the directory at `main`, and those at `also`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(main: &Path, also: &[PathBuf]) -> Result<Self, OpenError> {
        differ(std::iter::once(main).chain(also.iter().map(PathBuf::as_path)))?;
        Ok(Self {
            main: Directory::open(main)?,
            also: also.iter().map(|path| Directory::open(path)).collect::<Result<_, _>>()?,
        })
    }

    /// The same of one directory; makes it where there is nothing, or an empty folder.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_or_make(main: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            main: Directory::open_or_make(main)?,
            also: Vec::new(),
        })
    }

    /// The directory with these checkpoints.
    #[must_use]
    pub fn main(&self) -> &Directory {
        &self.main
    }

    /// All directories, the main one first.
    pub fn directories(&self) -> impl Iterator<Item = &Directory> {
        std::iter::once(&self.main).chain(&self.also)
    }

    /// Whether any directory has this piece, as far as is known without reading it.
    pub(super) fn has(&self, piece: PieceHash) -> bool {
        self.directories().any(|directory| directory.store.length_of(piece).is_some())
    }

    /// The bytes of a piece, from the first directory that can give them.
    pub(super) fn fetch(&self, piece: PieceHash) -> Result<Vec<u8>, PieceError> {
        let mut reasons = Vec::new();
        for directory in self.directories() {
            match directory.store.read(piece) {
                Ok(bytes) => return Ok(bytes),
                Err(store::ReadError::NotHeld { .. }) => {}
                Err(error @ (store::ReadError::Damaged { .. } | store::ReadError::Disk { .. })) => {
                    reasons.push(error.to_string());
                }
            }
        }
        Err(PieceError { piece, reasons })
    }

    /// What is wrong with a piece that was read and found damaged, or is missing, everywhere.
    pub(super) fn lack(&self, piece: PieceHash) -> Option<PieceError> {
        if self.has(piece) { None } else { self.fetch(piece).err() }
    }
}

/// Sees that no two of these paths are the same folder, which could not be opened twice. Missing ones are passed over.
///
/// # Errors
/// [`OpenError::Twice`].
pub fn differ<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), OpenError> {
    let mut seen = Vec::new();
    for path in paths {
        // What is not there cannot be told from others, and is not opened twice.
        let Ok(real) = fs::canonicalize(path) else { continue };
        if seen.contains(&real) {
            return Err(OpenError::Twice(path.to_owned()));
        }
        seen.push(real);
    }
    Ok(())
}

/// What is at a path.
enum PathKind {
    Ours,
    Nothing,
    Empty,
    /// Something else, in words.
    Other(&'static str),
}

fn look(path: &Path) -> Result<PathKind, OpenError> {
    let system = |error: std::io::Error| OpenError::System {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PathKind::Nothing),
        Err(error) => return Err(system(error)),
        Ok(found) if !found.is_dir() => return Ok(PathKind::Other("a file")),
        Ok(_) => {}
    }
    let read_only = |error: rustix::io::Errno| OpenError::ReadOnly {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let ours = [FORMAT_FILE, MANIFESTS_FOLDER, SEGMENTS_FOLDER];
    let found = ours.iter().filter(|name| path.join(name).exists()).count();
    // Of a damaged directory something may be gone.
    if found >= 2 {
        rustix::fs::access(path, Access::WRITE_OK).map_err(read_only)?;
        return Ok(PathKind::Ours);
    }
    for entry in fs::read_dir(path).map_err(system)? {
        // Which depot it is may be said before there is anything to keep.
        if entry.map_err(system)?.file_name() != DEPOT_FILE {
            return Ok(PathKind::Other("one with other things in it"));
        }
    }
    Ok(PathKind::Empty)
}

fn not_ours(path: &Path, found: &'static str) -> OpenError {
    OpenError::NotOurs {
        path: path.to_owned(),
        found,
    }
}

fn refused(path: &Path, error: store::OpenError) -> OpenError {
    use sardana_storage::private::PrivateError;
    match error {
        store::OpenError::Private(PrivateError::System { source, .. })
            if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            OpenError::ReadOnly {
                path: path.to_owned(),
                reason: source.to_string(),
            }
        }
        store::OpenError::Locked { path, pid } => OpenError::InUse { path, pid },
        other @ (store::OpenError::Private(_) | store::OpenError::Newer { .. } | store::OpenError::Index(_)) => {
            OpenError::Store(other)
        }
    }
}
