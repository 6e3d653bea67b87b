//! Every bound of the collectives: why this number, and what happens when it is reached.

use std::time::Duration;

pub use sardana_protocol::limits::{CHUNK_BYTES, POOLED_CHUNKS, SHARED_FRAMES, SHARED_LINK_BYTES, SHARED_SLOTS};

/// Tensors start at multiples of this, a cache line, so that no element is ever split between two chunks.
pub const ALIGNMENT: usize = 64;

/// Frames that an in-process link holds: enough that neither side waits for the other's wake-up. When it is full the sender waits, which
/// is the back-pressure.
pub const QUEUED_CHUNKS: usize = 8;

/// Frames that pass a link before what passes them lets others go on, if it never had to wait: more than a task's budget has, which ends its turn in a better way, and
/// so few that an abort, which waits for a turn that a helping thread has begun, waits for a hundredth of a second.
pub const FRAMES_A_TURN: u32 = 256;

/// For so long an end of a shared-memory link looks again whether the other is ready, before it sleeps: about what sleeping and being woken
/// cost, with the thread that hears the other ring in between, on a virtual machine whose processors sleep as well.
pub const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Memory of a process in pages which other processes of the host can read, each piece of it: buffers of sums, and of
/// gradients that are passed on as they are, and a few through which running sums pass a GPU. Each has a descriptor, of which a process has a thousand or so. What is made beyond lies in its own memory, and is copied for others.
pub const MOST_PAGES: usize = 24;

/// So much memory a task reserves at once, before the others of its thread go on: a system that clears what it reserves takes a twentieth of a second for it, and where a virtual machine
/// has not had it before, and others have the processors, up to half a second.
pub const RESERVED_AT_ONCE: usize = 64 << 20;

/// Pages of the other end that a link remembers, the last that have passed. A sender goes through no more in turn, which are most where a running sum passes GPUs: a part lies
/// in memory of its own until the next rank's GPU has read it there, with which are as many under way again. Each may be as large as a gradient, and is kept that long.
pub const SEEN_PAGES: usize = 2 * (PASSING_AT_ONCE + 2) + 1;

/// Runs of bytes that a link over QUIC holds of what came and is not read: a run came with one packet, and keeps alive what came together with it,
/// up to 64 KiB. A frame comes in half as many of the smallest packets. Of more, which is what a peer at fault sends, all are copied into one.
pub const MOST_RUNS: usize = 256;

/// Runs that it takes from the connection at once: one on its way to another host takes longer than to come back for more.
pub const RUNS_AT_ONCE: usize = 16;

/// A run is taken to be so long, as long as none that was longer has come: nearly what the smallest packets carry (RFC 9000, 14.1).
pub const LEAST_RUN_BYTES: usize = 1_100;

/// Chunks of each rank's part that a group's fast order reduces before it goes on to the next ones. Their running values are kept twice beside
/// the caller's buffer: a megabyte in all, which stays in a processor's cache, and enough that a round is more than a wake-up.
pub const BLOCK_CHUNKS: usize = 4;

/// Most bytes of a gradient that are brought from elsewhere at once, such as from a GPU: several chunks, so that what a copy costs beside its bytes
/// does not count; and few, since each that is under way has so much memory that the device reaches.
pub const LOWERED_BYTES: usize = 8 * CHUNK_BYTES;

/// So many times as much is asked for ahead of what is wanted: it comes while that travels.
pub const LOWERED_AHEAD: usize = 2;

/// Parts of a running sum that pass a device at once: while one is added to, others go up, come down, and wait for the links.
pub const PASSING_AT_ONCE: usize = 4;

/// For so long the ranks of a generation look for each other by another means than links: NCCL's thousands of ranks need a few seconds, and where its network
/// lets none through it may look for ever. Then links sum.
pub const GATHERING_PATIENCE: Duration = Duration::from_secs(30);

/// Where ranks have waited in vain for another means than links, it is left alone for so many times as long: it costs a tenth of the time then, and less each time.
pub const SETBACK_FACTOR: u32 = 10;

/// But never longer than this: people may have mended it.
pub const LONGEST_SETBACK: Duration = Duration::from_secs(3_600);

/// Bytes of a sum in a second that another means than links makes at least, once all ranks are there: a tenth of what a network of 1 Gbit/s does. With one that is
/// slower than that links are no worse.
pub const LEAST_RATE: usize = 12_500_000;

/// Bytes that are summed at once: so few that they stay in the nearest cache while shard after shard is added.
pub const TILE_BYTES: usize = 4 << 10;

/// A gradient goes past the caches from so large a part of the last of them on: a step goes through what it is copied from, the gradient, what other ranks have of
/// it, and the sum. Measured with two ranks and a cache of 32 MiB: at an eighth both ways took as long, at a quarter stores past it two thirds of the time. Where links copy
/// the sum, as QUIC does, they read it at once; that was not measured apart.
pub const CACHE_PART: usize = 4;

/// The last cache where the system does not tell.
pub const TYPICAL_CACHE_BYTES: usize = 32 << 20;

const _: () = assert!(CHUNK_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(ALIGNMENT.is_multiple_of(8));
const _: () = assert!(sardana_protocol::limits::MAX_GRADIENT_BYTES / CHUNK_BYTES < u32::MAX as usize);
const _: () = assert!(CHUNK_BYTES < u32::MAX as usize);
const _: () = assert!(2 * CHUNK_BYTES.div_ceil(LEAST_RUN_BYTES) + RUNS_AT_ONCE <= MOST_RUNS);
