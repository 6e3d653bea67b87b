//! Old checkpoints go, and what only they needed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_protocol::checkpoint::{Keep, Manifest, ManifestKey, PieceHash};
use sardana_storage::store::{CollectError, Collected, DeleteError};

use super::directory::{Checkpoints, Directory};
use super::find::short;
use super::list::{Completeness, Entry};

/// Why checkpoints were not deleted, or not all.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The newest complete checkpoint is not deleted: a job that begins again would have nothing to go on from.
    #[error("{} is the newest complete checkpoint and is never deleted; remove the whole directory if it is not needed", short(*.0))]
    Newest(ManifestKey),
    /// This may be the newest complete checkpoint, or on no host whole: the other hosts know.
    #[error(
        "expected to know whether {} is the newest complete checkpoint, which is never deleted, but some of its pieces are on other \
         hosts; name their directories with --also", short(*.0)
    )]
    Unclear(ManifestKey),
    /// What another checkpoint needs is not known: nothing was changed.
    #[error(
        "expected to read which pieces checkpoint {} needs, before anything is deleted: {reason}; copy it here again from another \
         directory (sardana checkpoints copy), or delete it too (--delete {})", short(*.key), .key.id
    )]
    Unreadable {
        /// The checkpoint.
        key: ManifestKey,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint could not be deleted.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// All were deleted, but their room is not all free yet.
    #[error("the checkpoints are deleted, but their room is not all free: {0}")]
    Collect(#[from] CollectError),
}

/// The checkpoints that would be deleted.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// These checkpoints, the oldest first.
    pub delete: Vec<ManifestKey>,
    /// Bytes on this disk that nothing else needs.
    pub bytes: u64,
    /// Checkpoints that are not complete, and why. They are left alone unless they are named.
    pub incomplete: Vec<(ManifestKey, String)>,
}

/// The checkpoints that were deleted.
#[derive(Debug, Clone, Default)]
pub struct Pruned {
    /// Checkpoints that were deleted.
    pub deleted: Vec<ManifestKey>,
    /// What the collection did.
    pub collected: Collected,
}

/// A checkpoint with pieces on other hosts is not: those may never have had it, since a job died while it was committed.
fn is_complete(entry: &Entry) -> bool {
    entry.completeness == Completeness::Whole
}

impl Checkpoints {
    /// What [`Checkpoints::prune`] would delete: the checkpoints that are complete over the directories given and that `keep` does not keep; if
    /// there is a `keep`, also what is left of those that were deleted in another directory; and those that are `named`. The newest is read
    /// for it, and if it is damaged the one before it: the checkpoint that a job would go on from must be whole when the others go.
    ///
    /// # Errors
    /// [`PruneError::Newest`], [`PruneError::Unclear`] and [`PruneError::Unreadable`].
    pub fn prunable(&self, keep: Option<Keep>, named: &[ManifestKey]) -> Result<Pruning, PruneError> {
        let entries = self.judged();
        let complete: Vec<ManifestKey> = entries
            .iter()
            .filter(|entry| is_complete(entry))
            .map(|entry| entry.key)
            .collect();
        if let Some(&key) = complete.last().filter(|newest| named.contains(newest)) {
            return Err(PruneError::Newest(key));
        }
        let usable = entries
            .iter()
            .rfind(|entry| !matches!(entry.completeness, Completeness::Harmed(_)));
        if let Some(&Entry { key, .. }) = usable.filter(|newest| named.contains(&newest.key)) {
            return Err(PruneError::Unclear(key));
        }
        let expired = keep.map(|keep| keep.expired(|key: ManifestKey| key.step, &complete));
        let gone = entries.iter().filter(|entry| keep.is_some() && self.is_gone(entry));
        let delete = expired.into_iter().flatten().chain(named.iter().copied());
        let delete: BTreeSet<ManifestKey> = delete.chain(gone.map(|entry| entry.key)).collect();
        let mut incomplete = Vec::new();
        for entry in entries.iter().filter(|entry| !delete.contains(&entry.key)) {
            if is_complete(entry) {
                continue;
            }
            let (key, reason) = (entry.key, entry.completeness.to_string());
            if entry.manifest.is_none() && !delete.is_empty() {
                return Err(PruneError::Unreadable { key, reason });
            }
            incomplete.push((key, reason));
        }
        Ok(Pruning {
            bytes: self.bytes_of_only(&entries, &delete),
            delete: delete.into_iter().collect(),
            incomplete,
        })
    }

    /// All checkpoints, of which the newest that counts as complete is so to the last byte.
    fn judged(&self) -> Vec<Entry> {
        let mut entries = self.list().entries;
        for entry in &mut entries {
            let reason = match entry.completeness {
                Completeness::Whole => self.borrowed(entry),
                Completeness::Spread { elsewhere } => self.nowhere(entry, elsewhere),
                Completeness::Harmed(_) => None,
            };
            if let Some(reason) = reason {
                entry.completeness = Completeness::Harmed(reason);
            }
        }
        for entry in entries.iter_mut().rev().filter(|entry| is_complete(entry)) {
            match self.damaged(entry) {
                0 => break,
                damaged => {
                    let reason = format!("{damaged} of its pieces cannot be read; sardana checkpoints verify says more");
                    entry.completeness = Completeness::Harmed(reason);
                }
            }
        }
        entries
    }

    /// Why it is not complete, if some of its pieces are only in directories that do not have this checkpoint.
    fn borrowed(&self, entry: &Entry) -> Option<String> {
        let has_it = |directory: &&Directory| directory.store().show(entry.key).is_ok();
        let keepers: Vec<&Directory> = self.directories().filter(has_it).collect();
        let kept = |piece: &PieceHash| keepers.iter().any(|keeper| keeper.store().length_of(*piece).is_some());
        let needs: BTreeSet<PieceHash> = entry.manifest.iter().flat_map(Manifest::needs).collect();
        let borrowed = needs.iter().filter(|piece| !kept(piece)).count();
        (borrowed > 0).then(|| {
            format!(
                "{borrowed} of its pieces are only in directories that do not have this checkpoint: it was never committed there, or \
                 deleted"
            )
        })
    }

    /// Why it is not complete, if the directories of all its hosts are given, and some pieces are in none.
    fn nowhere(&self, entry: &Entry, lacking: usize) -> Option<String> {
        let given: Vec<_> = self.directories().filter_map(|directory| directory.depot().ok()).collect();
        let depots = &entry.manifest.as_ref()?.depots;
        let all = depots.iter().all(|depot| given.contains(depot));
        all.then(|| format!("{lacking} of its pieces are in none of the directories of its hosts"))
    }

    /// Whether what is here is a remainder: it was deleted in another directory.
    fn is_gone(&self, entry: &Entry) -> bool {
        let deleted = |directory: &Directory| directory.store().is_deleted(entry.key);
        !is_complete(entry) && entry.manifest.is_some() && self.directories().any(deleted)
    }

    /// How many of its pieces no directory can give.
    fn damaged(&self, entry: &Entry) -> usize {
        let damaged = AtomicUsize::new(0);
        let needs: BTreeSet<PieceHash> = entry.manifest.iter().flat_map(Manifest::needs).collect();
        let needs: Vec<PieceHash> = needs.into_iter().collect();
        self.main().store().read_many(&needs, |number, read| {
            let lost = read.is_err() && self.fetch(needs[number]).is_err();
            damaged.fetch_add(usize::from(lost), Ordering::Relaxed);
        });
        damaged.into_inner()
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
    /// When a checkpoint cannot be deleted: those before it are. Or when the room cannot be given back.
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
