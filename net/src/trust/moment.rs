//! Moments on a clock that two hosts may compare, roughly.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use x509_parser::time::ASN1Time;

/// A moment, in whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The moment so many seconds after the start of 1970.
    #[must_use]
    pub const fn new(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The second that `time` is in; the first one for times before 1970.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// Seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0)
            .ok()
            .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
        match time {
            Some(time) => write!(f, "{time}"),
            None => write!(f, "second {} since 1970", self.0),
        }
    }
}
