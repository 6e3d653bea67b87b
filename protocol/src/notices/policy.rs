//! Which notices are heeded, and how often a cloud is asked.

use std::time::Duration;

use super::{Cloud, Heed, Notice, Weight, timely};
use crate::limits::{
    LOOK_BACK_OFF_MOST, LOOK_DEADLINE, LOOK_EVERY_AWS, LOOK_EVERY_AZURE, LOOK_EVERY_GCE, LOOK_HANGS, WITHDRAWN_AFTER,
};

/// Which notices let the workers leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heeded {
    /// Notices after which the machine or its memory is gone.
    #[default]
    Leaves,
    /// Also notices that only warn.
    All,
}

/// How often a cloud is asked. Tests go faster than [`Pace::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two looks.
    pub look_every: Duration,
    /// How long a look may wait at the service, where it can.
    pub hang: Duration,
    /// How long the service may take to answer.
    pub answer_within: Duration,
    /// The longest wait after looks that failed.
    pub back_off_most: Duration,
    /// For so long no notice may stand before workers come back.
    pub withdrawn_after: Duration,
}

impl Pace {
    /// As its documentation wants it.
    #[must_use]
    pub const fn of(cloud: Cloud) -> Self {
        Self {
            look_every: match cloud {
                Cloud::Aws => LOOK_EVERY_AWS,
                Cloud::Gce => LOOK_EVERY_GCE,
                Cloud::Azure => LOOK_EVERY_AZURE,
            },
            hang: LOOK_HANGS,
            answer_within: LOOK_DEADLINE,
            back_off_most: LOOK_BACK_OFF_MOST,
            withdrawn_after: WITHDRAWN_AFTER,
        }
    }

    /// How long to wait after so many looks in a row that failed.
    pub(super) fn back_off(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(10);
        (self.look_every * 2_u32.pow(doublings)).min(self.back_off_most.max(self.look_every))
    }
}

/// What the machine goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which notices let the workers leave.
    pub heeded: Heeded,
    /// How often the cloud is asked.
    pub pace: Pace,
}

impl Policy {
    pub(super) fn heed(&self, notice: &Notice, now: super::UtcTime) -> Heed {
        match (notice.what.weight(), self.heeded) {
            (Weight::Warns, Heeded::Leaves) => Heed::Warns,
            (Weight::Leaves, Heeded::Leaves | Heeded::All) | (Weight::Warns, Heeded::All) => timely(notice.due, now),
        }
    }
}
