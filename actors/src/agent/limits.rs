//! Timeouts of an agent.

use std::time::Duration;

/// Between two looks at which children stand still, where many of them stop, go on or end at once: a look costs a system call for
/// each. It is a small part of the time that a child may stand still.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long children may take to end by themselves once the job is over, unless they have said that their part in it has ended well.
pub const END_GRACE: Duration = Duration::from_secs(5);

/// Of so many children the end is told again when the coordinator was lost: far more than end while it is away.
pub const ENDS_KEPT: usize = 1_024;

/// Between two attempts to reach a coordinator that was lost. Ends of workers are reported after it at the latest.
pub const RECONNECT_EVERY: Duration = Duration::from_millis(250);

/// The same when the coordinator does not renew the certificate that has run out: what has to be done about it people do.
pub const REFUSED_EVERY: Duration = Duration::from_secs(60);

/// How long an agent that was asked to leave waits for its children: they finish a step and hand over what they hold. Supervisors
/// kill after 30 s by habit, so it is less. Then they are ended.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(25);

/// Between two attempts to start a checkpoint actor that cannot start: what has to be done about it people do.
pub const DEPOT_AGAIN: Duration = Duration::from_secs(10);

/// Longest line of a child's output that is printed whole; a longer line is cut into such pieces.
pub const LINE_BYTES: usize = 16 << 10;

/// Bytes that are read from a child's pipe at once.
pub const PIPE_BYTES: usize = 8 << 10;

/// Lines that wait for a terminal before children wait. With [`LINE_BYTES`] it bounds the memory of a flood.
pub const LINES_WAITING: usize = 128;

/// Most bytes that are kept of a worker's output, unless said otherwise: a day of a talkative worker. The older half goes first.
pub const LOG_BYTES: u64 = 32 << 20;

/// Fewer bytes are not kept: a line must fit into half of them.
pub const LOG_BYTES_LEAST: u64 = 4 * LINE_BYTES as u64;

/// Of so many workers of a host the output is kept, unless said otherwise, beyond those that run: with [`LOG_BYTES`] 2 GiB. A person who
/// looks for the cause of a failure finds it in the last of them.
pub const LOG_FILES: usize = 64;

/// How long an agent that ends waits until its children's last lines are written.
pub const OUTPUT_GRACE: Duration = Duration::from_secs(2);

const _: () = assert!(LINES_WAITING * LINE_BYTES <= 4 << 20);
const _: () = assert!(LEAVE_PATIENCE.as_secs() > END_GRACE.as_secs());
/// How long the coordinator may take to certify a child. It answers within a round trip, or refuses and says why in its log.
pub const CERTIFY_DEADLINE: Duration = Duration::from_secs(10);

/// Between two looks whether a certificate must be renewed or was waited for in vain.
pub const CERTIFICATES_EVERY: Duration = Duration::from_millis(250);

const _: () = assert!(CERTIFY_DEADLINE.as_millis() > 10 * CERTIFICATES_EVERY.as_millis());

/// Longest answer of a metadata service that is read. Theirs have some hundred bytes.
pub const METADATA_BYTES: usize = 64 << 10;

/// Most headers of such an answer. Theirs have about ten.
pub const METADATA_HEADERS: usize = 64;

/// How long Azure's first answer about events may take: it says that switching them on takes up to two minutes.
pub const FIRST_EVENTS_DEADLINE: Duration = Duration::from_secs(130);

/// How long an answer is waited for when it is not known whether there is a service: most machines have none.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// How long a token of AWS's metadata service is to hold: the longest that it grants.
pub const TOKEN_TTL: Duration = Duration::from_secs(6 * 3_600);

/// A token is replaced so long before it runs out, or at half its life if that is shorter.
pub const TOKEN_MARGIN: Duration = Duration::from_secs(600);

const _: () = assert!(METADATA_BYTES >= 8 << 10);
const _: () = assert!(TOKEN_MARGIN.as_secs() * 2 < TOKEN_TTL.as_secs());
