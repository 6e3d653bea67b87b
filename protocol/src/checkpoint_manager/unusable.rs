//! Why checkpoints that there are cannot be resumed from, in words: each reason says what is missing, and where.

use std::collections::{BTreeMap, BTreeSet};

use super::depot::Depot;
use super::{CheckpointManager, Facts};
use crate::checkpoint::{Head, ManifestKey};

/// So many checkpoint actors are named that keep a checkpoint which cannot be used: enough to find it.
const KEEPERS_NAMED: usize = 2;

impl CheckpointManager {
    /// Why a checkpoint was not taken, though it is newer than the one that was.
    fn why_not(&self, key: ManifestKey, head: &Head) -> String {
        let failure = self.restoring.failures.get(&key).map(|failure| failure.reason.clone());
        let lacks = || {
            format!(
                "{} of the {} checkpoint actors that have its pieces are missing, or have lost some",
                self.lacks_of(key, head),
                head.depots.len()
            )
        };
        self.worth(key, head).err().or(failure).unwrap_or_else(lacks)
    }

    /// Checkpoints of which there are only names.
    pub(super) fn unreadable(&self) -> BTreeSet<ManifestKey> {
        let known = self.known();
        let all = self.depots.values().flat_map(|depot| &depot.unreadable);
        all.filter(|key| !known.contains_key(key)).copied().collect()
    }

    /// All checkpoints, and for each why it would not be taken.
    pub(super) fn unused(&self) -> BTreeMap<ManifestKey, String> {
        let known = self.known().into_iter();
        let known = known.map(|(key, head)| (key, self.why_not(key, head)));
        let why = || "its manifest cannot be read where it is kept, as its checkpoint actor says".to_owned();
        let unreadable = self.unreadable().into_iter().map(|key| (key, why()));
        known.chain(unreadable).collect()
    }

    /// The checkpoints that say that the job must not begin from nothing, and why each cannot be used.
    pub(super) fn against_beginning(&self, facts: &Facts) -> BTreeMap<ManifestKey, String> {
        let mut against = self.unused();
        if facts.begun {
            // What others have left there is known. What cannot be read may be what an earlier life of the coordinator has committed.
            let unread = self.unreadable();
            let may_be_ours = facts.formed.count() == 0;
            against.retain(|key, _| may_be_ours && unread.contains(key));
        }
        against
    }

    /// Where a checkpoint is kept, in words.
    pub(super) fn where_it_is(&self, key: ManifestKey) -> String {
        let has = |depot: &Depot| depot.heads.contains_key(&key) || depot.unreadable.contains(&key);
        let keepers = self.depots.iter().filter(|(_, depot)| has(depot));
        let named: Vec<String> = keepers
            .take(KEEPERS_NAMED)
            .map(|(id, depot)| format!("the checkpoint actor {id} on {}", depot.host))
            .collect();
        if named.is_empty() {
            return "where no checkpoint actor has it now".to_owned();
        }
        format!("kept by {}", named.join(" and "))
    }
}
