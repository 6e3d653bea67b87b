//! Bounds of enrolments and invitations.

use std::time::Duration;

use crate::quic::Room;
use crate::quic::limits::{FAIR_TIME, STRANGER_WINDOW_BYTES};
use crate::trust::limits::{CERTIFICATE_BYTES, SIGNING_REQUEST_BYTES};

/// Longest message of an enrolment: an invitation of about a hundred bytes and a signing request, or a certificate.
pub const ENROL_FRAME_BYTES: usize = 8 << 10;

/// How long an enrolment may take once the connection is there: two messages, and a write to a disk in between. A stranger that
/// takes longer is turned away.
pub const ENROL_DEADLINE: Duration = Duration::from_secs(5);

/// Most enrolments under way, each of which costs at most [`STRANGER_WINDOW_BYTES`]. With so many, the oldest of the sender that has the
/// most is told to come again; or else the newcomer, if nobody has been there for long.
pub const MAX_ENROLMENTS: usize = 128;

/// The same as places.
pub(crate) const ENROLMENTS: Room = Room {
    most: MAX_ENROLMENTS,
    each: MAX_ENROLMENTS,
    fair_time: FAIR_TIME,
    leaving: MAX_ENROLMENTS,
};

/// How long somebody who wants to enrol looks for the coordinator before giving up: as long as a worker does.
pub const ENROL_PATIENCE: Duration = Duration::from_secs(15);

/// Between two attempts.
pub const ENROL_AGAIN: Duration = Duration::from_millis(200);

/// Most uses of one invitation: more hosts than a job can have.
pub const MAX_USES: u32 = 100_000;

/// Longest life of an invitation: until then its uses must be remembered, and a lost one is good for somebody else.
pub const MAX_INVITATION_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Most invitations whose uses are remembered; the use of another one is refused until some have expired. Each costs about a
/// hundred bytes.
pub const MAX_INVITATIONS: usize = 4_096;

/// The file of uses is written anew once it has this many lines more than needed.
pub const SPARE_USE_LINES: usize = 4_096;

/// Longest file of uses that is read.
pub const USES_FILE_BYTES: u64 = 4 << 20;

/// Most addresses in a join file.
pub const MAX_ADDRESSES: usize = 16;

/// Bytes of a line in the file of uses: two digits for each byte of nonce and hash, three numbers, and what separates them.
const USE_LINE_BYTES: usize = 32 + 64 + 20 + 20 + 10 + 5;

const _: () = assert!(ENROL_FRAME_BYTES > SIGNING_REQUEST_BYTES + 512 && ENROL_FRAME_BYTES > CERTIFICATE_BYTES + 64);
const _: () = assert!(ENROL_FRAME_BYTES < STRANGER_WINDOW_BYTES as usize);
const _: () = assert!(USES_FILE_BYTES as usize > (MAX_INVITATIONS + SPARE_USE_LINES) * USE_LINE_BYTES);
