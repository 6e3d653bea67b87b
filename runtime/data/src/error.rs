//! What is wrong with data: always with the file, the place in it, what was expected, what was found, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why data cannot be read. The worker that meets it ends with it; nothing of the run is lost.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The system refuses a file or folder: give the right path, or the permission.
    #[error("{}: cannot {operation}: {reason}; give the path of the data set, or the permission to read it", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// A folder does not hold what it should: give the folder of the data set.
    #[error("{}: expected {expected}, found {found}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the format keeps there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file is damaged, cut short, or not of this format: fetch it anew.
    #[error("{}, at byte {offset}: expected {expected}, found {found}", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where in it (in what it unpacks to, where it is packed).
        offset: u64,
        /// What the format has there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A sample was asked for that the data set does not have: give the job the number of samples that it has.
    #[error(
        "expected a sample below {samples}, as many as the data set has, found {index}; set the job's samples to {samples}"
    )]
    NoSample {
        /// How many there are.
        samples: u64,
        /// Which was asked for.
        index: u64,
    },
    /// A sample is not what a transform or a network can take: change the transforms before it.
    #[error("expected {expected}, found {found}; change what is done to a sample before")]
    Unfit {
        /// What can be taken.
        expected: String,
        /// What came.
        found: String,
    },
    /// Something in a data set or a transform of the user's own.
    #[error(transparent)]
    Own(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl DataError {
    /// The system refused `operation` on `file`.
    pub fn io(file: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::Io {
            file: file.to_owned(),
            operation,
            reason,
        }
    }

    /// At `offset` of `file` something else than `expected` is there.
    #[must_use]
    pub fn malformed(file: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Malformed {
            file: file.to_owned(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// `folder` does not hold what it should.
    #[must_use]
    pub fn folder(folder: &Path, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Folder {
            folder: folder.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A sample is not what can be taken.
    #[must_use]
    pub fn unfit(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Unfit {
            expected: expected.into(),
            found: found.into(),
        }
    }
}
