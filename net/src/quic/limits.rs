//! Bounds and timeouts of connections, and the sizes that suit a path.

use std::time::Duration;

use super::places::Room;

/// How long dialling may take before the address counts as unreachable: five round trips of the slowest path, with retries.
/// A closed port and a lost host look the same, since QUIC believes no ICMP.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long an incoming handshake may take before it is given up (SEC-2).
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// A connection without a packet for this long is lost. The membership's own silence bound is shorter; this one frees what
/// is not asked about any more.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two packets that keep an idle connection alive: four may be lost in a row.
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// How long an end waits until its peers know that it closes. A dead peer never acknowledges.
pub const GOODBYE: Duration = Duration::from_millis(250);

/// Most handshakes not yet looked at; further ones are refused at once. They are looked at as they come, so this is for bursts.
pub const MAX_INCOMING: usize = 256;

/// Most handshakes of strangers under way at one endpoint, which last until [`HANDSHAKE_DEADLINE`]. When there are so many, the oldest of
/// the sender that has the most makes way for a newcomer. Each costs a signature and some 80 KiB
/// (measured on loopback: 160 that are pending make a process 12.5 MiB larger).
pub const MAX_HANDSHAKES: usize = 512;

/// For so long no handshake has to make way for another of the same sender: five round trips of a path of 200 ms. A sender that begins more
/// than [`MAX_HANDSHAKES`] within it keeps out most others at its own address, by their number, but not those elsewhere.
pub const FAIR_TIME: Duration = Duration::from_secs(1);

/// How long QUIC keeps what it knows of a handshake that was given up: three probe timeouts of a path not yet measured.
pub const LEAVING_TIME: Duration = Duration::from_secs(3);

/// Most handshakes that were given up for others within [`LEAVING_TIME`]; with more, newcomers are refused, and come again. With those under
/// way, strangers cost an endpoint at most 2,048 handshakes: 160 MiB.
pub const MAX_LEAVING: usize = 3 * MAX_HANDSHAKES;

/// Handshakes under way for one address that is known, beside all those of strangers: a process dials another once at a time, and may do
/// so again while its last attempt is not yet given up here.
pub const HANDSHAKES_OF_KNOWN: usize = 4;

/// Most addresses that are known at one endpoint: those told of last. Others still come in as strangers do.
pub const MAX_KNOWN: usize = 2_048;

/// With more handshakes than this under way, a newcomer must first prove that it receives at its address, so senders with forged
/// addresses take no more places than these.
pub const RETRY_ABOVE_HANDSHAKES: usize = 32;

/// Most bytes kept for one handshake not yet taken up; what is beyond is dropped and sent again by the peer.
pub const INCOMING_BYTES: u64 = 16 << 10;

/// The same for all of them together.
pub const INCOMING_BYTES_TOTAL: u64 = 1 << 20;

/// With more connections than this, a newcomer must first prove that it receives at its address. That costs it one round trip and
/// keeps senders with forged addresses from costing anything.
pub const RETRY_ABOVE_CONNECTIONS: usize = 64;

/// Streams that another worker may open in both directions: transfers under way.
pub const PEER_BIDI_STREAMS: u32 = 64;

/// Streams that another worker may open towards this one: links. Where two workers hold each other's shards in turns, the first plan of a
/// generation has as many hops between them; most have a handful, and the generations that overlap in a switch have twice that.
pub const PEER_UNI_STREAMS: u32 = 1_024;

/// Both, as long as the worker is not named: a link or two for each plan of a generation that this end has yet to hear of, and what the
/// worker is to be caught up with.
pub const UNNAMED_STREAMS: u32 = 64;

/// Bytes on a stream that the sender may send before the receiver has read, between hosts that are not said to be farther: what is under way
/// at 1 Gbit/s and a round trip of 100 ms, or at 10 Gbit/s and 11 ms (12 MiB), and an eighth more, since the receiver tells of so much room
/// at a time. One transfer fills such a path. What is sent and not read yet is memory, so no worker promises more than its paths need.
pub const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// The pace at which one stream is to go between hosts that are said to be far from each other: 10 Gbit/s.
pub const NETWORK_BYTES_PER_SECOND: u32 = 1_250_000_000;

