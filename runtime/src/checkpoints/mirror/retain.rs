//! Old checkpoints of a mirror go: first the manifest, then the objects that no other one names.

use std::collections::BTreeSet;

use sardana_protocol::checkpoint::{Keep, ManifestKey};
use sardana_protocol::job::Task;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::super::list::Completeness;
use super::super::prune::Pruning;
use super::Mirror;
use super::error::RetainError;
use super::fetch::Outline;
use super::lanes::several;
use super::limits::{DELETING, PRUNING_MOST, PRUNING_SURE};
use super::marks::Work;
use super::objects::{is_pack, manifest_object, pack_object};
use super::survey::{Survey, Surveyed};

/// Which checkpoints are to go.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    /// Of each job, the checkpoints that this does not keep.
    pub keep: Option<Keep>,
    /// Of this job only (the hash of its task), if it says so: others in the same place are left alone.
    pub only: Option<Task>,
    /// These checkpoints in any case.
    pub named: Vec<ManifestKey>,
}

/// How much was deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    /// Checkpoints.
    pub deleted: Vec<ManifestKey>,
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why no objects were deleted, if so: what this checkpoint needs is not known.
    pub unreadable: Option<(ManifestKey, String)>,
}

impl Mirror {
    /// What [`Mirror::prune`] would delete.
    ///
    /// # Errors
    /// See [`RetainError`].
    pub async fn prunable(&self, expiry: &Expiry) -> Result<Pruning, RetainError> {
        plan(&self.survey().await?, expiry)
    }

    /// Deletes checkpoints for good, and all objects that none of the others names. Not while another process copies one there.
    ///
    /// # Errors
    /// See [`RetainError`].
    pub async fn prune(&self, expiry: &Expiry) -> Result<Freed, RetainError> {
        let (made, last_made) = watch::channel(Instant::now());
        if let Some(mark) = self.mark(Work::Pruning).await? {
            self.unmark(Work::Pruning).await;
            return Err(RetainError::Busy(mark));
        }
        let pruning = async {
            tokio::select! {
                biased;
                pruned = self.prune_marked(expiry, &last_made) => pruned,
                error = self.stay_marked(Work::Pruning, &made) => Err(error.into()),
            }
        };
        let pruned = timeout(PRUNING_MOST, pruning).await;
        self.unmark(Work::Pruning).await;
        pruned.unwrap_or(Err(RetainError::Slow))
    }

    async fn prune_marked(&self, expiry: &Expiry, marked: &watch::Receiver<Instant>) -> Result<Freed, RetainError> {
        let survey = self.survey().await?;
        let pruning = plan(&survey, expiry)?;
        let mut freed = Freed::default();
        for &key in &pruning.delete {
            self.delete_marked(&manifest_object(key), marked).await?;
            freed.deleted.push(key);
        }
        let left = |one: &&Surveyed| !pruning.delete.contains(&one.key);
        for one in survey.checkpoints.iter().filter(left) {
            if let Err(reason) = &one.outline {
                freed.unreadable = Some((one.key, reason.clone()));
                return Ok(freed);
            }
        }
        let waste = waste(&survey, &pruning.delete.iter().copied().collect());
        let deleting = |(name, bytes): (String, u64)| {
            let (mirror, marked) = (self.clone(), marked.clone());
            async move { mirror.delete_marked(&pack_object(&name), &marked).await.map(|()| bytes) }
        };
        let deleted = several(self.lanes, waste, deleting, |bytes| {
            freed.objects += 1;
            freed.bytes += bytes;
        });
        deleted.await?;
        Ok(freed)
    }

    /// Deletes an object, as long as others are certain to believe the mark that was made last.
    async fn delete_marked(&self, object: &str, marked: &watch::Receiver<Instant>) -> Result<(), RetainError> {
        let late = || RetainError::Late(self.bucket.name_of(object));
        if marked.borrow().elapsed() > PRUNING_SURE {
            return Err(late());
        }
        let deleted = timeout(DELETING, self.bucket.delete(object)).await;
        Ok(deleted.map_err(|_| late())??)
    }
}

fn plan(survey: &Survey, expiry: &Expiry) -> Result<Pruning, RetainError> {
    let whole = |one: &&Surveyed| one.completeness() == Completeness::Whole;
    let complete: Vec<&Surveyed> = survey.checkpoints.iter().filter(whole).collect();
    if let Some(newest) = complete.last().filter(|one| expiry.named.contains(&one.key)) {
        return Err(RetainError::Newest(newest.key));
    }
    let mut delete: BTreeSet<ManifestKey> = expiry.named.iter().copied().collect();
    let tasks: BTreeSet<_> = complete.iter().filter_map(|one| task_of(one)).collect();
    for task in tasks.into_iter().filter(|task| expiry.only.is_none_or(|only| only == *task)) {
        let own: Vec<&Surveyed> = complete.iter().copied().filter(|one| task_of(one) == Some(task)).collect();
        let Some(keep) = expiry.keep else { continue };
        // A checkpoint that was placed anew is there under two names: the last one counts.
        let twice = own.windows(2).filter(|two| same_state(two[0], two[1])).map(|two| two[0].key);
        let twice: BTreeSet<ManifestKey> = twice.collect();
        let keys: Vec<ManifestKey> = own.iter().map(|one| one.key).filter(|key| !twice.contains(key)).collect();
        delete.extend(keep.expired(|key: ManifestKey| key.step, &keys));
        delete.extend(twice);
    }
    let incomplete = survey.checkpoints.iter().filter(|one| !delete.contains(&one.key));
    let incomplete = incomplete.filter_map(|one| match one.completeness() {
        Completeness::Whole | Completeness::Spread { .. } => None,
        Completeness::Harmed(reason) => Some((one.key, reason)),
    });
    Ok(Pruning {
        incomplete: incomplete.collect(),
        bytes: waste(survey, &delete).iter().map(|(_, bytes)| bytes).sum(),
        delete: delete.into_iter().collect(),
    })
}

fn task_of(one: &Surveyed) -> Option<Task> {
    one.outline.as_ref().ok().map(|outline| outline.manifest.identity.task())
}

fn same_state(one: &Surveyed, other: &Surveyed) -> bool {
    let (Ok(one), Ok(other)) = (&one.outline, &other.outline) else {
        return false;
    };
    let [one, other] = [one, other].map(|outline| &outline.manifest);
    one.step() == other.step() && one.needs().eq(other.needs())
}

/// The objects of pieces that no checkpoint that stays names, and how long they are.
fn waste(survey: &Survey, delete: &BTreeSet<ManifestKey>) -> Vec<(String, u64)> {
    let stay = survey.checkpoints.iter().filter(|one| !delete.contains(&one.key));
    let outlines = stay.filter_map(|one| one.outline.as_ref().ok());
    let needed: BTreeSet<String> = outlines.flat_map(Outline::objects).map(|(name, _)| name).collect();
    let there = survey.there.iter().map(|(name, bytes)| (name.clone(), *bytes));
    // What we did not write is left alone.
    there.filter(|(name, _)| is_pack(name) && !needed.contains(name)).collect()
}
