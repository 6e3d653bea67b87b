//! What is known of one checkpoint actor, and of those that went before they had told what they keep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checkpoint::{DepotAddress, DepotId, Head, ManifestKey};
use crate::limits::{DEPOT_REST, DEPOT_REST_MOST, DEPOTS_PATIENCE, MAX_DEPOTS};

/// A depot that is connected.
#[derive(Debug, Clone)]
pub(super) struct Depot {
    pub(super) host: String,
    pub(super) address: DepotAddress,
    /// Whether it has told all that it keeps.
    pub(super) has_told_all: bool,
    /// Whether it has not told all of it since it came.
    pub(super) is_new: bool,
    /// When it last told some of it, or came.
    pub(super) told: Duration,
    /// Whether it is not waited for any more, since it does not tell what it keeps.
    pub(super) is_silent: bool,
    pub(super) heads: BTreeMap<ManifestKey, Head>,
    /// Checkpoints of which it has only the name: they are of no use, and keep it from giving back room.
    pub(super) unreadable: BTreeSet<ManifestKey>,
    /// How often in a row it could not keep what it should, and until when it is therefore done without.
    pub(super) failures: u32,
    pub(super) rests: Duration,
}

impl Depot {
    /// Whether it has yet to tell what it keeps, and is waited for.
    pub(super) fn is_about_to_tell(&self) -> bool {
        !self.has_told_all && !self.is_silent
    }

    /// It tells this of what it keeps.
    pub(super) fn tells(&mut self, heads: Vec<Head>, unreadable: Vec<ManifestKey>, now: Duration) {
        // It begins to tell all of it once more: what it does not tell again, it has lost.
        if self.has_told_all {
            self.heads.clear();
            self.unreadable.clear();
            self.told = now;
        }
        let known = self.heads.len() + self.unreadable.len();
        self.unreadable.extend(unreadable);
        self.heads.extend(heads.into_iter().map(|head| (head.key, head)));
        // How much there can be is bounded.
        if self.heads.len() + self.unreadable.len() > known {
            self.told = now;
        }
    }

    /// It could not keep what it should: it may be full for long, and each attempt costs all holders their work.
    pub(super) fn failed(&mut self, now: Duration) {
        let rest = DEPOT_REST.saturating_mul(1 << self.failures.min(16));
        self.rests = now + rest.min(DEPOT_REST_MOST);
        self.failures = self.failures.saturating_add(1);
    }
}

/// Depots that have gone before they had told what they keep: since when they owe it, and when they went.
#[derive(Debug, Clone, Default)]
pub(super) struct Vanished(BTreeMap<DepotId, (Duration, Duration)>);

impl Vanished {
    pub(super) fn leaves(&mut self, depot: DepotId, owes_since: Duration, now: Duration) {
        self.0.retain(|_, (_, went)| now.saturating_sub(*went) < DEPOTS_PATIENCE);
        if self.0.len() < MAX_DEPOTS {
            self.0.insert(depot, (owes_since, now));
        }
    }

    /// Since when a depot that comes owes it, if it went a moment ago.
    pub(super) fn returns(&mut self, depot: DepotId, now: Duration) -> Option<Duration> {
        let (owes_since, went) = self.0.remove(&depot)?;
        (now.saturating_sub(went) < DEPOTS_PATIENCE).then_some(owes_since)
    }
}

/// All depots that are connected.
pub(super) type Depots = BTreeMap<DepotId, Depot>;
