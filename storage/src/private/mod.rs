//! Files and folders that only their owner can read: written so that they are there whole or not at all, and refused if others
//! could have read or changed them. Must not know what is in them.

mod error;

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

pub use error::PrivateError;

/// What to do where a folder or file is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make it.
    Create,
    /// Refuse.
    Refuse,
}

/// What to do where a file is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Replace it.
    Replace,
    /// Refuse.
    Refuse,
}

/// A folder of mode 0700 that belongs to this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// The folder at `path`. A missing one is made, if wanted.
    ///
    /// # Errors
    /// When others can enter it, it belongs to another user, or no folder.
    pub fn open(path: &Path, missing: Missing) -> Result<Self, PrivateError> {
        let system = |source| PrivateError::system(path, source);
        if missing == Missing::Create {
            match DirBuilder::new().recursive(true).mode(0o700).create(path) {
                // Something else is there: what, is seen below.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(system)?,
            }
        }
        let found = Facts::of(&fs::metadata(path).map_err(system)?);
        judge(path, found, FOLDER, own_user())?;
        Ok(Self(path.to_owned()))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the file `name` in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Writes `bytes` to a file of mode 0600: after a crash at any moment it is there whole or not at all.
///
/// # Errors
/// When it cannot be written, or is there and must not be replaced.
pub fn write_private(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), PrivateError> {
    let system = |source| PrivateError::system(path, source);
    let folder = folder_of(path);
    // Made with mode 0600, whatever the umask.
    let mut file = NamedTempFile::new_in(folder).map_err(system)?;
    file.write_all(bytes).map_err(system)?;
    file.as_file().sync_all().map_err(system)?;
    match existing {
        Existing::Replace => file.persist(path),
        Existing::Refuse => file.persist_noclobber(path),
    }
    .map_err(|error| system(error.error))?;
    sync_folder(folder)
}

/// The folder that the file at `path` is in.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

/// The names in `folder` are on the disk when this returns.
///
/// # Errors
/// When the disk says no: then which are is not known.
pub fn sync_folder(folder: &Path) -> Result<(), PrivateError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| PrivateError::system(folder, error))
}

/// The bytes of the file at `path`, at most `limit`.
///
/// # Errors
/// When others can read or change it, it belongs to another user, no file, too long, or not there.
pub fn read_private(path: &Path, limit: u64) -> Result<Vec<u8>, PrivateError> {
    let system = |source| PrivateError::system(path, source);
    let mut file = open_judged(path, OFlags::RDONLY)?;
    let length = file.metadata().map_err(system)?.len();
    let too_long = |found| PrivateError::TooLong {
        path: path.to_owned(),
        limit,
        found,
    };
    if length > limit {
        return Err(too_long(length));
    }
    let mut bytes = Vec::new();
    Read::take(&mut file, limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(system)?;
    if bytes.len() as u64 > limit {
        return Err(too_long(bytes.len() as u64));
    }
    Ok(bytes)
}

/// The file at `path`, to be read and written. A missing one is made, empty and with mode 0600, if wanted.
///
/// # Errors
/// When others can read or change it, it belongs to another user, no file, or not there.
pub fn open_private(path: &Path, missing: Missing) -> Result<File, PrivateError> {
    let make = if missing == Missing::Create {
        OFlags::CREATE
    } else {
        OFlags::empty()
    };
    open_judged(path, OFlags::RDWR | make)
}

/// The file at `path`, which is no link, to be read.
///
/// # Errors
/// When others can read or change it, it belongs to another user, no file, or not there.
pub fn open_private_to_read(path: &Path) -> Result<File, PrivateError> {
    open_judged(path, OFlags::RDONLY | OFlags::NOFOLLOW)
}

/// Opens a file, and refuses it if it is not private. What is no file, such as a pipe, is not waited for.
fn open_judged(path: &Path, flags: OFlags) -> Result<File, PrivateError> {
    let system = |source| PrivateError::system(path, source);
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| system(error.into()))?;
    let file = File::from(opened);
    // What was opened is looked at, so that no process can put another file there in between.
    judge(path, Facts::of(&file.metadata().map_err(system)?), FILE, own_user())?;
    Ok(file)
}

/// The user that this process acts as.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A file or a folder: what it is called, and the mode that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    words: &'static str,
    mode: u32,
}

const FILE: Wanted = Wanted {
    words: "a file",
    mode: 0o600,
};

const FOLDER: Wanted = Wanted {
    words: "a folder",
    mode: 0o700,
};

