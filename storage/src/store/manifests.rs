//! Manifests are files of their own. Committing one is a rename, and so is deleting one: what is left of it is the tombstone.
//!
//! ```text
//!             write, fsync, rename, fsync the folder               rename, fsync the folder, then cut to nothing
//! STEP-ID.new ──────────────────────────────────────▶ STEP-ID.manifest ──────────────────────────────────▶ STEP-ID.deleted
//! ```
//!
//! So there is no moment at which a manifest is neither or both, and deleting needs no room on a full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::PathBuf;

use sardana_protocol::words::Step;

use super::disk::{DiskFile, read_full, write_all};
use super::error::{CommitError, DeleteError, OpenError, ShowError, WriteError};
use super::index::{Change, Fate};
use super::limits::{KEPT_TOMBSTONES, MOST_TOMBSTONES, NAMED_PIECES, NOTED_TOGETHER};
use super::manifest::{FILE_BYTES, Manifest};
use super::names::{ManifestFile, ManifestKey, PieceHash, committed_name, deleted_name, manifest_file, unfinished_name};
use super::report::{Finding, Listed, Newest, Problem};
use super::shared::{Shared, held};
use super::state::Kept;
use crate::private::PrivateError;

/// Finds all manifests, and compares them with what the index says.
pub(super) fn load(
    shared: &Shared,
    recorded: &BTreeMap<ManifestKey, Fate>,
    findings: &mut Vec<Finding>,
) -> Result<(), OpenError> {
    let mut files = shared.disk.names(&shared.manifests)?;
    files.sort();
    let (mut committed, mut deleted) = (Vec::new(), Vec::new());
    for name in files {
        match manifest_file(&name) {
            Some(ManifestFile::Committed(key)) => committed.push(key),
            Some(ManifestFile::Deleted(key)) => deleted.push(key),
            // It is tried again at the next opening.
            Some(ManifestFile::Unfinished) => drop(shared.disk.remove(&shared.manifests.join(name))),
            None => findings.push(Finding::Stray(shared.manifests.join(name))),
        }
    }
    held(&shared.state).deleted.extend(deleted);
    let (mut gone, mut problems) = (BTreeSet::new(), Vec::new());
    for key in committed {
        let fate = recorded.get(&key).copied();
        if fate == Some(Fate::Deleted) || held(&shared.state).deleted.contains(&key) {
            delete_again(shared, key, findings);
            continue;
        }
        let problem = match shared.read_manifest(key) {
            Ok(manifest) => {
                held(&shared.state).manifests.insert(key, Kept::Present);
                if fate.is_none() {
                    adopt(shared, &manifest);
                }
                gone.append(&mut shared.gone_with(&manifest));
                shared.incomplete(&manifest)
            }
            Err(reason) => {
                let kept = Kept::Damaged(reason.clone());
                held(&shared.state).manifests.insert(key, kept);
                Some(Problem::Damaged(reason))
            }
        };
        problems.extend(problem.map(|problem| Finding::Manifest { key, problem }));
    }
    findings.extend(
        gone.into_iter()
            .map(|number| Finding::SegmentMissing(shared.segment_path(number))),
    );
    findings.append(&mut problems);
    for (&key, fate) in recorded {
        miss(shared, key, *fate, findings);
    }
    let deleted = held(&shared.state).deleted.clone();
    for key in deleted {
        if recorded.get(&key) != Some(&Fate::Deleted) {
            bury_again(shared, key);
        }
    }
    Ok(())
}

/// What the index knows of, and has no file.
fn miss(shared: &Shared, key: ManifestKey, fate: Fate, findings: &mut Vec<Finding>) {
    let mut state = held(&shared.state);
    if state.manifests.contains_key(&key) || state.deleted.contains(&key) {
        return;
    }
    match fate {
        Fate::Committed => {
            state.manifests.insert(key, Kept::Missing);
            let problem = Problem::Missing;
            findings.push(Finding::Manifest { key, problem });
        }
        Fate::Deleted => {
            state.deleted.insert(key);
            drop(state);
            // The index still knows if this fails.
            let _ = shared.disk.create(&shared.manifests.join(deleted_name(key)));
        }
    }
}

/// A manifest that was not noted as committed is perhaps not on the disk, since a sync may have failed in an earlier life. It is committed
/// anew.
fn adopt(shared: &Shared, manifest: &Manifest) {
    match shared.write_manifest(manifest) {
        Ok(()) => {
            let change = Change::Manifest(manifest.key(), Fate::Committed);
            held(&shared.state).changes.push(change);
        }
        Err(error) => {
            tracing::warn!(key = %manifest.key(), %error, "a manifest could not be written anew; it is used as it is")
        }
    }
}

/// A tombstone that was not noted is perhaps not on the disk either. What it was a manifest of may come back then, and finds this one.
fn bury_again(shared: &Shared, key: ManifestKey) {
    match shared.write_named(key, &[], &deleted_name(key)) {
        Ok(()) => held(&shared.state).changes.push(Change::Manifest(key, Fate::Deleted)),
        Err(error) => tracing::warn!(%key, %error, "a tombstone could not be written anew; it is used as it is"),
    }
}

