//! What the store found, in words.

use std::fmt;
use std::path::PathBuf;

use super::limits::NAMED_PIECES;
use super::names::{ManifestKey, PieceHash, Place};

/// What is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its file is gone, though it was committed and not deleted.
    Missing,
    /// Its file cannot be read, or is not what was written: which file, and why.
    Damaged(String),
    /// Pieces that it needs are not held, or damaged.
    Incomplete {
        /// The first of them.
        missing: Vec<PieceHash>,
        /// How many pieces.
        count: usize,
    },
}

impl Problem {
    /// None if `missing` is empty.
    pub(super) fn incomplete(missing: &[PieceHash]) -> Option<Self> {
        (!missing.is_empty()).then(|| Self::Incomplete {
            missing: missing.iter().take(NAMED_PIECES).copied().collect(),
            count: missing.len(),
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("its manifest is gone; commit it again from another holder, or delete it"),
            Self::Damaged(reason) => write!(f, "{reason}; commit it again from another holder, or delete it"),
            Self::Incomplete { missing, count } => {
                write!(
                    f,
                    "{count} of its pieces are missing or damaged; heal them from another holder:"
                )?;
                missing.iter().try_for_each(|piece| write!(f, " {piece}"))?;
                if *count > missing.len() {
                    f.write_str(" …")?;
                }
                Ok(())
            }
        }
    }
}

/// What was noticed when a store was opened. The caller logs these. None of them ends it, and nothing was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The index was damaged, in this way, and is made anew; all segments were read for it.
    IndexRebuilt(String),
    /// There is no index in this life of the store, for this reason; all segments were read.
    NoIndex(String),
    /// The file that says of which format the store is was missing or damaged. It is written anew.
    Format(PathBuf),
    /// A file that the store did not write. It is left alone.
    Stray(PathBuf),
    /// A segment cannot be opened or read. Its pieces are missing.
    SegmentUnreadable {
        /// The path.
        path: PathBuf,
        /// What the disk said.
        reason: String,
    },
    /// A segment is shorter than it was.
    SegmentShort {
        /// The path.
        path: PathBuf,
        /// How long it was when it was synced.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// A segment that was in use is gone.
    SegmentMissing(PathBuf),
    /// Something in a segment is not what was written. If a piece was there, it is missing.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where they begin.
        offset: u64,
        /// Where they end.
        end: u64,
        /// What the disk said, if it did.
        unread: Option<String>,
    },
    /// Bytes that were never synced, as a crash leaves them. No worker was told that they are there.
    Torn {
        /// The segment.
        path: PathBuf,
        /// Where they begin.
        offset: u64,
        /// Where they end.
        end: u64,
    },
    /// Pieces that were whole, but perhaps not on the disk. They were written again and synced.
    Rescued {
        /// How many pieces.
        pieces: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// The same, but they could not be written again: they can be read, but are not certain to be on the disk.
    Unsure {
        /// How many pieces.
        pieces: usize,
        /// Why they could not be written.
        reason: String,
    },
    /// This manifest was deleted and had come back. It is deleted again.
    Returned(ManifestKey),
    /// A manifest cannot be used as it is.
    Manifest {
        /// The checkpoint.
        key: ManifestKey,
        /// What is wrong with it.
        problem: Problem,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IndexRebuilt(reason) => write!(f, "the index of the pieces was made anew from the segments: {reason}"),
            Self::NoIndex(reason) => write!(f, "the pieces were found without an index, which is slower: {reason}"),
            Self::Format(path) => write!(f, "{}: it was missing or damaged and was written anew", path.display()),
            Self::Stray(path) => write!(
                f,
                "{}: expected only files of the store here; it is left alone",
                path.display()
            ),
            Self::SegmentUnreadable { path, reason } => {
                write!(
                    f,
                    "{}: its pieces are missing: {reason}; see whether the disk is broken",
                    path.display()
                )
            }
            Self::SegmentShort { path, expected, found } => write!(
                f,
                "{}: expected {expected} bytes, found {found}: the pieces behind are missing",
                path.display()
            ),
            Self::SegmentMissing(path) => write!(f, "{}: it is gone, and its pieces are missing", path.display()),
            Self::Damaged {
                path,
                offset,
                end,
                unread,
            } => {
                write!(f, "{}: expected records from {offset} to {end}, found none", path.display())?;
                match unread {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::Torn { path, offset, end } => write!(
                f,
                "{}: from {offset} to {end} are bytes that a crash has torn; no worker was told of them",
                path.display()
            ),
            Self::Rescued { pieces, bytes } => write!(f, "{pieces} pieces ({bytes} bytes) were written again after a crash"),
            Self::Unsure { pieces, reason } => write!(
                f,
                "{pieces} pieces are not certain to be on the disk, and could not be written again: {reason}"
            ),
            Self::Returned(key) => write!(f, "checkpoint {key} was deleted and had come back; it is deleted again"),
            Self::Manifest { key, problem } => write!(f, "checkpoint {key}: {problem}"),
        }
    }
}

/// A manifest in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The checkpoint.
    pub key: ManifestKey,
    /// What is wrong with it, if anything.
    pub problem: Option<Problem>,
}

/// The newest manifest that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The checkpoint; none if there is none.
    pub key: Option<ManifestKey>,
    /// Newer ones, from the newest on, and why they cannot be used.
    pub passed_over: Vec<(ManifestKey, Problem)>,
}

/// How much a store keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pieces that are held.
    pub pieces: u64,
    /// Their bytes.
    pub piece_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Pieces that are not held any more.
    pub pieces: u64,
    /// Bytes by which the segments are shorter.
    pub freed_bytes: u64,
    /// Bytes that were written anew for it.
    pub copied_bytes: u64,
    /// Pieces that are needed, and damaged: their segments stay.
    pub damaged: Vec<PieceHash>,
}

/// A piece that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    /// The piece.
    pub piece: PieceHash,
    /// Where it is.
    pub place: Place,
    /// What is wrong, as text.
    pub reason: String,
    /// Whether its bytes are whole, and only the header before them is not: it is lost if the index is lost.
    pub readable: bool,
}

/// What reading all of a store has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pieces that are whole.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces that are not.
    pub harmed: Vec<Harm>,
    /// All manifests.
    pub manifests: Vec<Listed>,
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
}
