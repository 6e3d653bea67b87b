//! A folder of checkpoints that is harmed while no process uses it, and of which there is no other copy: the job goes on from the newest
//! that is whole, says why not from a newer one, and ends in the state of the plain loop.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sardana::{CheckpointEvent, JobEvent};
use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_protocol::limits::RESTORE_ATTEMPTS;
use sardana_storage::store::Store;
use tokio::time::{sleep, timeout};

use crate::checkpoints::{Ended, Job, LIMIT, saved, setup};
use crate::depots::{cut_within, flip};
use crate::trial;

/// What happens to the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injury {
    /// One bit of a piece that only the newest checkpoint has.
    Flipped,
    /// A segment ends in the middle of such a piece.
    Cut,
    /// One bit of the newest manifest.
    Manifest,
}

/// Waits until a job in this very process has let go of a folder.
async fn until_free(folder: &Path) -> Result<()> {
    let waiting = async {
        loop {
            match Store::open(folder) {
                Err(error) if error.to_string().contains("in use") => sleep(Duration::from_millis(5)).await,
                opened => return opened,
            }
        }
    };
    timeout(LIMIT, waiting).await.context("the folder is not let go of")??;
    Ok(())
}

/// All checkpoints that a folder has, the newest last.
fn kept(folder: &Path) -> Result<Vec<(ManifestKey, Manifest)>> {
    let store = Store::open(folder)?.store;
    let mut kept = Vec::new();
    for listed in store.list() {
        let manifest = sardana_storage::manifest::decode(store.show(listed.key)?.bytes())?;
        kept.push((listed.key, manifest));
    }
    kept.sort_by_key(|(key, _)| *key);
    Ok(kept)
}

fn injure(injury: Injury, folder: &Path, (newest, piece): (ManifestKey, PieceHash)) -> Result<()> {
    match injury {
        Injury::Flipped => flip(folder, piece),
        Injury::Cut => cut_within(folder, piece),
        Injury::Manifest => {
            for entry in fs::read_dir(folder.join("manifests"))? {
                let path = entry?.path();
                if path.to_string_lossy().contains(&newest.id.to_string()) {
                    let mut bytes = fs::read(&path)?;
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    return Ok(fs::write(path, bytes)?);
                }
            }
            anyhow::bail!("{newest} has no file")
        }
    }
}

async fn goes_back(injury: Injury) -> Result<()> {
    let mut job = Job::of(trial(setup(2))?)?;
    let mut launched = job.launch(2, "2").await?;
    let first = saved(&mut launched, 5).await?;
    saved(&mut launched, first.get() + 1).await?;
    drop(launched);
    until_free(&job.folder).await?;
    let before = kept(&job.folder)?;
    let [.., (_, older), (newest, manifest)] = &before[..] else {
        anyhow::bail!("two were committed: {before:?}");
    };
    let own = manifest.pieces.iter().find(|piece| !older.pieces.contains(piece));
    injure(injury, &job.folder, (*newest, *own.context("the state has changed")?))?;
    went_back(&job.resumes(2, "2").await?, *newest)
}

/// The job has resumed from a checkpoint before `newest`, said why, and tried `newest` no more often than it should.
fn went_back(ended: &Ended, newest: ManifestKey) -> Result<()> {
    let told = &ended.told;
    let resumed = told.iter().rev().find_map(|event| {
        let JobEvent::Checkpoint(CheckpointEvent::Resumes { key, passed_over }) = event else {
            return None;
        };
        Some((key, passed_over))
    });
    let (key, passed_over) = resumed.context("it resumes")?;
    ensure!(*key < newest, "{newest} is whole: {told:#?}");
    let why = passed_over.iter().find(|(passed, _)| *passed == newest);
    let (_, why) = why.with_context(|| format!("nothing is said of {newest}: {told:#?}"))?;
    ensure!(!why.is_empty(), "{told:#?}");
    let tries = told
        .iter()
        .filter(|event| matches!(event, JobEvent::Checkpoint(CheckpointEvent::NotRestored { .. })))
        .count();
    ensure!(tries <= 2 * RESTORE_ATTEMPTS as usize, "{told:#?}");
    Ok(())
}

#[tokio::test]
async fn a_job_goes_back_to_the_newest_checkpoint_that_is_whole_and_says_why() -> Result<()> {
    let back = |injury| async move { goes_back(injury).await.with_context(|| format!("{injury:?}")) };
    tokio::try_join!(back(Injury::Flipped), back(Injury::Cut), back(Injury::Manifest))?;
    Ok(())
}
