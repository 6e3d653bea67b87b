//! A job's checkpoints are copied to its mirror while it runs, and what it goes on from comes from there. The job never waits for a
//! mirror, but at its beginning and, bounded, at its end. What is done with a mirror is in [`crate::checkpoints::mirror`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sardana_actors::coordinator::{Coordinator, Steering};
use sardana_actors::depot::{Depot, Reader};
use sardana_protocol::checkpoint::{DepotAddress, Keep, Manifest, ManifestKey, PieceHash};
use sardana_protocol::membership::{CheckpointEvent, JobEvent};
use sardana_storage::manifest;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::checkpoints::mirror::{
    Belief, BringError, Expiry, Freed, Mirror, MirrorError, MirrorUrl, Pieces, RetainError, Sent,
};

/// At the job's end its last checkpoint may take so long to get into the mirror. Then the program ends without.
const LAST: Duration = Duration::from_secs(15 * 60);

/// If it takes no longer, nothing is said of the wait.
const SOON: Duration = Duration::from_secs(1);

/// So often that is tried. Each attempt tries its requests again by itself.
const LAST_ATTEMPTS: u32 = 3;

/// Between two of these attempts.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Why a job did not begin, as far as its mirror is concerned. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum MirroringError {
    /// The mirror cannot be used at all.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// What to go on from is not known.
    #[error(transparent)]
    Bring(#[from] BringError),
}

/// Opens the mirror, and brings what the job would go on from into the directory `dir`, if there is something newer in the mirror.
pub(crate) async fn begin(url: &MirrorUrl, dir: &Path) -> Result<Mirror, MirroringError> {
    let mirror = Mirror::open_or_make(url)?;
    let brought = mirror.bring_newest(dir).await?;
    if let Some(reason) = &brought.unknown {
        tracing::warn!(target: "sardana::event::mirror_unknown", %mirror, %reason, "whether the mirror has a newer checkpoint is not known; the job goes on from what is here");
    }
    for (key, reason) in &brought.passed_over {
        tracing::warn!(target: "sardana::event::passed_over", step = %key.step, id = %key.id, %reason, "a newer checkpoint of the mirror cannot be used");
    }
    if let Some(key) = brought.key {
        let local = brought.local.map_or_else(|| "none".to_owned(), |step| step.to_string());
        let (pieces, bytes) = (brought.copied.pieces, brought.copied.bytes);
        tracing::info!(target: "sardana::event::brought", step = %key.step, id = %key.id, from = %mirror, dir = %dir.display(), %local, pieces, bytes, "a checkpoint was brought from the mirror, since the newest here is older");
    }
    Ok(mirror)
}

/// Copies checkpoints to a mirror, one at a time, in the background. Ends with this.
#[derive(Debug)]
pub(crate) struct Mirroring {
    /// None once there will be no more.
    newest: Option<watch::Sender<Wanted>>,
    task: JoinHandle<()>,
}

/// What is to be copied: the newest, and how many there were.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    key: Option<ManifestKey>,
    count: u64,
}

impl Drop for Mirroring {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirroring {
    /// Begins. The job's depots stay until [`Coordinator::end`], so that the last checkpoint can be read from them.
    pub(crate) async fn start(mirror: Mirror, keep: Keep, depot: &Depot, coordinator: &Coordinator) -> Self {
        coordinator.hold_depots().await;
        let (sender, newest) = watch::channel(Wanted::default());
        let copying = Copying {
            mirror,
            keep,
            reader: depot.reader(),
            steering: coordinator.steering(),
            last: None,
        };
        Self {
            newest: Some(sender),
            task: tokio::spawn(copying.keep_copying(newest)),
        }
    }

    /// Copies a checkpoint that is committed, unless a newer one is before it comes to that.
    pub(crate) fn note(&self, event: &JobEvent) {
        let (JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }), Some(newest)) = (event, &self.newest) else {
            return;
        };
        newest.send_modify(|wanted| {
            wanted.key = Some(*key);
            wanted.count += 1;
        });
    }

    /// Waits until the last checkpoint is in the mirror, or will not be; it is said which.
    pub(crate) async fn finish(mut self) {
        drop(self.newest.take());
        if timeout(SOON, &mut self.task).await.is_ok() {
            return;
        }
        tracing::info!(target: "sardana::event::mirror_last", at_most = ?LAST, "waiting until the last checkpoint is in the mirror");
        if timeout(LAST, &mut self.task).await.is_err() {
            tracing::warn!(target: "sardana::event::not_mirrored", after = ?LAST, "the last checkpoint is not in the mirror, and is waited for no longer: copy it with sardana checkpoints copy");
        }
    }
}

/// The task that copies.
struct Copying {
    mirror: Mirror,
    keep: Keep,
    reader: Reader,
    steering: Steering,
    /// The last checkpoint that was copied.
    last: Option<Manifest>,
}

