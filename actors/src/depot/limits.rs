//! Bounds of what is asked of a depot, and of what it keeps in memory for it.

use std::time::Duration;

use sardana_protocol::limits::{PIECE_BYTES, SAVE_PATIENCE};
use sardana_storage::manifest::MANIFEST_BYTES;

/// A stream's request must be there after this, and its sender must be named by then, or is refused (SEC-2).
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of a request, and of a short answer: a few numbers, or a reason.
pub const REQUEST_BYTES: usize = 4 << 10;

/// Longest reason in an answer. The rest is cut off.
pub const REASON_BYTES: usize = 2 << 10;

/// Most pieces that are offered or asked for at once.
pub const ROUND_PIECES: usize = 4_096;

/// Pieces that are put or read at once at first: of the largest 32 MiB.
pub const ROUND_FIRST: usize = 32;

/// What is put or read at once must be through by then, since others may wait. A client begins with so little that a rate at which no
/// piece stalls is enough.
pub const ROUND_MOST: Duration = Duration::from_secs(1_200);

/// Bytes of a list of so many pieces: a hash and a length each.
pub const LIST_BYTES: usize = 38 * ROUND_PIECES + 16;

/// Longest path of a folder that is told: what Linux takes.
pub const PATH_BYTES: usize = 4 << 10;

/// Bytes of pieces that are read at once from the disk of a depot on the same host, while as many are given on.
pub const NEAR_BYTES: usize = 4 << 20;

/// Bytes of pieces that are hashed, written, read or sent at once. Each stream has up to two such in memory, and
/// a writer on the same host as much in its window.
pub const BATCH_BYTES: usize = 8 << 20;

/// Bytes of one pane of a window: a depot on the writer's host sees so many at a time.
pub const PANE_BYTES: usize = BATCH_BYTES;

/// Fewer bytes are sent sooner than a window is made for them.
pub const WORTH_SHOWING: usize = 4 << 20;

/// Most streams whose pieces are written at the same time; others wait for their turn. A turn lasts [`WAIT_EVERY`], and until what was offered
/// by then is written.
pub const MAX_PUTS: usize = 8;

/// Most streams that are read for at the same time; others wait for their turn, as those that write do.
pub const MAX_GETS: usize = 8;

/// Most snapshots for which pieces are put at the same time: one, but for snapshots that were given up and whose end was not told.
pub const MAX_SNAPSHOTS: usize = 64;

/// Most manifests that are handed out at the same time, since each is in memory as a whole.
pub const MAX_MANIFESTS: usize = 2;

/// A stream on which nothing moves for so long is given up.
pub const STALL: Duration = Duration::from_secs(30);

/// So often a client that waits for the disk, or for its turn, is told that it still waits.
pub const WAIT_EVERY: Duration = Duration::from_secs(5);

/// After so many times a client that waits for the disk is refused.
pub const MOST_WAITS: u32 = 120;

/// So many times in a row a client lets itself be told to wait: it may wait for its turn behind a thousand others, [`MAX_PUTS`] of which have
/// theirs at a time, and then for the disk.
pub const MOST_WAITS_HEARD: u32 = 1_000 + MOST_WAITS;

/// A disk that has not returned from a call for so long hangs, and a client that would wait for it is refused. The longest call is to sync
/// a segment of 128 MiB: a disk that writes less than 9 MB a second counts as broken.
pub const DISK_PATIENCE: Duration = Duration::from_secs(15);

/// A client gives a depot up after so long without a byte or a word: the depot, or its host, hangs. Another depot is asked then, and a
/// checkpoint is written without it.
pub const SILENT: Duration = Duration::from_secs(20);

/// So long a writer lets a depot take for all of its share, though the depot says that it goes on. 2 TiB over 1 Gbit/s take five hours.
pub const PUT_MOST: Duration = Duration::from_secs(12 * 3_600);

/// Between two calls of a writer's `progress`.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Pieces that an error names.
pub const NAMED_PIECES: usize = 4;

/// So long after something was deleted its room is given back, with that of what is deleted meanwhile. So much longer it takes room: what
/// a disk writes in that time.
pub const COLLECT_AFTER: Duration = Duration::from_secs(1);

/// Between two attempts to reach a coordinator, at first; doubled up to [`RECONNECT_MOST`].
pub const RECONNECT_FIRST: Duration = Duration::from_millis(250);

/// The longest such wait.
pub const RECONNECT_MOST: Duration = Duration::from_secs(5);

/// The least such wait when the coordinator does not renew a certificate that has run out: what has to be done about it people do.
pub const REFUSED_EVERY: Duration = Duration::from_secs(60);

/// How long after it has failed a store is opened anew; doubled each time that it fails again soon or cannot be opened, up to
/// [`REOPEN_MOST`]. Opening reads what was perhaps never written, which a disk that is busy failing need not do in a loop.
pub const REOPEN_FIRST: Duration = Duration::from_millis(500);

/// The longest such wait; a store that was open for so long is forgiven.
pub const REOPEN_MOST: Duration = Duration::from_secs(60);

/// Between two looks whether the certificate must be renewed.
pub const CERTIFICATE_EVERY: Duration = Duration::from_millis(250);

/// Checkpoints in one message to the coordinator: of at most a kilobyte each.
pub const HEADS_TOLD: usize = 64;

/// So long after a depot could not tell what it keeps, since its disk hangs or has failed, it tries again.
pub const TELL_AGAIN: Duration = Duration::from_secs(5);

/// Longest file that says which depot this is, or which coordinator it served.
pub const NOTE_BYTES: u64 = 4 << 10;

/// Pieces that are fetched from other depots before they are written.
pub const FETCHED_PIECES: usize = 32;

/// When the job is over and the coordinator has not let it go yet, a depot looks so often whether there still is one.
pub const LET_GO_EVERY: Duration = Duration::from_millis(250);

/// It stays no longer than this: what copies the last checkpoint elsewhere has given up by then.
pub const LET_GO_MOST: Duration = Duration::from_secs(20 * 60);

const _: () = assert!(REOPEN_FIRST.as_millis() < REOPEN_MOST.as_millis());
// A writer names the depot that hangs before the whole checkpoint is begun anew with no depot to blame.
const _: () = assert!(SILENT.as_millis() < SAVE_PATIENCE.as_millis());
const _: () = assert!(DISK_PATIENCE.as_millis() + WAIT_EVERY.as_millis() <= SILENT.as_millis());
const _: () = assert!(WAIT_EVERY.as_millis() * 2 <= DISK_PATIENCE.as_millis());
const _: () = assert!(ROUND_FIRST as u64 * STALL.as_secs() < ROUND_MOST.as_secs());
const _: () = assert!(PANE_BYTES >= PIECE_BYTES && BATCH_BYTES >= PIECE_BYTES && REASON_BYTES < REQUEST_BYTES);
const _: () = assert!(MANIFEST_BYTES <= u32::MAX as usize);
