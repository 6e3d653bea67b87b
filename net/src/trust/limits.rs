//! For how long certificates hold, when they are renewed, and how large what is read may be.

use std::time::Duration;

/// For how long a peer's certificate is valid: none is revoked, so what a stolen one is good for ends with this. It is as short as it
/// can be if it is to outlive the longest absence of a coordinator that workers wait for; see [`LEAST_LEFT`]. One that has run out is
/// refused at the next connection, and its holder has it renewed; connections that exist go on.
pub const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(2 * 60 * 60);

/// A certificate is valid this long before it was made, and after it should have been renewed: clocks of hosts that serve one job
/// may differ by so much. A peer whose clock is further off refuses it as not valid now.
pub const CLOCK_SLACK: Duration = Duration::from_secs(20 * 60);

/// A certificate is renewed after this part of its life, in hundredths: early, since a coordinator may be away for what is left of it
/// then.
pub const RENEW_FROM_PERCENT: u32 = 15;

/// At most so many hundredths later, by the holder's id: processes that started together do not all ask together.
pub const RENEW_SPREAD_PERCENT: u32 = 10;

/// An unanswered request for renewal is made again after this part of the certificate's life.
pub const RENEW_AGAIN_PERCENT: u32 = 5;

/// What is left at least of a certificate whose holder has had its coordinator until now: it asked for its renewal in time, and at most
/// one request was lost.
pub const LEAST_LEFT: Duration = Duration::from_secs(
    CERTIFICATE_VALIDITY.as_secs() * (100 - RENEW_FROM_PERCENT - RENEW_SPREAD_PERCENT - RENEW_AGAIN_PERCENT) as u64 / 100,
);

/// For how long the authority's own certificate is valid: longer than any job runs, since a new one would have to reach every holder
/// of a join file.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Largest signing request that is looked at: one for a P-256 key has about 200 bytes.
pub const SIGNING_REQUEST_BYTES: usize = 1_024;

/// Largest certificate that is looked at: ours have about 600 bytes.
pub const CERTIFICATE_BYTES: usize = 4_096;

/// Largest private file that is read: a join file and an authority have a few kilobytes.
pub const PRIVATE_FILE_BYTES: u64 = 64 << 10;

const _: () = assert!(RENEW_FROM_PERCENT + RENEW_SPREAD_PERCENT + 2 * RENEW_AGAIN_PERCENT < 100);
const _: () = assert!(AUTHORITY_VALIDITY.as_secs() > 1_000 * CERTIFICATE_VALIDITY.as_secs());
