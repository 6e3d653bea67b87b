//! Bounds and timeouts of connections, and the sizes that suit a path.

use std::time::Duration;

use crate::wire::limits::HELLO_FRAME_BYTES;

/// How long dialling may take before the address counts as unreachable: five round trips of the slowest path, with retries.
/// Nobody listening and a lost host look the same, since QUIC believes no ICMP.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long an incoming handshake may take before it is given up (SEC-2).
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// A connection without a packet for this long is lost. The membership's own silence bound is shorter; this one frees what
/// nobody asks about any more.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two packets that keep an idle connection alive: four may be lost in a row.
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// How long an end waits until its peers know that it closes. One that is dead never acknowledges.
pub const GOODBYE: Duration = Duration::from_millis(250);

/// Most handshakes not yet taken up; further ones are refused at once. A whole generation may dial at the same time, but takes
/// up its handshakes as they come.
pub const MAX_INCOMING: usize = 256;

/// Most handshakes under way at one endpoint; further ones wait among those not yet taken up. Each costs a signature and some
/// kilobytes, and those of strangers last until [`HANDSHAKE_DEADLINE`].
pub const MAX_HANDSHAKES: usize = 64;

/// Most bytes kept for one handshake not yet taken up; what is beyond is dropped and sent again by the peer.
pub const INCOMING_BYTES: u64 = 16 << 10;

/// The same for all of them together.
pub const INCOMING_BYTES_TOTAL: u64 = 1 << 20;

/// With more connections than this, a newcomer must first prove that it receives at its address. That costs it one round trip and
/// keeps senders with forged addresses from costing anything.
pub const RETRY_ABOVE_CONNECTIONS: usize = 64;

/// Streams that the other worker may open in both directions: links of the generations that overlap in a switch.
pub const PEER_BIDI_STREAMS: u32 = 64;

/// Streams that the other worker may open towards this one: transfers under way.
pub const PEER_UNI_STREAMS: u32 = 1_024;

/// Bytes on a stream that the sender may send before the receiver has read: larger ones were slower on loopback.
pub const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// The same for a control stream: two of the largest frames.
pub const CONTROL_STREAM_WINDOW_BYTES: u32 = 512 << 10;

/// Bytes that somebody may send to the coordinator, over all streams together, before it has shown a certificate: a hello, or a
/// request for a certificate.
pub const STRANGER_WINDOW_BYTES: u32 = 64 << 10;

/// What is asked of the kernel for a socket's buffers. It may give less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// With less buffer than this a burst of the largest datagrams is dropped; smaller ones are sent then.
pub const ROOMY_BUFFER_BYTES: usize = 1 << 20;

/// Largest UDP payload on loopback over IPv4: 65,535 less 20 (IP) and 8 (UDP).
pub const LOOPBACK_V4_BYTES: u16 = 65_507;

/// Largest UDP payload on loopback over IPv6: the interface's 65,536 less 40 (IP) and 8 (UDP).
pub const LOOPBACK_V6_BYTES: u16 = 65_488;

/// UDP payload on loopback when the kernel gives little buffer: fits, with its headers, one kernel allocation of 16 KiB. The
/// kernel charges whole allocations to the buffer, so 16,384 would cost twice as much.
pub const TIGHT_LOOPBACK_BYTES: u16 = 15_000;

/// Bytes that a connection on loopback may have on their way before anything is acknowledged.
pub const LOOPBACK_WINDOW_BYTES: usize = 1 << 20;

/// No connection is held to fewer bytes on their way than this many datagrams, however small the kernel's buffer: less than two
/// would wait for delayed acknowledgements each time.
pub const LEAST_DATAGRAMS: usize = 4;

/// Longest reason of the other end that is shown.
pub const REASON_CHARS: usize = 256;

const _: () = assert!(IDLE_TIMEOUT.as_millis() > 4 * KEEP_ALIVE.as_millis());
const _: () =
    assert!(STRANGER_WINDOW_BYTES as usize > HELLO_FRAME_BYTES && STRANGER_WINDOW_BYTES <= CONTROL_STREAM_WINDOW_BYTES);
const _: () = assert!(INCOMING_BYTES <= INCOMING_BYTES_TOTAL);
// quinn-proto's handshake packets are padded to the least MTU and must be shorter than 2^14.
const _: () = assert!(TIGHT_LOOPBACK_BYTES < 1 << 14);
// An initial MTU above the initial congestion window never sends its first packet.
const _: () = assert!(LOOPBACK_WINDOW_BYTES >= LEAST_DATAGRAMS * LOOPBACK_V4_BYTES as usize);
const _: () = assert!(ROOMY_BUFFER_BYTES >= LOOPBACK_WINDOW_BYTES);
