//! Why a private file or folder is not used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private file or folder is not used. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// Others than its owner may read or change it.
    #[error(
        "{path}: expected mode {expected:04o}, found {found:04o}: others could have read or changed it; run `chmod \
         {expected:o} {path}` if you trust what is in it, or make a new one", path = .path.display()
    )]
    Open {
        /// The path.
        path: PathBuf,
        /// The mode that it should have.
        expected: u32,
        /// The mode that it has.
        found: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path}: expected the owner {expected}, found {found} (user ids); use one of your own, or run as its owner",
        path = .path.display()
    )]
    Owner {
        /// The path.
        path: PathBuf,
        /// This process's user.
        expected: u32,
        /// Its owner.
        found: u32,
    },
    /// It is a folder, a device, or anything else that it should not be.
    #[error("{}: expected {expected}, found something else; give another path", .path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// `a file` or `a folder`.
        expected: &'static str,
    },
    /// It is far too long for what it should be.
    #[error("{}: expected at most {limit} bytes, found {found}; give the path of another file", .path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
        /// How long the file is.
        found: u64,
    },
    /// It is there already.
    #[error("{} is there already; remove it first if it is not needed, or give another path", .path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// It is not there.
    #[error("{} is not there; see whether the path is right", .path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is no room for it.
    #[error(
        "{}: {source}: nothing was changed; free some space there (or raise the limit that the system's words name), or give a \
         folder on another disk", .path.display()
    )]
    NoSpace {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system said no.
    #[error("{}: {source}", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl PrivateError {
    /// What the system said about `path`.
    #[must_use]
    pub fn system(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let kind = source.kind();
        if kind == io::ErrorKind::NotFound {
            Self::Missing { path }
        } else if kind == io::ErrorKind::AlreadyExists {
            Self::Exists { path }
        } else if matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ) {
            Self::NoSpace { path, source }
        } else {
            Self::System { path, source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_with_what_to_do() {
        // ENOSPC, EDQUOT, EFBIG.
        for number in [28, 122, 27] {
            let error = PrivateError::system(Path::new("/some/state"), io::Error::from_raw_os_error(number));
            assert!(matches!(error, PrivateError::NoSpace { .. }), "{error}");
            let words = error.to_string();
            for expected in ["/some/state", "free some space", "a folder on another disk"] {
                assert!(words.contains(expected), "{words}");
            }
        }
    }
}
