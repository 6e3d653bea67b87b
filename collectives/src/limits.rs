//! Every bound of the collectives: why this number, and what happens when it is reached.

/// Bytes of a chunk, the unit in which sums travel. Small enough that a ring of eight is busy everywhere after a megabyte, large
/// enough that a 48-byte header and a wake-up are noise. The last chunk of a gradient may be shorter.
pub const CHUNK_BYTES: usize = 128 << 10;

/// Tensors start at multiples of this, a cache line, so that no element is ever split between two chunks.
pub const ALIGNMENT: usize = 64;

/// Chunks that wait between two futures of one rank, and frames that an in-process link holds: enough that neither side waits
/// for the other's wake-up. When it is full the sender waits, which is the back-pressure.
pub const QUEUED_CHUNKS: usize = 8;

const _: () = assert!(CHUNK_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(ALIGNMENT.is_multiple_of(8));
const _: () = assert!(sardana_protocol::limits::MAX_GRADIENT_BYTES / CHUNK_BYTES < u32::MAX as usize);
const _: () = assert!(CHUNK_BYTES < u32::MAX as usize);
