//! The longest frames. A longer one is refused by its writer, and by its reader before anything is allocated for it.

use std::time::Duration;

use sardana_protocol::codec::{LARGEST_LIMIT, MEDIUM_BYTES, SMALL_BYTES};
use sardana_protocol::limits::{
    AUXILIARY_NAME_BYTES, MAX_AUXILIARY, MAX_DATA_NAME_BYTES, MAX_DATA_PARTS, MAX_REPORTS, MAX_RESULTS, MAX_SHARDS,
    MAX_TEXT_BYTES, MAX_WORKERS,
};

use crate::quic::limits::STRANGER_WINDOW_BYTES;

/// Longest first frame of a connection, read from a peer of which only the certificate is known. Holds the largest hello: one
/// kept range of six bytes per shard, an id and a rank of twelve bytes per peer, five texts,
/// a short name per auxiliary sum, a name and a hash per part of the data, and some numbers and hashes.
pub const HELLO_FRAME_BYTES: usize = 56 << 10;

/// Longest control frame after the hello. Holds the largest `Form` (every worker a peer at 40 bytes, and two lists of a stay of 18 bytes per
/// shard) and the largest `Progress` (every report kept, each with all auxiliary sums).
pub const CONTROL_FRAME_BYTES: usize = 256 << 10;

/// Longest bundle that a parent hands to a child: credentials of about a kilobyte, addresses and the job's constants.
pub const BUNDLE_BYTES: usize = 64 << 10;

/// So long a reason is waited for when the other end has given up a stream: it closes the connection right after that, if it does at all.
/// An end that does not is said to have ended the stream.
pub const LAST_WORD: Duration = Duration::from_secs(1);

const HELLO_NAMES_BYTES: usize = MAX_AUXILIARY * (AUXILIARY_NAME_BYTES + 1) + MAX_DATA_PARTS * (MAX_DATA_NAME_BYTES + 33);
const _: () = assert!(
    HELLO_FRAME_BYTES > 6 * MAX_SHARDS as usize + 12 * MAX_WORKERS as usize + 5 * MAX_TEXT_BYTES + HELLO_NAMES_BYTES + 1_024
);
const _: () = assert!(CONTROL_FRAME_BYTES > 40 * MAX_WORKERS as usize + 2 * 18 * MAX_SHARDS as usize + 1_024);
const _: () = assert!(CONTROL_FRAME_BYTES > MAX_REPORTS * (8 * MAX_AUXILIARY + 32) + 1_024);
const _: () = assert!(CONTROL_FRAME_BYTES > MAX_RESULTS * (MAX_TEXT_BYTES + 16) + 1_024);
const _: () = assert!(HELLO_FRAME_BYTES <= CONTROL_FRAME_BYTES && BUNDLE_BYTES <= CONTROL_FRAME_BYTES);
// What a peer may make the codec reserve goes with what it may say.
const _: () = assert!(HELLO_FRAME_BYTES <= SMALL_BYTES && CONTROL_FRAME_BYTES <= MEDIUM_BYTES);
const _: () = assert!(STRANGER_WINDOW_BYTES as usize > HELLO_FRAME_BYTES);
const _: () = assert!(CONTROL_FRAME_BYTES <= LARGEST_LIMIT && LARGEST_LIMIT <= u32::MAX as usize);