impl Copying {
    async fn keep_copying(mut self, mut newest: watch::Receiver<Wanted>) {
        let mut seen = 0;
        let mut failed = None;
        while newest.changed().await.is_ok() {
            let wanted = *newest.borrow_and_update();
            let skipped = (wanted.count - seen).saturating_sub(1);
            seen = wanted.count;
            if let Some(key) = wanted.key {
                failed = (!self.attempt(key, skipped).await).then_some(key);
            }
        }
        // The job is over, and nothing newer comes.
        for _ in 1..LAST_ATTEMPTS {
            let Some(key) = failed else { return };
            sleep(LAST_PAUSE).await;
            failed = (!self.attempt(key, 0).await).then_some(key);
        }
        if let Some(key) = failed {
            tracing::warn!(target: "sardana::event::not_mirrored", step = %key.step, "the last checkpoint is not in the mirror; copy it with sardana checkpoints copy");
        }
    }

    /// Copies a checkpoint, and says how that went.
    async fn attempt(&mut self, key: ManifestKey, skipped: u64) -> bool {
        let start = Instant::now();
        match self.copy(key).await {
            Ok(None) => {}
            Ok(Some(Sent { objects, bytes, kept })) => {
                let took = start.elapsed();
                tracing::info!(target: "sardana::event::mirrored", step = %key.step, objects, bytes, kept, skipped, ?took, mirror = %self.mirror, "a checkpoint is in the mirror");
            }
            Err(reason) => {
                tracing::warn!(target: "sardana::event::not_mirrored", step = %key.step, %reason, skipped, mirror = %self.mirror, "a checkpoint is not in the mirror; the next one is tried");
                return false;
            }
        }
        self.prune().await;
        true
    }

    /// None if the same state is there already: a checkpoint that was placed on other hosts has another manifest.
    async fn copy(&mut self, key: ManifestKey) -> Result<Option<Sent>, String> {
        let depots = self.steering.depots().await;
        let bytes = self.reader.manifest(key, &depots).await?;
        let manifest = manifest::decode_as(&bytes, key).map_err(|error| error.to_string())?;
        let same = |last: &Manifest| last.step() == manifest.step() && last.needs().eq(manifest.needs());
        if self.last.as_ref().is_some_and(same) {
            return Ok(None);
        }
        let _held = self.reader.hold(manifest.needs().collect()).await?;
        let source = Source {
            reader: self.reader.clone(),
            steering: self.steering.clone(),
            known: Arc::new(Mutex::new(depots)),
        };
        let sent = self.mirror.upload(key, &bytes, &source, Belief::Lengths, |_| {}).await;
        let sent = sent.map_err(|error| error.to_string())?;
        self.last = Some(manifest);
        Ok(Some(sent))
    }

    /// What the job does not keep, the mirror does not keep either.
    async fn prune(&self) {
        let Some(last) = &self.last else { return };
        let expiry = Expiry {
            keep: Some(self.keep),
            only: Some(last.identity.task()),
            named: Vec::new(),
        };
        match self.mirror.prune(&expiry).await {
            Ok(Freed {
                deleted,
                objects,
                bytes,
                unreadable,
            }) => {
                if let Some((key, reason)) = unreadable {
                    tracing::warn!(target: "sardana::event::mirror_not_pruned", step = %key.step, %reason, "a checkpoint of the mirror cannot be read: what it needs is not known, and no objects are removed; delete it with sardana checkpoints prune --delete");
                }
                if !deleted.is_empty() || objects > 0 {
                    tracing::debug!(target: "sardana::event::mirror_pruned", checkpoints = deleted.len(), objects, bytes, "old checkpoints of the mirror are gone");
                }
            }
            Err(error) if matches!(error, RetainError::Busy(_)) => {
                tracing::debug!(%error, "old checkpoints of the mirror stay for now");
            }
            Err(error) => {
                tracing::warn!(target: "sardana::event::mirror_not_pruned", %error, "old checkpoints of the mirror stay for now");
            }
        }
    }
}

/// The job's depots, as those that are connected change.
#[derive(Debug, Clone)]
struct Source {
    reader: Reader,
    steering: Steering,
    known: Arc<Mutex<Vec<DepotAddress>>>,
}

impl Pieces for Source {
    async fn read(&self, pieces: Vec<PieceHash>) -> Result<Vec<Vec<u8>>, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.reader.pieces(&pieces, &known).await {
            Ok(read) => Ok(read),
            Err(_) => {
                // Other depots may have come, or come back at another address.
                let depots = self.steering.depots().await;
                self.known.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&depots);
                self.reader.pieces(&pieces, &depots).await
            }
        }
    }
}
