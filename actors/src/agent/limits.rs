//! Timeouts of an agent.

use std::time::Duration;

/// How long a replacement waits after a child that ended soon after its start: doubled each time up to [`BACK_OFF_MOST`], so that a
/// program that cannot start does not spin.
pub const BACK_OFF: Duration = Duration::from_millis(100);

/// The longest such wait.
pub const BACK_OFF_MOST: Duration = Duration::from_secs(10);

/// A child that lived this long is forgiven its end: the next one starts at once.
pub const LIVED: Duration = Duration::from_secs(2);

/// How long children may take to end by themselves once the job is over.
pub const END_GRACE: Duration = Duration::from_secs(5);

/// Between two attempts to reach a coordinator that was lost. Ends of workers are reported after it at the latest.
pub const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// How long the coordinator may take to certify a child. It answers within a round trip, or refuses and says why in its log.
pub const CERTIFY_DEADLINE: Duration = Duration::from_secs(10);

/// Between two looks whether a certificate must be renewed or was waited for in vain.
pub const CERTIFICATES_EVERY: Duration = Duration::from_millis(250);

const _: () = assert!(CERTIFY_DEADLINE.as_millis() > 10 * CERTIFICATES_EVERY.as_millis());