fn delete_again(shared: &Shared, key: ManifestKey, findings: &mut Vec<Finding>) {
    let (from, to) = (
        shared.manifests.join(committed_name(key)),
        shared.manifests.join(deleted_name(key)),
    );
    let renamed = shared.disk.rename(&from, &to);
    let done = renamed.and_then(|()| shared.disk.sync_folder(&shared.manifests));
    if let Err(error) = done {
        tracing::warn!(%key, %error, "a deleted manifest that has come back could not be removed; it is not used");
    }
    held(&shared.state).deleted.insert(key);
    findings.push(Finding::Returned(key));
}

impl Shared {
    pub(super) fn committed(&self, key: ManifestKey) -> PathBuf {
        self.manifests.join(committed_name(key))
    }

    /// What the file of a manifest says, or why not.
    pub(super) fn read_manifest(&self, key: ManifestKey) -> Result<Manifest, String> {
        let path = self.committed(key);
        let system = |error| PrivateError::system(&path, error);
        let read = || -> Result<Result<Vec<u8>, u64>, PrivateError> {
            let file = self.disk.open(&path)?;
            let len = file.len().map_err(system)?;
            if len > FILE_BYTES as u64 {
                return Ok(Err(len));
            }
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            let read = read_full(&*file, &mut bytes, 0).map_err(system)?;
            bytes.truncate(read);
            Ok(Ok(bytes))
        };
        match read() {
            Ok(Ok(bytes)) => Manifest::decode(&bytes, key).map_err(|reason| format!("{}: {reason}", path.display())),
            Ok(Err(len)) => Err(format!(
                "{}: expected at most {FILE_BYTES} bytes, found {len}",
                path.display()
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What it needs and cannot be read.
    fn incomplete(&self, manifest: &Manifest) -> Option<Problem> {
        let state = held(&self.state);
        let missing = manifest.pieces().iter().filter(|piece| !state.is_readable(piece));
        Problem::incomplete(&missing.copied().collect::<Vec<_>>())
    }

    /// Segments that are gone, with pieces that it needs.
    fn gone_with(&self, manifest: &Manifest) -> BTreeSet<u64> {
        let state = held(&self.state);
        let segments = manifest.pieces().iter().filter_map(|piece| state.lost.get(piece));
        segments
            .copied()
            .filter(|number| !state.segments.contains_key(number))
            .collect()
    }

    /// What is wrong with a manifest, as far as can be seen without reading its pieces.
    fn problem(&self, key: ManifestKey, kept: Kept) -> Option<Problem> {
        match kept {
            Kept::Missing => Some(Problem::Missing),
            Kept::Damaged(reason) => Some(Problem::Damaged(reason)),
            Kept::Present => match self.read_manifest(key) {
                Ok(manifest) => self.incomplete(&manifest),
                // It was deleted meanwhile, or has become damaged.
                Err(reason) => Some(Problem::Damaged(reason)),
            },
        }
    }

    fn kept(&self) -> Vec<(ManifestKey, Kept)> {
        let state = held(&self.state);
        state.manifests.iter().map(|(key, kept)| (*key, kept.clone())).collect()
    }

    pub(super) fn list(&self) -> Vec<Listed> {
        let listed = self.kept().into_iter().map(|(key, kept)| Listed {
            key,
            problem: self.problem(key, kept),
        });
        listed.collect()
    }

    pub(super) fn newest(&self) -> Newest {
        let mut passed_over = Vec::new();
        for (key, kept) in self.kept().into_iter().rev() {
            match self.problem(key, kept) {
                None => {
                    let key = Some(key);
                    return Newest { key, passed_over };
                }
                Some(problem) => passed_over.push((key, problem)),
            }
        }
        Newest { key: None, passed_over }
    }

    pub(super) fn show(&self, key: ManifestKey) -> Result<Manifest, ShowError> {
        let kept = held(&self.state).manifests.get(&key).cloned();
        let reason = match kept.ok_or(ShowError::NotThere { key })? {
            Kept::Missing => "its file is gone".to_owned(),
            Kept::Damaged(reason) => reason,
            Kept::Present => match self.read_manifest(key) {
                Ok(manifest) => return Ok(manifest),
                Err(reason) => reason,
            },
        };
        Err(ShowError::Damaged { key, reason })
    }

    pub(super) fn commit(&self, manifest: &Manifest) -> Result<ManifestKey, CommitError> {
        let key = manifest.key();
        if !manifest.fits() {
            let (bytes, pieces) = (manifest.bytes().len(), manifest.pieces().len());
            return Err(CommitError::TooLarge { bytes, pieces });
        }
        let _changing = held(&self.changing);
        self.writable()?;
        {
            let state = held(&self.state);
            if state.deleted.contains(&key) {
                return Err(CommitError::Deleted(key));
            }
            let missing: Vec<PieceHash> = manifest
                .pieces()
                .iter()
                .filter(|piece| !state.is_synced(piece))
                .copied()
                .collect();
            if !missing.is_empty() {
                let (count, missing) = (missing.len(), missing.into_iter().take(NAMED_PIECES).collect());
                return Err(CommitError::Incomplete { key, missing, count });
            }
        }
        self.write_manifest(manifest)?;
        let mut state = held(&self.state);
        state.manifests.insert(key, Kept::Present);
        state.changes.push(Change::Manifest(key, Fate::Committed));
        let unnoted = state.changes.len();
        drop(state);
        // A few are noted together with those of later manifests: they are found again by reading.
        if unnoted >= NOTED_TOGETHER {
            self.note();
        }
        Ok(key)
    }

    /// On the disk when this returns.
    fn write_manifest(&self, manifest: &Manifest) -> Result<(), WriteError> {
        let key = manifest.key();
        self.write_named(key, &manifest.encode(), &committed_name(key))
    }

    /// A file of this name that says `bytes`, in place of what is there: on the disk when this returns.
    fn write_named(&self, key: ManifestKey, bytes: &[u8], name: &str) -> Result<(), WriteError> {
        self.writable()?;
        let new = self.manifests.join(unfinished_name(key));
        let system = |error| PrivateError::system(&new, error);
        // A file that could not be finished.
        let _ = self.disk.remove(&new);
        let file = self.disk.create(&new).map_err(|error| self.refuse(error))?;
        let give_up = |error: PrivateError| {
            let _ = self.disk.remove(&new);
            self.refuse(error)
        };
        write_all(&*file, &mut [IoSlice::new(bytes)], 0).map_err(|error| give_up(system(error)))?;
        file.sync().map_err(|error| self.spoil(&system(error)))?;
        self.disk.rename(&new, &self.manifests.join(name)).map_err(give_up)?;
        self.sync_manifests(&*file)
    }

    /// Syncs the names, and a file after them: XFS says yes to the sync of a folder although it has shut the file system down meanwhile,
    /// and no to that of a file.
    fn sync_manifests(&self, witness: &dyn DiskFile) -> Result<(), WriteError> {
        let synced = self.disk.sync_folder(&self.manifests);
        let folder = |error| PrivateError::system(&self.manifests, error);
        let synced = synced.and_then(|()| witness.sync().map_err(folder));
        synced.map_err(|error| self.spoil(&error))
    }

    pub(super) fn delete(&self, key: ManifestKey) -> Result<(), DeleteError> {
        let _changing = held(&self.changing);
        self.writable()?;
        let kept = {
            let state = held(&self.state);
            if state.deleted.contains(&key) {
                return Ok(());
            }
            state.manifests.get(&key).cloned().ok_or(DeleteError::NotThere { key })?
        };
        let tombstone = self.manifests.join(deleted_name(key));
        let made = match kept {
            Kept::Missing => self.disk.create(&tombstone).map(drop),
            Kept::Present | Kept::Damaged(_) => self.disk.rename(&self.committed(key), &tombstone),
        };
        made.map_err(|error| self.refuse(error))?;
        let witness = self.disk.open(&tombstone).map_err(|error| self.spoil(&error))?;
        self.sync_manifests(&*witness)?;
        {
            let mut state = held(&self.state);
            state.manifests.remove(&key);
            state.deleted.insert(key);
            // It is noted with others: a tombstone that was not is found by its name.
            state.changes.push(Change::Manifest(key, Fate::Deleted));
        }
        // Its name says all.
        if let Err(error) = witness.set_len(0) {
            tracing::debug!(%key, %error, "a tombstone could not be cut");
        }
        // It is deleted in any case.
        if let Err(error) = self.forget_surplus(key) {
            tracing::warn!(%error, "old tombstones could not be removed; it is tried again with the next one");
        }
        Ok(())
    }

    pub(super) fn forget(&self, before: Step) -> Result<usize, WriteError> {
        let _changing = held(&self.changing);
        self.writable()?;
        let old: Vec<ManifestKey> = {
            let state = held(&self.state);
            state.deleted.iter().filter(|key| key.step < before).copied().collect()
        };
        self.forget_all(&old)?;
        Ok(old.len())
    }

    /// Forgets the oldest tombstones if there are too many, but never that of `newest`.
    fn forget_surplus(&self, newest: ManifestKey) -> Result<(), WriteError> {
        let old: Vec<ManifestKey> = {
            let deleted = &held(&self.state).deleted;
            let surplus = if deleted.len() > MOST_TOMBSTONES {
                deleted.len() - KEPT_TOMBSTONES
            } else {
                0
            };
            let others = deleted.iter().filter(|key| **key != newest);
            others.take(surplus).copied().collect()
        };
        self.forget_all(&old)
    }

    fn forget_all(&self, old: &[ManifestKey]) -> Result<(), WriteError> {
        for &key in old {
            // Perhaps only the index knew of it.
            self.remove(&self.manifests.join(deleted_name(key)))?;
            let mut state = held(&self.state);
            state.deleted.remove(&key);
            state.changes.push(Change::NoManifest(key));
        }
        if !old.is_empty() {
            let synced = self.disk.sync_folder(&self.manifests);
            synced.map_err(|error| self.spoil(&error))?;
            self.note();
        }
        Ok(())
    }
}
