//! Bounds of enrolments and invitations.

use std::time::Duration;

use crate::quic::Room;
use crate::quic::limits::{FAIR_TIME, STRANGER_WINDOW_BYTES};
use crate::trust::limits::{CERTIFICATE_BYTES, CERTIFICATE_VALIDITY, CLOCK_SLACK, SIGNING_REQUEST_BYTES};

/// Longest message of an enrolment: an invitation of about a hundred bytes or a certificate that has run out, and a signing request; or a
/// certificate.
pub const ENROL_FRAME_BYTES: usize = 8 << 10;

/// How long an enrolment may take once the connection is there: two messages, and a write to a disk in between. A stranger that
/// takes longer is turned away.
pub const ENROL_DEADLINE: Duration = Duration::from_secs(5);

/// Most enrolments under way, each of which costs at most [`STRANGER_WINDOW_BYTES`]. With so many, the oldest of the sender that has the
/// most is told to come again; or else the newcomer, if none has been there for long.
pub const MAX_ENROLMENTS: usize = 128;

/// The same as places.
pub(crate) const ENROLMENTS: Room = Room {
    most: MAX_ENROLMENTS,
    each: MAX_ENROLMENTS,
    fair_time: FAIR_TIME,
    leaving: MAX_ENROLMENTS,
};

/// How long a process that wants to enrol looks for the coordinator before giving up: as long as a worker does.
pub const ENROL_PATIENCE: Duration = Duration::from_secs(15);

/// Between two attempts.
pub const ENROL_AGAIN: Duration = Duration::from_millis(200);

/// How long after its end a worker's certificate is renewed. Longer than a worker looks for a coordinator that is
/// away: a worker whose host was suspended does not know for how long. After it the worker enrols anew, or its agent starts another.
pub const WORKER_RENEWED_WITHIN: Duration = Duration::from_secs(2 * 60 * 60);

/// The same for agents and checkpoint actors, which stay on their hosts however long a coordinator is away: what breaks before a
/// weekend or a few days off is back by then. After it they need a join file.
pub const HOST_RENEWED_WITHIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A worker that is gone is remembered for as long as a certificate of its could be renewed.
pub const GONE_KEPT: Duration =
    Duration::from_secs(CERTIFICATE_VALIDITY.as_secs() + WORKER_RENEWED_WITHIN.as_secs() + CLOCK_SLACK.as_secs());

/// Most workers that are remembered as gone: one lost each quarter of a second for hours. Beyond it the longest gone are forgotten,
/// and no certificate is renewed any more that is as old as they are.
pub const MAX_GONE: usize = 65_536;

/// Most uses of one invitation: more hosts than a job can have.
pub const MAX_USES: u32 = 100_000;

/// Most uses, of all invitations, whose keys are remembered; a further one is refused until some have expired. Each costs about 30 bytes
/// of memory.
pub const MAX_KEYS: usize = 131_072;

/// Longest life of an invitation: until then its uses must be remembered, and others can use it if it is lost.
pub const MAX_INVITATION_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Most invitations whose uses are remembered; the use of another one is refused until some have expired. Each costs about a
/// hundred bytes.
pub const MAX_INVITATIONS: usize = 4_096;

/// The file of uses is written anew once it has this many lines more than needed.
pub const SPARE_USE_LINES: usize = 4_096;

/// Longest file of uses that is read.
pub const USES_FILE_BYTES: u64 = 32 << 20;

/// Most addresses in a join file.
pub const MAX_ADDRESSES: usize = 16;

/// Most files of a keyring that are looked at for some that are not needed any more.
pub const SWEPT_FILES: usize = 1_024;

/// Most processes of one user that have one join file at a time.
pub const MAX_SLOTS: u32 = 64;

/// Bytes of a line in the file of uses: two digits for each byte of nonce, key and hash, three numbers, and what separates them.
const USE_LINE_BYTES: usize = 32 + 32 + 64 + 20 + 20 + 10 + 6;

const _: () = assert!(ENROL_FRAME_BYTES > SIGNING_REQUEST_BYTES + CERTIFICATE_BYTES + 512);
const _: () = assert!(ENROL_FRAME_BYTES < STRANGER_WINDOW_BYTES as usize);
const _: () = assert!(USES_FILE_BYTES as usize > (MAX_KEYS + MAX_INVITATIONS + SPARE_USE_LINES) * USE_LINE_BYTES);
const _: () = assert!(MAX_KEYS > MAX_USES as usize);
const _: () = assert!(HOST_RENEWED_WITHIN.as_secs() > WORKER_RENEWED_WITHIN.as_secs());
