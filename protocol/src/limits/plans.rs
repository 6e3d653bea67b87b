//! By which plan gradients are added: for how many workers, of how many bytes.

use std::ops::RangeInclusive;

/// Most workers whose gradients one of them adds up in a star: it has two links with each of the others.
pub const STAR_WORKERS: u32 = 64;

/// So many bytes a star may move for each rank but two: those over which a running sum would have to go, there and back, besides. Measured with
/// four workers of one host, two processors: over shared memory a star takes 71 to 84 beside 101 to 134 us at 64 KiB and K = 4, 115 beside 150 us
/// at 32 KiB and K = 8, and at 128 KiB and K = 4, the limit, 85 to 194 beside 139 to 186 us; over QUIC there 400 beside 550 us. With four times
/// as much it is slower.
pub const STAR_BYTES: u64 = 512 << 10;

/// Most workers that are all owners in a direct plan where each has a host to itself: each is connected with each other, and has two links each way with it,
/// 60 in all. Between hosts it has not been measured.
pub const DIRECT_WORKERS: u32 = 16;

/// So many chunks each of them may own. With less, some owners have nothing to do. With more, hops are little beside the bytes, which are about the same
/// with a running sum, and that waits for one neighbour alone.
pub const DIRECT_CHUNKS: RangeInclusive<u64> = 1..=4;

/// Most workers that are all owners where all share one host. An owner reads the others' gradients where they lie, so that each of them passes a processor
/// once, and none waits for a neighbour's neighbour. Measured with two processors, as how many times as long a running sum takes: of four ranks, K = N, 1.35 to 1.6
/// over shared memory at 64 to 256 MiB, and 1.2 to 1.4 over QUIC up to 16 MiB; of three 1.4 to 1.6, of eight 1.5 to 1.8, and of two 1 to 1.1 over shared memory. With K = 2N
/// 1.05 to 1.4 (four ranks; of two 0.75), with K = 3N 0.9 to 1.1 (three), with K = 4N 0.8 to 0.95, and with K = 8N 0.6 to 0.8.
pub const DIRECT_NEAR_WORKERS: u32 = 8;

/// And the largest gradients, unless all have said that they share memory: over QUIC a whole step may lie in all of their links. 16 MiB and a little for what
/// is summed besides.
pub const DIRECT_NEAR_BYTES: u64 = 20 << 20;

/// Gradients of a worker that others read where they lie, at most: of more, only those that are added to one piece from shard 0 on are.
pub const SHOWN_PIECES: u64 = 2;

/// What one more frame costs, as bytes that a link moves meanwhile.
pub const FRAME_BYTES: u64 = 4 << 10;
