//! How large what is kept may be, and how long is waited for it.

use std::time::Duration;

/// The form of what is on the disk. A higher one is refused.
pub const FORMAT: u32 = 1;

/// Longest name of a table. A name is a word of the program, not data.
pub const NAME_BYTES: usize = 32;

/// Longest key. A key of 256 bytes holds two hashes and a path; what is longer belongs in the value.
pub const KEY_BYTES: usize = 256;

/// Longest value. sled's space grows to a dozen times the live data with values of a MiB; up to 64 KiB it stays within three
/// times. What is larger belongs in a file, whose name is put here.
pub const VALUE_BYTES: usize = 64 << 10;

/// Most changes of one batch: a batch is held in memory, and others wait until it is applied.
pub const BATCH_CHANGES: usize = 1_024;

/// Most bytes of keys and values of one batch, for the same reason. Four of the largest values fit.
pub const BATCH_BYTES: usize = 4 * (VALUE_BYTES + KEY_BYTES);

/// Most entries of one scan: they are held in memory. A caller that wants more asks again from the last key on.
pub const SCAN_ENTRIES: usize = 1_024;

/// A longer value is cut into such chunks, each of which is a record of sled's. sled writes pages of more than a quarter of
/// its segment to files of their own, which it never syncs; a page has up to about 17 records, so that pages of chunks stay
/// below it.
pub(crate) const CHUNK_BYTES: usize = 4 << 10;

/// sled's segments: its default, which is also what its own tests use.
pub(crate) const SEGMENT_BYTES: usize = 512 << 10;

/// sled splits a page with more records than 16, at the next change that comes by. Half as many again are allowed for.
const PAGE_RECORDS: usize = 24;

/// What a record of sled's has besides key and chunk: our heading and its own lengths.
const RECORD_EXTRA_BYTES: usize = 100;

const _: () = assert!(PAGE_RECORDS * (CHUNK_BYTES + NAME_BYTES + KEY_BYTES + RECORD_EXTRA_BYTES) < SEGMENT_BYTES / 4);

/// What sled keeps in memory: a catalogue is small, and its default would be a GiB.
pub(crate) const CACHE_BYTES: u64 = 64 << 20;

/// How long opening may take, unless said otherwise. It reads all there is twice, at some 100 MB/s on a slow disk. Nothing
/// bounds what sled does with a damaged file.
pub const OPEN_PATIENCE: Duration = Duration::from_secs(120);

/// How long closing may take. After it, the files stay locked until the process ends.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(20);

/// How long is waited for sled's own lock, which its threads may hold for a moment after it was closed.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(2);

const _: () = assert!(BATCH_BYTES >= VALUE_BYTES + KEY_BYTES);
const _: () = assert!(VALUE_BYTES.is_multiple_of(CHUNK_BYTES) && VALUE_BYTES / CHUNK_BYTES <= u16::MAX as usize);
