//! Bounds of what links hold, and of what is told of them.

use super::{CHUNK_BYTES, MAX_WORKERS};

/// Most lines about links that a worker tells with a heartbeat, one for each other worker and kind: a rank has two or three neighbours, some
/// more in a step that is retried, and the owner of a star up to 63. Of more, those with the most bytes are told, and how many links are not.
pub const LINKS_TOLD: usize = 64;

/// Most lines about links in a status. A ring has two for each member, one in each direction, and at most as many again once. Of more, the
/// worst are shown, and how many lines are not; the totals are of all.
pub const LINKS_SHOWN: usize = 4 * MAX_WORKERS as usize;

/// Payloads that a shared-memory link holds: as for links within a process. All of them are a megabyte, which stays in a processor's cache.
pub const SHARED_SLOTS: usize = 8;

/// Frames that a shared-memory link holds, most of whose payloads lie where the sender has them. Where other processes have the processors, each end has its turns a few
/// milliseconds apart: with as many frames it has something to do for all of its turn.
pub const SHARED_FRAMES: usize = 512;

/// Bytes of such a link's memory at most: its slots, and less than one more for frames and counters.
pub const SHARED_LINK_BYTES: u64 = ((SHARED_SLOTS + 1) * CHUNK_BYTES) as u64;

/// Payloads that a link over QUIC or within a process keeps to write the next ones where they were: as many as a connection has on its way
/// on a fast path. When more are, the others are allocated and freed.
pub const POOLED_CHUNKS: usize = 64;
