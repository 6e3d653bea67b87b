//! Moments of the world's clock: clouds announce by it. It may jump, so nothing but notices is measured with it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, in whole milliseconds since the start of 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcTime(u64);

impl UtcTime {
    /// The moment so many seconds after the start of 1970; the last one that can be written down if there are more.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// The moment that the system's clock showed; the first one for times before 1970.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// The moment so much later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; nothing if it is yet to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for UtcTime {
    /// The time of day: `08:22:00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000 % 86_400;
        write!(f, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }
}
