//! What the coordinator orders of the store: one change after the other, and none for a coordinator that another has followed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestKey, Placing};
use sardana_protocol::messages::DepotMessage;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Incarnation, few};
use sardana_storage::manifest;
use sardana_storage::store::{Collected, DeleteError, Store};
use tokio::sync::{Notify, OwnedMutexGuard, mpsc};
use tokio::time::{sleep, timeout};

use super::client::Depots;
use super::identity::{IdentityError, note_served};
use super::limits::{COLLECT_AFTER, HEADS_TOLD, PROGRESS_EVERY, TELL_AGAIN};
use super::server::Server;
use super::shelf::Opener;
use super::stream::End;
use crate::fault::{self, Point};

/// Keeps the checkpoints of one depot.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) own: DepotId,
    pub(super) folder: PathBuf,
    pub(super) opener: Opener,
    pub(super) server: Arc<Server>,
    pub(super) depots: Arc<Depots>,
    told: Mutex<ToldTo>,
    /// Held while what is kept changes, or is told: so that what is told is never older than what was told before. A disk that hangs holds it.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// Held while a checkpoint is fetched.
    pub(super) fetching: tokio::sync::Mutex<()>,
    /// Held while it is noted which coordinator is served: a disk that hangs holds it.
    noting: Arc<tokio::sync::Mutex<()>>,
    /// Something was deleted.
    waste: Notify,
    /// Of some checkpoint not all is here that should be, as was told last.
    lacking: AtomicBool,
}

/// The coordinator that is told, and the highest incarnation that ever was.
#[derive(Debug)]
struct ToldTo {
    highest: Incarnation,
    /// As it is on the disk.
    noted: Incarnation,
    queue: Option<mpsc::UnboundedSender<DepotMessage>>,
}

/// A manifest that is to be made durable.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) snapshot: SnapshotId,
    pub(super) depots: Vec<DepotId>,
    pub(super) placing: Placing,
    pub(super) bytes: Vec<u8>,
}

impl Keeper {
    pub(super) fn new(
        own: DepotId,
        folder: PathBuf,
        opener: Opener,
        noted: Incarnation,
        server: Arc<Server>,
        depots: Arc<Depots>,
    ) -> Arc<Self> {
        let (highest, queue) = (noted, None);
        Arc::new(Self {
            own,
            folder,
            opener,
            server,
            depots,
            told: Mutex::new(ToldTo { highest, noted, queue }),
            changing: Arc::default(),
            fetching: tokio::sync::Mutex::default(),
            noting: Arc::default(),
            waste: Notify::new(),
            lacking: AtomicBool::new(false),
        })
    }