/// What decides whether something is private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    /// None for anything but files and folders.
    kind: Option<Wanted>,
    mode: u32,
    owner: u32,
}

impl Facts {
    fn of(metadata: &Metadata) -> Self {
        let file = metadata.is_file().then_some(FILE);
        Self {
            kind: file.or_else(|| metadata.is_dir().then_some(FOLDER)),
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
        }
    }
}

fn judge(path: &Path, found: Facts, wanted: Wanted, own: u32) -> Result<(), PrivateError> {
    let path = path.to_owned();
    if found.kind != Some(wanted) {
        let expected = wanted.words;
        Err(PrivateError::Kind { path, expected })
    } else if found.owner != own {
        Err(PrivateError::Owner {
            path,
            expected: own,
            found: found.owner,
        })
    } else if found.mode & 0o077 != 0 {
        Err(PrivateError::Open {
            path,
            expected: wanted.mode,
            found: found.mode,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_written_is_read_and_is_private() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("a/b"), Missing::Create).unwrap();
        let file = folder.file("secret");
        write_private(&file, b"one", Existing::Refuse).unwrap();
        assert_eq!(read_private(&file, 3).unwrap(), b"one");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o700);
        let error = write_private(&file, b"two", Existing::Refuse).unwrap_err();
        assert!(matches!(error, PrivateError::Exists { .. }), "{error}");
        write_private(&file, b"two", Existing::Replace).unwrap();
        assert_eq!(read_private(&file, 3).unwrap(), b"two");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing else is left there: {left:?}");
    }

    #[test]
    fn wider_permissions_are_refused_with_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("secret");
        write_private(&file, b"one", Existing::Refuse).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o602, 0o610, 0o601] {
            chmod(&file, mode);
            let error = read_private(&file, 99).unwrap_err().to_string();
            let found = format!("expected mode 0600, found {mode:04o}");
            assert!(error.contains(&found) && error.contains("chmod 600"), "{error}");
        }
        for mode in [0o400, 0o600, 0o700] {
            chmod(&file, mode);
            assert!(read_private(&file, 99).is_ok(), "{mode:o}");
        }
        for mode in [0o750, 0o701, 0o777] {
            chmod(place.path(), mode);
            let error = PrivateFolder::open(place.path(), Missing::Create).unwrap_err().to_string();
            assert!(error.contains("expected mode 0700") && error.contains("chmod 700"), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_or_too_long_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let error = read_private(place.path(), 99).unwrap_err();
        assert!(matches!(error, PrivateError::Kind { .. }), "{error}");
        let pipe = place.path().join("pipe");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status();
        assert!(made.unwrap().success());
        let error = read_private(&pipe, 99).unwrap_err();
        assert!(matches!(error, PrivateError::Kind { .. }), "{error}");
        let file = place.path().join("long");
        write_private(&file, &[0; 100], Existing::Refuse).unwrap();
        let error = read_private(&file, 99).unwrap_err();
        assert!(
            matches!(
                error,
                PrivateError::TooLong {
                    limit: 99,
                    found: 100,
                    ..
                }
            ),
            "{error}"
        );
        let error = read_private(&place.path().join("none"), 99).unwrap_err();
        assert!(matches!(error, PrivateError::Missing { .. }), "{error}");
        let error = PrivateFolder::open(&file, Missing::Refuse).unwrap_err();
        assert!(matches!(error, PrivateError::Kind { .. }), "{error}");
    }

    #[test]
    fn what_is_opened_is_private_and_keeps_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let error = open_private(&path, Missing::Refuse).unwrap_err();
        assert!(matches!(error, PrivateError::Missing { .. }), "{error}");
        for expected in ["one", "oneone"] {
            let mut file = open_private(&path, Missing::Create).unwrap();
            io::Seek::seek(&mut file, io::SeekFrom::End(0)).unwrap();
            file.write_all(b"one").unwrap();
            assert_eq!(read_private(&path, 99).unwrap(), expected.as_bytes());
        }
        chmod(&path, 0o604);
        assert!(matches!(open_private(&path, Missing::Create), Err(PrivateError::Open { .. })));
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let facts = Facts {
            kind: Some(FILE),
            mode: 0o600,
            owner: 1_001,
        };
        let path = Path::new("x");
        judge(path, facts, FILE, 1_001).unwrap();
        let error = judge(path, facts, FILE, 1_000).unwrap_err().to_string();
        assert!(error.contains("expected the owner 1000, found 1001"), "{error}");
        assert!(
            judge(path, facts, FILE, 0).is_err(),
            "root reads no other user's files by mistake"
        );
    }
}
