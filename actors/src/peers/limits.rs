//! Bounds of what other workers may ask for.

use std::time::Duration;

use sardana_collectives::limits::CHUNK_BYTES;
use sardana_net::quic::limits::{CONNECT_DEADLINE, PEER_UNI_STREAMS};
use sardana_protocol::limits::{GREETING_DEADLINE, LINK_DEADLINE, LINK_GRACE};

/// A link that was not there after this leaves its connection in doubt: a loss in one direction shows at one end at once, at the other
/// only when the connection has been idle for long. The next link is made over a new one. Both ends make links within milliseconds of
/// each other, unless one is busy.
pub const DOUBT_AFTER: Duration = Duration::from_secs(2);

/// After the first link of a generation that could not be made, others are waited for this long, so that all are told together: links that
/// no peer answers fail at the same moment. Below the protocol's `LINK_GRACE`, by which the coordinator waits for what others have to tell.
pub const FAILURES_TOGETHER: Duration = Duration::from_millis(200);

/// A stream's first message must be there after this, or the stream is refused (SEC-2).
pub const STREAM_HELLO_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of a stream's first message: a few numbers.
pub const STREAM_HELLO_BYTES: usize = 1_024;

/// Workers of this host that are greeted at once; others wait. Each holds a descriptor or two, for no longer than [`STREAM_HELLO_DEADLINE`].
pub const NEAR_GREETINGS: usize = 64;

/// A link through memory that is not made after this is made over QUIC: the peer is busy, has no descriptor left, or is not the one that
/// listens there. What is waited for is a few system calls of a process of this host.
pub const NEAR_DEADLINE: Duration = Duration::from_secs(1);

/// So long a worker that is met waits for the connection that the proof is of: less than the other end waits for it.
pub const NEAR_PROOF_DEADLINE: Duration = Duration::from_millis(500);

/// Most links through memory of one worker that are kept until their `Form` comes: each costs a descriptor and a megabyte. A generation has a
/// few between two workers. Further ones are made over QUIC.
pub const NEAR_PARKED: usize = 16;

/// So long a worker rests after it could not take in a worker of this host, for want of descriptors.
pub const NEAR_REST: Duration = Duration::from_millis(100);

/// What follows an answer goes through memory only if it is as much as this: for less, making the link takes longer than sending.
pub const NEAR_LEAST_BYTES: usize = 1 << 20;

/// So many bytes of a share are hashed while the next ones come. Of a few shares at once they find room in a large processor's last cache; a thread that is asked for
/// each takes little beside.
pub const BATCH_BYTES: usize = 4 << 20;

/// So long a thread that hashes a state's copies gives way to the others of its host, which train: copies on one host take no longer as a rule, of several GiB. From
/// then on it does not, since where all processors are busy it may hardly run.
pub const GIVES_WAY: Duration = Duration::from_millis(500);

/// Most links of one worker, of generations not yet known, that are kept until their `Form` comes: as many as it may have on one connection.
/// Further ones are refused, and their sender tries again with the next generation. What they have sent unread is within its connections'
/// windows; those through memory are bounded by [`NEAR_PARKED`].
pub const MAX_PARKED: usize = PEER_UNI_STREAMS as usize;

/// A link that was not expected for so long belongs to a generation that was given up: the worker that made it has had [`LINK_DEADLINE`]
/// for its own, and an order to this worker comes within the time after which its coordinator counts it as lost.
pub const PARKED_FOR: Duration = Duration::from_secs(30);

/// No coordinator forms so many generations in one life: a link of a later one can never be expected.
pub const MAX_GENERATIONS_AHEAD: u64 = 1 << 32;

/// Priority of a transfer's stream; a ring's is 0, and goes first wherever both leave over one connection.
pub const TRANSFER_PRIORITY: i32 = -1;

// A load through memory comes in chunks, of which none is received in parts.
const _: () = assert!(BATCH_BYTES.is_multiple_of(CHUNK_BYTES));
const _: () = assert!(PARKED_FOR.as_millis() >= 2 * LINK_DEADLINE.as_millis());
const _: () = assert!(FAILURES_TOGETHER.as_millis() < LINK_GRACE.as_millis());
const _: () = assert!(DOUBT_AFTER.as_millis() < LINK_DEADLINE.as_millis());
const _: () = assert!(NEAR_PROOF_DEADLINE.as_millis() < NEAR_DEADLINE.as_millis());
const _: () = assert!(NEAR_DEADLINE.as_millis() < DOUBT_AFTER.as_millis());
// Simulated workers wait as long for an address as for an answer.
const _: () = assert!(CONNECT_DEADLINE.as_millis() == GREETING_DEADLINE.as_millis());
