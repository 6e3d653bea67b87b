//! What can go wrong with a mirror.

use sardana_protocol::checkpoint::ManifestKey;
use sardana_storage::manifest::ManifestError;
use sardana_storage::store::{CommitError, WriteError};

use super::super::directory::OpenError;
use super::super::find::short;
use super::super::layout::LayoutError;
use super::limits::PRUNING_MOST;

/// Why a mirror cannot be used at all. Nothing was asked of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// This build does not reach the object storage of this URL. Build the program, or the library, with the feature.
    #[error(
        "{0}: this sardana was built without mirrors; build it with them: \
         cargo build --release -p sardana --features mirror"
    )]
    NotBuilt(String),
    /// What the environment says does not suffice, or makes no sense.
    #[error(
        "{url}: {reason}; see the environment: AWS_…, GOOGLE_… or AZURE_… say where the store is and as which user it is asked, and a folder must be one \
         of yours"
    )]
    Unusable {
        /// The URL of the mirror.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why an object was not written or read. Trying again later is no harm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// There is no object of this name.
    #[error("{0}: it is not there")]
    Missing(String),
    /// The object is not as long as it should be. It is not read.
    #[error("{object}: expected {expected} bytes{}, found {found}", if *.most { " at most" } else { "" })]
    Length {
        /// The name of the object.
        object: String,
        /// How long it should be.
        expected: u64,
        /// Whether it may be shorter.
        most: bool,
        /// How long the object is.
        found: u64,
    },
    /// The store does not do it.
    #[error("{object}: {reason}; see whether the store is reached, and whether these credentials may use it")]
    Store {
        /// The name of the object.
        object: String,
        /// What the store said, or did not say.
        reason: String,
    },
    /// There are more objects than are listed.
    #[error("{object}: expected at most {most} objects, found more; give each job a prefix of its own")]
    TooMany {
        /// The name of the folder.
        object: String,
        /// How many would be listed.
        most: usize,
    },
}

/// Why a checkpoint was not brought from a mirror. Use another one.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// An object could not be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Its manifest is damaged.
    #[error("{object}: {source}")]
    Manifest {
        /// The name of the manifest as an object.
        object: String,
        /// The error behind it.
        #[source]
        source: ManifestError,
    },
    /// Its description contradicts its manifest.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A piece of it is not what was saved.
    #[error("{object}: {place} is not what was saved; copy the checkpoint there again, or use another one")]
    Damaged {
        /// The name of the object that it was read from.
        object: String,
        /// The part of the tensor that it is, in words.
        place: String,
    },
    /// The pieces could not be written here.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The manifest could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Why a checkpoint was not copied to a mirror. It is not there then; what was sent is found there by the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// An object could not be written, or what is there not be listed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The manifest is damaged.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The description contradicts the manifest.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Some of it cannot be read where it is saved.
    #[error("it cannot be read: {0}")]
    Source(String),
    /// Another process, whose mark this is, deletes old checkpoints there.
    #[error(
        "{0}: another process deletes old checkpoints of this mirror just now, and has not ended for minutes; try again when it is done"
    )]
    Pruned(String),
}

/// Why old checkpoints of a mirror were not deleted, or not all. Trying again is no harm.
#[derive(Debug, thiserror::Error)]
pub enum RetainError {
    /// An object could not be listed, read or deleted.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Another process, whose mark this is, copies a checkpoint there, whose pieces no manifest names yet.
    #[error(
        "{0}: another process copies a checkpoint to this mirror just now; try again when it is done, an hour from now at most"
    )]
    Busy(String),
    /// The newest complete checkpoint is not deleted.
    #[error("{} is the newest complete checkpoint of the mirror and is never deleted", short(*.0))]
    Newest(ManifestKey),
    /// The store answers too slowly for it to be certain that no other process has begun meanwhile. This object was to be
    /// deleted.
    #[error("{0}: the store answers too slowly to delete anything safely; the rest is deleted the next time")]
    Late(String),
    /// Deleting took too long.
    #[error("it was given up after {} minutes; the rest is deleted the next time", PRUNING_MOST.as_secs() / 60)]
    Slow,
}

/// Why nothing was brought from a mirror before a job began.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    /// What is there cannot be listed, and there is nothing here. To begin anew although there may be a checkpoint would lose it.
    #[error(
        "{url}: whether there is a checkpoint to go on from is not known, and there is none here: {source}; or begin anew without --mirror"
    )]
    Unknown {
        /// The URL of the mirror.
        url: String,
        /// The error behind it.
        #[source]
        source: ObjectError,
    },
    /// There are checkpoints, none can be used, and there is nothing here.
    #[error("{url}: none of its checkpoints can be used, and there is none here: {}; or begin anew with another --mirror", .reasons.join("; "))]
    NoneUsable {
        /// The URL of the mirror.
        url: String,
        /// What is wrong with each checkpoint.
        reasons: Vec<String>,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// This process ends.
    #[error("this process ends before it is known what there is to go on from")]
    Ending,
}
