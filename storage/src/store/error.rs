//! Why the store does not do what it was asked, and what to do.

use std::io;
use std::path::PathBuf;

use super::limits::{FORMAT, MANIFEST_BYTES, MANIFEST_PIECES, PIECE_BYTES};
use super::names::{ManifestKey, PieceHash};
use crate::catalogue::CatalogueError;
use crate::private::PrivateError;

/// Why a store cannot be opened. Nothing was changed. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder, or a file in it, cannot be used, or other users could have changed it.
    #[error("the store of checkpoints cannot be used: {0}; see whether the folder is the right one, and can be written to")]
    Private(#[from] PrivateError),
    /// Another process has the store. End that process, or wait for it.
    #[error(
        "{}: this store of checkpoints is in use by process {pid}; stop that first, or give another folder", .path.display()
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The number of that process; `unknown` if it has not written it yet.
        pid: String,
    },
    /// A later release wrote the store. Use that release.
    #[error(
        "{}: these checkpoints were written by a newer version: expected at most format {FORMAT}, found {found}; use the release of \
         sardana that wrote them, or give another folder", .path.display()
    )]
    Newer {
        /// The file that says so.
        path: PathBuf,
        /// The format that it says.
        found: u32,
    },
    /// The index is a newer version's, or others could have changed it.
    #[error("the index of the checkpoints cannot be used: {0}")]
    Index(#[source] CatalogueError),
}

/// Why something was not written. What was acknowledged before is not touched.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no room. Delete checkpoints and collect, or free some space, and try again: the store goes on.
    #[error("{0}; what was acknowledged is not touched; or delete old checkpoints and collect, then try again")]
    Full(#[source] PrivateError),
    /// A write or sync failed, now or earlier. Whether what *that* call was to write is on the disk is unknown; later ones were not
    /// tried. What was acknowledged can be read. Open the store anew.
    #[error(
        "{}: a write to the store of checkpoints failed, and so nothing more is written to it: {reason}. See whether the disk is \
         broken, then open the store anew; what was acknowledged can be read meanwhile", .path.display()
    )]
    Poisoned {
        /// The folder.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// A piece has so many bytes, too many. Cut it.
    #[error("expected a piece of at most {PIECE_BYTES} bytes, found {0}; cut it into several")]
    TooLong(usize),
    /// The bytes are not those of the piece. Fetch them again, from somewhere else.
    #[error("expected the bytes of piece {expected}, found those of {found}; fetch them again, from another holder")]
    Mismatch {
        /// The piece that was to be healed.
        expected: PieceHash,
        /// The piece that the bytes are.
        found: PieceHash,
    },
}

/// Why a manifest was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// CKPT-1: some of its pieces are not on the disk. Put them, sync, and commit again.
    #[error(
        "expected all pieces of checkpoint {key} on the disk (CKPT-1), found {count} that are not, among them {missing:?}; put and sync \
         them first"
    )]
    Incomplete {
        /// The checkpoint.
        key: ManifestKey,
        /// The first of them.
        missing: Vec<PieceHash>,
        /// How many there are.
        count: usize,
    },
    /// This manifest was deleted before. It stays so.
    #[error("checkpoint {0} was deleted here; it is not taken back: delete the copy that it came from as well")]
    Deleted(ManifestKey),
    /// It is too long, or names too many pieces.
    #[error(
        "expected a manifest of at most {MANIFEST_BYTES} bytes and {MANIFEST_PIECES} pieces, found {bytes} and {pieces}; make a \
         smaller one"
    )]
    TooLarge {
        /// How many bytes it has.
        bytes: usize,
        /// How many pieces it names.
        pieces: usize,
    },
    /// It could not be written. After [`WriteError::Poisoned`] it may be there or not when the store is opened anew.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why a manifest cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// There is none of this name.
    #[error("there is no checkpoint {key} here; see the list of those that are")]
    NotThere {
        /// The checkpoint that was asked for.
        key: ManifestKey,
    },
    /// Its file is not what was written, or gone.
    #[error("the manifest of checkpoint {key} cannot be read: {reason}; commit it again from another holder, or delete it")]
    Damaged {
        /// The checkpoint.
        key: ManifestKey,
        /// What is wrong, and where.
        reason: String,
    },
}

/// Why a manifest was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// There is none of this name.
    #[error("there is no checkpoint {key} here; see the list of those that are")]
    NotThere {
        /// The checkpoint that was to be deleted.
        key: ManifestKey,
    },
    /// The disk said no. After [`WriteError::Poisoned`] it may be deleted or not when the store is opened anew.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why what is needed no more was not collected, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// What a manifest names is not known, so that nothing can be removed.
    #[error(
        "expected to read which pieces checkpoint {key} needs, but: {reason}; nothing is removed before it is committed again from \
         another holder, or deleted"
    )]
    Unreadable {
        /// The checkpoint.
        key: ManifestKey,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk said no. What was to be removed is removed the next time.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why a piece cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not here, or not synced yet. Fetch it from elsewhere.
    #[error("piece {piece} is not held here; fetch it from another holder")]
    NotHeld {
        /// The piece.
        piece: PieceHash,
    },
    /// Its bytes are not those that were written (CKPT-2). Fetch it from elsewhere, and heal this one with it.
    #[error(
        "{} at {offset}: expected the {len} bytes of piece {piece}, found {found}; fetch them from another holder, and heal this one",
        .path.display()
    )]
    Damaged {
        /// The piece.
        piece: PieceHash,
        /// The segment.
        path: PathBuf,
        /// Where its record begins.
        offset: u64,
        /// How long it is.
        len: u32,
        /// What is there: another hash, or fewer bytes.
        found: Remains,
    },
    /// The disk said no. It may say yes next time; if not, do as with a damaged one.
    #[error("{} at {offset}: piece {piece} cannot be read: {source}; fetch it from another holder", .path.display())]
    Disk {
        /// The piece.
        piece: PieceHash,
        /// The segment.
        path: PathBuf,
        /// Where its record begins.
        offset: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What was found in place of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Other bytes.
    Other(PieceHash),
    /// Too few bytes: the segment ends before.
    Short(u32),
}

impl std::fmt::Display for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other(hash) => write!(f, "bytes with the hash {hash}"),
            Self::Short(bytes) => write!(f, "only {bytes} bytes"),
        }
    }
}
