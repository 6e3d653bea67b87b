//! Old checkpoints go, and what only they needed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_actors::store::{CollectError, Collected, DeleteError};
use sardana_protocol::checkpoint::{Keep, Manifest, ManifestKey, PieceHash};

use super::directory::Checkpoints;
use super::find::short;
use super::list::{Entry, Standing};

/// Why checkpoints were not deleted, or not all.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The newest complete one is not deleted: a job that begins again would have nothing to go on from.
    #[error("{} is the newest complete checkpoint and is never deleted; remove the whole directory if it is not needed", short(*.key))]
    Newest {
        /// Which.
        key: ManifestKey,
    },
    /// What another one needs is not known: nothing was changed.
    #[error(
        "expected to read which pieces checkpoint {} needs, before anything is deleted: {reason}; copy it here again from another \
         directory (sardana checkpoints copy), or delete it too (--delete {})", short(*.key), .key.id
    )]
    Unreadable {
        /// Which.
        key: ManifestKey,
        /// What is wrong with it.
        reason: String,
    },
    /// One could not be deleted.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// All were deleted, but their room is not all free yet.
    #[error("the checkpoints are deleted, but their room is not all free: {0}")]
    Collect(#[from] CollectError),
}

/// What would be deleted.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// Which, the oldest first.
    pub delete: Vec<ManifestKey>,
    /// Bytes on this disk that nothing else needs.
    pub bytes: u64,
    /// Those that are not complete, and why. They are left alone unless they are named.
    pub incomplete: Vec<(ManifestKey, String)>,
}

/// What was deleted.
#[derive(Debug, Clone, Default)]
pub struct Pruned {
    /// Which.
    pub deleted: Vec<ManifestKey>,
    /// What the collection did.
    pub collected: Collected,
}

fn is_complete(entry: &Entry) -> bool {
    match entry.standing {
        Standing::Whole | Standing::Spread { .. } => true,
        Standing::Harmed { .. } => false,
    }
}

impl Checkpoints {
    /// What [`Checkpoints::prune`] would delete: the complete ones that `keep` does not keep, and those that are `named`. The newest is read
    /// for it, and if it is damaged the one before it: what everybody would go on from must be whole when the others go.
    ///
    /// # Errors
    /// [`PruneError::Newest`] and [`PruneError::Unreadable`].
    pub fn prunable(&self, keep: Option<Keep>, named: &[ManifestKey]) -> Result<Pruning, PruneError> {
        let entries = self.judged();
        let complete: Vec<ManifestKey> = entries
            .iter()
            .filter(|entry| is_complete(entry))
            .map(|entry| entry.key)
            .collect();
        if let Some(&key) = complete.last().filter(|newest| named.contains(newest)) {
            return Err(PruneError::Newest { key });
        }
        let expired = keep.map(|keep| keep.expired(|key: ManifestKey| key.step, &complete));
        let delete: BTreeSet<ManifestKey> = expired.into_iter().flatten().chain(named.iter().copied()).collect();
        let mut incomplete = Vec::new();
        for entry in entries.iter().filter(|entry| !delete.contains(&entry.key)) {
            let Standing::Harmed { reason } = &entry.standing else {
                continue;
            };
            if entry.manifest.is_none() && !delete.is_empty() {
                let (key, reason) = (entry.key, reason.clone());
                return Err(PruneError::Unreadable { key, reason });
            }
            incomplete.push((entry.key, reason.clone()));
        }
        Ok(Pruning {
            bytes: self.bytes_of_only(&entries, &delete),
            delete: delete.into_iter().collect(),
            incomplete,
        })
    }

    /// All checkpoints, of which the newest that counts as complete is so to the last byte.
    fn judged(&self) -> Vec<Entry> {
        let store = self.main().store();
        let mut entries = self.list().entries;
        for entry in entries.iter_mut().rev().filter(|entry| is_complete(entry)) {
            let damaged = AtomicUsize::new(0);
            if let Ok(stored) = store.show(entry.key) {
                store.read_many(stored.pieces(), |_, read| {
                    damaged.fetch_add(usize::from(read.is_err()), Ordering::Relaxed);
                });
            }
            match damaged.into_inner() {
                0 => break,
                damaged => {
                    let reason = format!("{damaged} of its pieces cannot be read; sardana checkpoints verify says more");
                    entry.standing = Standing::Harmed { reason };
                }
            }
        }
        entries
    }

    /// Bytes on this disk that these need, and no others.
    fn bytes_of_only(&self, entries: &[Entry], delete: &BTreeSet<ManifestKey>) -> u64 {
        let needs = |wanted: bool| -> BTreeSet<PieceHash> {
            let those = entries.iter().filter(|entry| delete.contains(&entry.key) == wanted);
            those
                .filter_map(|entry| entry.manifest.as_ref())
                .flat_map(Manifest::needs)
                .collect()
        };
        let only = &needs(true) - &needs(false);
        let lengths = only.iter().filter_map(|&piece| self.main().store().length_of(piece));
        lengths.map(u64::from).sum()
    }

    /// Deletes these checkpoints for good, and gives their room back.
    ///
    /// # Errors
    /// When one cannot be deleted: those before it are. Or when the room cannot be given back.
    pub fn prune(&self, delete: &[ManifestKey]) -> Result<Pruned, PruneError> {
        let store = self.main().store();
        let mut pruned = Pruned::default();
        for &key in delete {
            store.delete(key)?;
            pruned.deleted.push(key);
        }
        // Without one, too: what an earlier call could not free is freed now.
        pruned.collected = store.collect()?;
        Ok(pruned)
    }
}
