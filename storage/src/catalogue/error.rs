//! Why a catalogue cannot be used, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::limits::{FORMAT, NAME_BYTES};
use crate::private::PrivateError;

/// What a person without a copy of a damaged catalogue can do.
const OTHERWISE: &str =
    "bring the folder back from a copy; or, if what it held can be had from elsewhere, set it aside and begin a new one";

/// Why a catalogue cannot be opened, read or written. Nothing was lost that the message does not name. After anything but
/// [`Self::TooLarge`], [`Self::TooMany`] and [`Self::Name`], which are the caller's mistakes and change nothing, a caller
/// ends.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The folder, or a file in it, cannot be used, or other users could have changed it. The user does what the message says.
    #[error("the catalogue cannot be used: {0}")]
    Private(#[from] PrivateError),
    /// Another process has the catalogue. End that process, or wait for it.
    #[error("{}: this catalogue is in use by process {pid}; stop that first, or give another folder", .path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The number of that process; `unknown` if it has not written it yet.
        pid: String,
    },
    /// A later release wrote the catalogue. Use that release.
    #[error(
        "{}: this catalogue was written by a newer version: expected at most format {FORMAT}, found {found}; use the release of \
         sardana that wrote it", .path.display()
    )]
    Newer {
        /// The file that says so.
        path: PathBuf,
        /// The format that it says.
        found: u32,
    },
    /// There are records, but no marker at this path that says how many there should be.
    #[error("{}: the marker is missing, but there are records beside it; {OTHERWISE}", .0.display())]
    MarkerLost(PathBuf),
    /// The marker at this path does not say how many records there should be.
    #[error("{}: both halves of the marker are damaged; {OTHERWISE}", .0.display())]
    MarkerDamaged(PathBuf),
    /// The store is of another catalogue than the marker.
    #[error(
        "{}: expected the store of catalogue {expected}, found that of {found}; marker and store were mixed up: bring back those \
         that belong together", .path.display()
    )]
    Foreign {
        /// The folder of the store.
        path: PathBuf,
        /// The marker's.
        expected: String,
        /// The store's.
        found: String,
    },
    /// The catalogue is empty and should not be.
    #[error(
        "{}: expected a catalogue in use since {since} (seconds since 1970) with {commits} commits, found an empty one; it is not \
         taken for a new one: {OTHERWISE}", .path.display()
    )]
    Emptied {
        /// The folder of the store.
        path: PathBuf,
        /// When the catalogue was made, in seconds since 1970.
        since: u64,
        /// How many commits it has had at least.
        commits: u64,
    },
    /// The last commits are missing.
    #[error(
        "{}: expected at least {expected} commits, found {found}: the last {} are lost; {OTHERWISE}", .path.display(),
        .expected.saturating_sub(*.found)
    )]
    Behind {
        /// The folder of the store.
        path: PathBuf,
        /// How many were acknowledged.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The store is not what was written.
    #[error("{}: the catalogue is damaged: {reason}; {OTHERWISE}", .path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// One record is not what was written.
    #[error("{}: the record {key} of table {table} is damaged: {reason}; {OTHERWISE}", .path.display())]
    Record {
        /// sled's file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The key, as text or in hexadecimal.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// sled did not answer in time. End the process: its thread still has the files.
    #[error(
        "{}: opening the catalogue took more than {} s; end this process, and see whether the disk answers; if it does, the \
         catalogue is damaged: {OTHERWISE}", .path.display(), .patience.as_secs()
    )]
    Stuck {
        /// The folder.
        path: PathBuf,
        /// How long it was given.
        patience: Duration,
    },
    /// The disk said no. Nothing was changed.
    #[error("{}: {source}; see whether the disk is full, read-only or broken, then start again", .path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A write or sync failed, now or earlier. Whether the batch of *that* call is on the disk is unknown; later ones were
    /// not tried. End, and open the catalogue anew: what it then shows is on the disk.
    #[error(
        "{}: writing to the catalogue failed, and so nothing more is read from or written to it: {reason}. See whether the disk is \
         full or broken, then start again", .path.display()
    )]
    Poisoned {
        /// The folder.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// A key, value or batch is too large. Put it into a file.
    #[error("expected a {what} of at most {limit} bytes, found {found}; keep what is larger in a file, and its name here")]
    TooLarge {
        /// `key`, `value` or `batch`.
        what: &'static str,
        /// The most.
        limit: usize,
        /// How large the key, value or batch is.
        found: usize,
    },
    /// A batch has too many changes. Make several.
    #[error("expected at most {limit} changes in a batch, found {found}; make several batches")]
    TooMany {
        /// The most.
        limit: usize,
        /// How many changes it has.
        found: usize,
    },
    /// A table cannot be called so.
    #[error(
        "expected a table's name of 1 to {NAME_BYTES} of the characters a-z, 0-9, - and _, found {0:?}; give another name"
    )]
    Name(String),
}
