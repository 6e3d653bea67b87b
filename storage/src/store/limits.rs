//! How large what is kept may be, and how it is laid out.

pub use sardana_protocol::limits::PIECE_BYTES;

/// The form of what is on the disk. A higher one is refused.
pub const FORMAT: u16 = 1;

/// A segment ends before it would get longer than this. Syncing a file has a price, so that it should be large; collecting one needs
/// room for what is still good in it, so that it should not be too large.
pub const SEGMENT_BYTES: u64 = 128 << 20;

/// Bytes that are handed to the system in one call, if there are as many. Above this a call's own price no longer shows.
pub const WRITE_BYTES: usize = 2 << 20;

/// Most parts of one call: the system takes no more than 1,024. A piece has up to three.
pub(super) const WRITE_PARTS: usize = 1_024;

/// Most segments that are written and not yet synced: before the next one is begun they are, so that neither open files nor the system's
/// memory run out for a caller that does not sync for long.
pub(super) const UNSYNCED_SEGMENTS: usize = 16;

/// Most pieces that a manifest may name: a state of 2 TiB.
pub const MANIFEST_PIECES: usize = 2 << 20;

/// Longest manifest, without the list of its pieces. One that says a hundred bytes about each of its pieces fits.
pub const MANIFEST_BYTES: usize = 256 << 20;

/// A segment is written anew when so much of it, in percent, is needed no more. So what is kept takes at most a third more room than it
/// has bytes, and each collection writes at most three bytes for one that it frees.
pub const WASTE_PERCENT: u64 = 25;

/// Most manifests that are known to have been deleted: with one more, all but the [`KEPT_TOMBSTONES`] of the highest steps are forgotten, so
/// that a job that takes a checkpoint a minute for years does not fill a folder. A tombstone is there for a manifest that returns from a
/// copy of the folder. A manifest that old returns behind all that are kept: no job resumes from it, and it expires like any other.
pub const MOST_TOMBSTONES: usize = 1_024;

/// So many of them are left then: forgetting costs a sync, which should be rare.
pub const KEPT_TOMBSTONES: usize = 512;

/// Open files of segments that are read from. One more is opened in place of another.
pub(super) const OPEN_SEGMENTS: usize = 64;

/// Changes of the index that are held in memory before they are noted.
pub(super) const UNNOTED_CHANGES: usize = 8_192;

/// With a manifest they are noted if they are so many: to note a few takes longer than to write a small checkpoint, and what was not noted
/// is found again when the store is opened.
pub(super) const NOTED_TOGETHER: usize = 256;

/// Pieces that an error or a finding names; of more it says how many there are.
pub const NAMED_PIECES: usize = 8;

/// Most threads that hash, or read and verify.
pub(super) const THREADS: usize = 4;

const _: () = assert!(SEGMENT_BYTES > 4 * PIECE_BYTES as u64 && WRITE_BYTES > PIECE_BYTES);
const _: () = assert!(KEPT_TOMBSTONES < MOST_TOMBSTONES);
const _: () = assert!(WASTE_PERCENT > 0 && WASTE_PERCENT < 100);