/// The longest round trip that can be said: at a stream's pace 125 MB are under way.
pub const FARTHEST: Duration = Duration::from_millis(100);

/// The window of a stream that goes at such a pace over a path of such a round trip. A receiver tells of an eighth of it at a time.
#[must_use]
pub const fn window_bytes(bytes_per_second: u32, round_trip: Duration) -> u32 {
    let under_way = bytes_per_second as u128 * round_trip.as_micros() / 1_000_000;
    // It is asserted below that the longest round trip fits.
    (under_way.div_ceil(7) * 8) as u32
}

/// The same on one host: larger ones were slower.
pub const LOOPBACK_STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Full streams that a named worker may send over one connection before the receiver has read. A transfer must have room while links are not
/// read: those of a ring that waits for what is transferred, and of the one that follows it, there and back. Five, and one to spare.
pub const WINDOW_STREAMS: u32 = 6;

/// The same in bytes, where no peer is said to be far.
pub const PEER_WINDOW_BYTES: u32 = WINDOW_STREAMS * STREAM_WINDOW_BYTES;

/// Full streams that are kept until another host has acknowledged them, over all streams of a connection. The bytes of states and gradients
/// are shared with what holds them, not copied.
pub const SEND_WINDOW_STREAMS: u32 = 2;

/// Most connections of one worker, or checkpoint actor, to another; a newer one replaces the oldest. Both may dial at once, and each
/// may have lost sight of the one before. So what a named peer sends unread costs at most three times [`PEER_WINDOW_BYTES`]: 288 MiB;
/// where peers are said to be [`FARTHEST`], 2.6 GB.
pub const CONNECTIONS_OF_PEER: usize = 3;

/// The same as places. None is asked to wait: the oldest makes way at once.
pub const OF_PEERS: Room = Room {
    most: usize::MAX,
    each: CONNECTIONS_OF_PEER,
    fair_time: Duration::ZERO,
    leaving: usize::MAX,
};

/// Connections of peers that have shown a certificate and are not named: 256, of which two are of one peer. With more, the oldest of the
/// peer that has the most makes way. Each costs at most [`STRANGER_WINDOW_BYTES`] unread: 16 MiB together, 128 KiB a peer.
pub const UNNAMED: Room = Room {
    most: 256,
    each: 2,
    fair_time: FAIR_TIME,
    leaving: 256,
};

/// How long a peer that is not named stays connected. What the coordinator told it may come there some seconds before it comes here.
pub const UNNAMED_DEADLINE: Duration = Duration::from_secs(10);

/// Control connections that have shown a certificate and are not greeted: as many as workers may come at once, when their coordinator
/// is back, and sixteen of one process. With more, the oldest of the process that has the most makes way. Each costs at most
/// [`STRANGER_WINDOW_BYTES`] unread: 64 MiB together, 1 MiB a process.
pub const SILENT: Room = Room {
    most: 1_024,
    each: 16,
    fair_time: FAIR_TIME,
    leaving: 1_024,
};

/// Bytes on a control stream that the sender may send before the receiver has read: two of the largest frames.
pub const CONTROL_STREAM_WINDOW_BYTES: u32 = 512 << 10;

/// The same for a control connection, once it is greeted: it has one stream.
pub const CONTROL_WINDOW_BYTES: u32 = CONTROL_STREAM_WINDOW_BYTES;

/// Bytes that a client may send over a connection, over all streams together, before it is known what it comes for: a hello, a request for
/// a certificate, or the first messages of links and transfers.
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

/// Largest UDP payload that is tried between hosts: QUIC's discovery finds what the path carries up to this. A network of 9,000 would carry 8,972,
/// but ten such datagrams, which leave with one call, exceed the 64 KiB that the kernel takes: it drops them without a word. Where
/// the path carries less, as most do, a search costs some twenty small losses that slow nothing down.
pub const NETWORK_BYTES: u16 = 6_540;

