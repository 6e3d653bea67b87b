//! For how long certificates hold.

use std::time::Duration;

/// A certificate is valid this long before it was made: clocks of hosts that serve one job may differ by so much, and a peer
/// whose clock is further behind refuses the certificate as not yet valid.
pub const CLOCK_SLACK: Duration = Duration::from_secs(60 * 60);

/// For how long a peer's certificate is valid: longer than a job runs, since certificates are not renewed. One that has run
/// out is refused at the next connection; connections that exist go on.
pub const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// For how long the authority's own certificate is valid. The authority lives in one process's memory and ends with it, so
/// this only has to outlast every certificate it may issue.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const _: () = assert!(CERTIFICATE_VALIDITY.as_secs() > 24 * CLOCK_SLACK.as_secs());
const _: () = assert!(AUTHORITY_VALIDITY.as_secs() > 10 * CERTIFICATE_VALIDITY.as_secs());
