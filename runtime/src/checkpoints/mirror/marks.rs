//! Which processes are at work in a mirror. An uploader has pieces there that no manifest names yet, and a pruner removes such.
//!
//! Each first puts a mark of its own and then looks at those of others; stores show at once what was put. So of two that begin at the same
//! time at least one sees the other: the pruner gives up, and the uploader waits. What is too old is of a process that crashed;
//! ages are by the store's own clock. A mark of a pruning is made anew all the time, so that a crash keeps no uploader waiting for long.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Mirror;
use super::error::ObjectError;
use super::limits::{GIVING_WAY, LOOK_AGAIN, MARK, MARK_AGAIN, MOST_NAMES, PRUNING, PRUNING_AGAIN, UPLOADING};
use super::objects::MARKS;

/// What a process does with a mirror, as the names of marks begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Work {
    Uploading,
    Pruning,
}

impl Work {
    /// How long its mark is believed.
    const fn believed(self) -> Duration {
        match self {
            Self::Uploading => UPLOADING,
            Self::Pruning => PRUNING,
        }
    }

    /// What a mark with this name says; none if the name is not a mark's.
    fn of(name: &str) -> Option<Self> {
        name.split_once('-')?.0.parse().ok()
    }

    /// Whether it may not go on beside `other`.
    fn gives_way_to(self, other: Self) -> bool {
        [self, other].contains(&Self::Pruning)
    }
}

impl Mirror {
    fn own_mark(&self, work: Work) -> String {
        format!("{work}-{:016x}", self.id)
    }

    /// Marks that this process uploads, and waits until no other prunes. Returns the mark of a pruner that does not end, if there is one.
    pub(super) async fn mark_uploading(&self) -> Result<Option<String>, ObjectError> {
        let start = Instant::now();
        loop {
            let other = self.mark(Work::Uploading).await?;
            if other.is_none() || start.elapsed() >= GIVING_WAY {
                return Ok(other);
            }
            // Its own mark stays: no other process begins to prune.
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Marks that this process is at work. Returns the mark of another process that it must give way to, if there is one.
    pub(super) async fn mark(&self, work: Work) -> Result<Option<String>, ObjectError> {
        let own = self.own_mark(work);
        self.put_mark(&own).await?;
        let marks = self.bucket.list(MARKS, MOST_NAMES).await?;
        let now = marks.iter().find(|mark| mark.name == own).map(|mark| mark.modified);
        let now = now.unwrap_or_else(SystemTime::now);
        for mark in marks {
            let Some(other) = Work::of(&mark.name) else { continue };
            if mark.name == self.own_mark(other) {
                continue;
            }
            let object = format!("{MARKS}/{}", mark.name);
            // A mark from the future is young.
            let age = now.duration_since(mark.modified).unwrap_or_default();
            if age > other.believed() {
                self.bucket.delete(&object).await?;
            } else if work.gives_way_to(other) {
                return Ok(Some(self.bucket.name_of(&object)));
            }
        }
        Ok(None)
    }

    async fn put_mark(&self, name: &str) -> Result<(), ObjectError> {
        self.bucket.put(&format!("{MARKS}/{name}"), Bytes::from_static(MARK)).await
    }

    /// Keeps the mark young, and says when it was last made. Returns only when that fails.
    pub(super) async fn stay_marked(&self, work: Work, made: &watch::Sender<Instant>) -> ObjectError {
        let own = self.own_mark(work);
        let again = match work {
            Work::Uploading => MARK_AGAIN,
            Work::Pruning => PRUNING_AGAIN,
        };
        loop {
            sleep(again).await;
            let start = Instant::now();
            if let Err(error) = self.put_mark(&own).await {
                return error;
            }
            made.send_replace(start);
        }
    }

    /// Removes the mark.
    pub(super) async fn unmark(&self, work: Work) {
        let own = self.own_mark(work);
        if let Err(error) = self.bucket.delete(&format!("{MARKS}/{own}")).await {
            tracing::debug!(%error, "a mark stays, and is not believed after a while");
        }
    }
}