/// So long a connection between hosts sends QUIC's smallest datagrams after losses that looked as if the path carried no more. They look so by chance where
/// much is lost for want of room, and then datagrams of a sixth would serve for as long. (quinn has a minute.) A search costs what it cost at first.
pub const SEARCH_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Between two searches otherwise: a path that carried less for longer than that is found to carry more again. (RFC 8899 has ten minutes for `PMTU_RAISE_TIMER`, of a
/// path that is as it was.)
pub const SEARCH_EVERY: Duration = Duration::from_secs(60);

/// Bytes that a connection on loopback may have on their way before anything is acknowledged.
pub const LOOPBACK_WINDOW_BYTES: usize = 1 << 20;

/// So long a connection on loopback sends small datagrams after bursts of large ones were dropped. Long beside a burst, and beside the few that a peer
/// loses again and again whose buffer is always too small for them.
pub const REGAIN_AFTER: Duration = Duration::from_secs(1);

/// No connection is held to fewer bytes on their way than this many datagrams, however small the kernel's buffer: less than two
/// would wait for delayed acknowledgements each time.
pub const LEAST_DATAGRAMS: usize = 4;

/// Bytes that a connection between hosts may have on their way before anything is acknowledged: ten of the largest datagrams (RFC 9002, 7.2).
pub const NETWORK_WINDOW_BYTES: u64 = 10 * NETWORK_BYTES as u64;

/// Nothing queues on a long way while round trips are longer than the shortest by no more than this part of it. A router that holds a
/// quarter of what is under way makes them longer by a quarter before it drops anything.
pub const QUEUE_SHARE: u32 = 8;

/// And by no more than this: timers go off a millisecond late, and packets leave in bursts.
pub const QUEUE_LEAST: Duration = Duration::from_millis(2);

/// Of so many bytes one may be lost by chance on a long way: 2 %.
pub const CHANCE_LOSS_SHARE: u64 = 50;

/// So many datagrams more may be lost by chance within two round trips: what is rare among many is not among few.
pub const CHANCE_LOSSES: u64 = 3;

/// Longest reason of the other end that is shown.
pub const REASON_CHARS: usize = 256;

const _: () = assert!(IDLE_TIMEOUT.as_millis() > 4 * KEEP_ALIVE.as_millis());
const _: () = assert!(STRANGER_WINDOW_BYTES <= CONTROL_STREAM_WINDOW_BYTES);
const _: () = assert!(INCOMING_BYTES <= INCOMING_BYTES_TOTAL);
// A window of 1/8 less, at which more room is told of, is what may be under way.
const _: () = assert!(STREAM_WINDOW_BYTES / 8 * 7 >= 125_000_000 / 10);
const _: () = assert!(LOOPBACK_STREAM_WINDOW_BYTES <= STREAM_WINDOW_BYTES);
// Windows are numbers of 32 bits, also six of them.
const _: () = assert!(window_bytes(NETWORK_BYTES_PER_SECOND, FARTHEST) <= u32::MAX / WINDOW_STREAMS);
const _: () = assert!(window_bytes(NETWORK_BYTES_PER_SECOND, FARTHEST) / 8 * 7 >= 125_000_000);
// quinn hands at most ten datagrams to the kernel at once; with their headers they are one packet until they leave.
const _: () = assert!(10 * (NETWORK_BYTES as u32) < 65_535 - 8 - 40);
// What a named peer may send unread over all its connections: the tests take the bounds as they are, and would bear any.
const _: () = assert!(CONNECTIONS_OF_PEER as u64 * PEER_WINDOW_BYTES as u64 <= 288 << 20);
// quinn-proto's handshake packets are padded to the least MTU and must be shorter than 2^14.
const _: () = assert!(TIGHT_LOOPBACK_BYTES < 1 << 14);
// An initial MTU above the initial congestion window never sends its first packet.
const _: () = assert!(LOOPBACK_WINDOW_BYTES >= LEAST_DATAGRAMS * LOOPBACK_V4_BYTES as usize);
const _: () = assert!(ROOMY_BUFFER_BYTES >= LOOPBACK_WINDOW_BYTES);