    fn told<T>(&self, look: impl FnOnce(&mut ToldTo) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The highest incarnation of a coordinator that was ever served.
    pub(super) fn highest(&self) -> Incarnation {
        self.told(|told| told.highest)
    }

    /// From now on this coordinator is served, and none before it. That is on the disk when this returns; on a disk that has no room for it,
    /// or hangs, before anything is committed.
    pub(super) async fn serve(&self, incarnation: Incarnation) -> Result<(), String> {
        let highest = self.told(|told| {
            let before = told.highest;
            told.highest = before.max(incarnation);
            before
        });
        if incarnation < highest {
            return Err(outdated(incarnation, highest));
        }
        if incarnation > self.told(|told| told.noted)
            && let Err(reason) = self.note(incarnation).await
        {
            tracing::warn!(depot = %self.own, %incarnation, %reason, "whom this checkpoint actor serves cannot be noted: it gives what it has, and commits nothing");
        }
        Ok(())
    }

    /// Which coordinator it serves is on the disk when this returns. A disk that hangs is not waited for.
    pub(super) async fn note(&self, incarnation: Incarnation) -> Result<(), String> {
        let one = self.alone(&self.noting).await?;
        let (folder, job) = (self.folder.clone(), self.server.job());
        let noting = self.server.environment.blocking(move || {
            let _one = one;
            note_served(&folder, job, incarnation)
        });
        let noted = timeout(self.server.patience.disk, noting).await.map_err(|_| self.hangs())?;
        let noted = noted.ok_or_else(|| "this process ends".to_owned())?;
        noted.map_err(|error: IdentityError| error.to_string())?;
        self.told(|told| told.noted = told.noted.max(incarnation));
        Ok(())
    }

    /// The right to do this, which one thread at a time has, and keeps while the disk does not return: however often it is tried, no more
    /// threads hang.
    async fn alone(&self, right: &Arc<tokio::sync::Mutex<()>>) -> Result<OwnedMutexGuard<()>, String> {
        let coming = timeout(self.server.patience.disk, Arc::clone(right).lock_owned()).await;
        coming.map_err(|_| self.hangs())
    }

    fn hangs(&self) -> String {
        let after = self.server.patience.disk;
        format!("its disk hangs: it has not done within {after:?} what was asked before; see what is wrong with the disk")
    }

    /// What is said from now on goes there; nowhere, if none.
    pub(super) fn speak_to(&self, queue: Option<mpsc::UnboundedSender<DepotMessage>>) {
        self.told(|told| told.queue = queue);
    }

    /// Whether there is a coordinator, as far as is known.
    pub(super) fn is_heard(&self) -> bool {
        self.told(|told| told.queue.as_ref().is_some_and(|queue| !queue.is_closed()))
    }

    /// Whether it was said. Without a coordinator it need not be: all is told to the next one.
    pub(super) fn say(&self, message: DepotMessage) -> bool {
        self.told(|told| told.queue.as_ref().is_some_and(|queue| queue.send(message).is_ok()))
    }

    /// Says that nothing came of an order to keep a checkpoint.
    pub(super) fn refuse(&self, snapshot: SnapshotId, placing: Placing, reason: String) {
        tracing::warn!(%snapshot, %reason, "a checkpoint was not made durable here");
        self.say(DepotMessage::Refused {
            snapshot,
            placing,
            reason,
        });
    }

    /// Makes a manifest durable, if all pieces are that should be here, for the coordinator of this incarnation, and says so: before
    /// anything is deleted that it may then want to be.
    pub(super) async fn commit(self: &Arc<Self>, incarnation: Incarnation, whole: Whole) -> Result<(), String> {
        let one = self.alone(&self.changing).await?;
        if incarnation > self.told(|told| told.noted) {
            self.note(incarnation).await?;
        }
        let keeper = Arc::clone(self);
        let kept = self.server.on_disk(move |store| {
            let _one = one;
            let highest = keeper.highest();
            if incarnation < highest {
                return Err(outdated(incarnation, highest));
            }
            let snapshot = whole.snapshot;
            let head = commit(store, keeper.own, whole)?;
            keeper.say(DepotMessage::Committed { snapshot, head });
            Ok(())
        });
        kept.await.map_err(words)?
    }

    /// What was put for this snapshot, or for any before it, need not be kept for its sake any more. Nothing names what was put for a
    /// checkpoint that was given up: its room is given back, too.
    pub(super) fn release(&self, snapshot: SnapshotId) {
        self.server.release(snapshot);
        self.waste.notify_one();
    }

    /// Deletes a checkpoint, and says so. Its room is given back later.
    pub(super) async fn delete(self: &Arc<Self>, incarnation: Incarnation, key: ManifestKey) {
        let deleted = async {
            let one = self.alone(&self.changing).await?;
            let keeper = Arc::clone(self);
            let deleting = self.server.on_disk(move |store| {
                let _one = one;
                keeper.delete_on(store, incarnation, key);
            });
            deleting.await.map_err(words)
        };
        if let Err(why) = deleted.await {
            tracing::warn!(%key, %why, "a checkpoint was not deleted; it is tried again with the next one that is");
        }
    }

    fn delete_on(&self, store: &Store, incarnation: Incarnation, key: ManifestKey) {
        if incarnation < self.highest() {
            return;
        }
        match store.delete(key) {
            Ok(()) | Err(DeleteError::NotThere { .. }) => {
                self.say(DepotMessage::Deleted { key });
                self.waste.notify_one();
            }
            Err(error @ DeleteError::Write(_)) => {
                tracing::error!(%key, %error, "a checkpoint could not be deleted; it is tried again with the next one that is");
            }
        }
    }

    /// Says what is kept: all of it. A disk that hangs says it when it goes on.
    ///
    /// # Errors
    /// Why it is not known so far.
    pub(super) async fn tell_all(self: &Arc<Self>) -> Result<(), String> {
        let one = self.alone(&self.changing).await?;
        let keeper = Arc::clone(self);
        let telling = self.server.on_disk(move |store| {
            let _one = one;
            let (heads, unreadable) = heads(store, keeper.own);
            keeper.tell(&heads, &unreadable);
        });
        telling.await.map_err(words)
    }

    /// Says that this is all that is kept.
    fn tell(&self, heads: &[Head], unreadable: &[ManifestKey]) {
        let lacking = heads.iter().any(|head| head.condition == Condition::Lacking);
        self.lacking.store(lacking, Ordering::Relaxed);
        for chunk in heads.chunks(HEADS_TOLD) {
            self.say(DepotMessage::Holds {
                heads: chunk.to_vec(),
                is_last: false,
                unreadable: Vec::new(),
            });
        }
        let mut chunks = unreadable.chunks(HEADS_TOLD).peekable();
        loop {
            let unreadable = chunks.next().unwrap_or_default().to_vec();
            let is_last = chunks.peek().is_none();
            self.say(DepotMessage::Holds {
                heads: Vec::new(),
                is_last,
                unreadable,
            });
            if is_last {
                return;
            }
        }
    }

    /// Says what is kept as soon as that can be known: a disk may hang, or have failed.
    pub(super) async fn tell_until_told(self: &Arc<Self>) {
        while let Err(why) = self.tell_all().await {
            tracing::warn!(depot = %self.own, %why, again_after = ?TELL_AGAIN, "what this checkpoint actor keeps cannot be told");
            sleep(TELL_AGAIN).await;
        }
    }

    /// Says it again if something was not whole: what was fetched for one checkpoint may have been missed by other checkpoints.
    pub(super) async fn tell_of_healing(self: &Arc<Self>) {
        if self.lacking.load(Ordering::Relaxed) {
            self.tell_until_told().await;
        }
    }

    /// Gives back the room of what was deleted, as long as the depot lives. What is deleted soon after one another is collected together:
    /// it costs more than a small checkpoint itself.
    pub(super) async fn collect_waste(self: Arc<Self>) {
        loop {
            self.waste.notified().await;
            sleep(COLLECT_AFTER).await;
            match self.server.on_store(Store::collect).await {
                Ok(Ok(Collected {
                    pieces,
                    freed_bytes,
                    copied_bytes,
                    damaged,
                })) => {
                    let damaged = damaged.len();
                    tracing::info!(
                        pieces,
                        freed_bytes,
                        copied_bytes,
                        damaged,
                        "room of deleted checkpoints is given back"
                    );
                }
                Ok(Err(error)) => tracing::error!(%error, "room of deleted checkpoints cannot be given back"),
                Err(End::Refused(reason)) => tracing::info!(%reason, "room of deleted checkpoints is given back later"),
                Err(End::Broken(_)) => return,
            }
        }
    }

    /// Tells of damage that readers find, as long as the depot lives.
    pub(super) async fn tell_of_damage(self: Arc<Self>) {
        loop {
            self.server.damage.notified().await;
            self.tell_until_told().await;
            // A reader that finds a thousand damaged pieces is one piece of news.
            sleep(PROGRESS_EVERY).await;
        }
    }
}

/// Why nothing came of it.
pub(super) fn words(end: End) -> String {
    match end {
        End::Refused(reason) | End::Broken(reason) => reason,
    }
}

fn outdated(found: Incarnation, highest: Incarnation) -> String {
    format!(
        "expected a coordinator of incarnation {highest} at least, which this one has served, found {found}; stop the older one"
    )
}

fn commit(store: &Store, own: DepotId, whole: Whole) -> Result<Head, String> {
    let Whole {
        snapshot,
        depots,
        placing,
        bytes,
    } = whole;
    let manifest = manifest::decode(&bytes).map_err(|error| error.to_string())?;
    let same = manifest.snapshot == snapshot && manifest.depots == depots && manifest.placing == placing;
    if !same || !depots.contains(&own) {
        return Err(format!(
            "expected a manifest of {snapshot} on the checkpoint actors {}, among them {own}, in {placing:?}, found one of {} on {} in {:?}",
            few(&depots, ", "),
            manifest.snapshot,
            few(&manifest.depots, ", "),
            manifest.placing
        ));
    }
    let key = manifest::key_of(&manifest, &bytes);
    fault::reached(Point::DepotCommit, snapshot.step);
    let stored = manifest::stored(&manifest, bytes, own);
    store.commit(&stored).map_err(|error| error.to_string())?;
    fault::reached(Point::DepotCommitted, snapshot.step);
    tracing::info!(target: "sardana::event::committed", %key, pieces = stored.pieces().len(), "a checkpoint is durable here");
    Ok(manifest::head_of(&manifest, key, Condition::Whole))
}

/// What is kept, the newest first, and what is there and cannot be read.
fn heads(store: &Store, own: DepotId) -> (Vec<Head>, Vec<ManifestKey>) {
    let mut unreadable = Vec::new();
    let head = |listed: sardana_storage::store::Listed| {
        let key = listed.key;
        if let Some(problem) = &listed.problem {
            tracing::error!(target: "sardana::event::damaged", depot = %own, %key, %problem, "a checkpoint is not whole here");
        }
        let shown = store.show(key).map_err(|error| error.to_string());
        let decoded = shown.and_then(|shown| manifest::decode_as(shown.bytes(), key).map_err(|error| error.to_string()));
        match decoded {
            Ok(manifest) => {
                let condition = if listed.problem.is_none() {
                    Condition::Whole
                } else {
                    Condition::Lacking
                };
                Some(manifest::head_of(&manifest, key, condition))
            }
            Err(reason) => {
                tracing::error!(target: "sardana::event::damaged", depot = %own, %key, %reason, "a checkpoint cannot be told of");
                unreadable.push(key);
                None
            }
        }
    };
    let heads = store.list().into_iter().rev().filter_map(head).collect();
    (heads, unreadable)
}
