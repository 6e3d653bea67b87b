//! A store that has failed is opened anew, once its disk can be written to again: what it finds there it verifies, and the coordinator is
//! told of it. A disk that fails again and again is waited for longer each time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::keeper::Keeper;
use super::limits::{REOPEN_FIRST, REOPEN_MOST};

impl Keeper {
    /// Opens the store anew whenever it has failed, as long as the depot lives.
    pub(super) async fn keep_open(self: Arc<Self>) {
        let mut pause = REOPEN_FIRST;
        let mut open_since = Instant::now();
        loop {
            let reason = self.server.shelf.failed().await;
            if open_since.elapsed() >= REOPEN_MOST {
                pause = REOPEN_FIRST;
            }
            tracing::error!(
                target: "sardana::event::store_failed", depot = %self.own, %reason,
                "the store of checkpoints has failed: until it is opened anew it is only read from"
            );
            pause = self.reopen(pause).await;
            open_since = Instant::now();
            // Also what other processes had begun to rely on.
            let keeper = Arc::clone(&self);
            tokio::spawn(async move { keeper.tell_until_told().await });
        }
    }

    /// Tries it after `pause`, and again and again, until the store is open: how long to wait the next time.
    async fn reopen(&self, mut pause: Duration) -> Duration {
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(REOPEN_MOST);
            match self.try_to_reopen().await {
                Ok(()) => return pause,
                Err(reason) => tracing::warn!(
                    target: "sardana::event::store_failed", depot = %self.own, %reason, again_after = ?pause,
                    "the store of checkpoints cannot be opened anew yet; see whether its disk is broken, full or read-only"
                ),
            }
        }
    }

    async fn try_to_reopen(&self) -> Result<(), String> {
        // Where not even a note can be written a store cannot be opened. As long as it is not shut, it can be read from.
        self.note(self.highest()).await?;
        self.server.pins.forget();
        let (environment, folder) = (&self.server.environment, self.folder.clone());
        let findings = self.server.shelf.exchange(environment, &self.opener, folder).await?;
        for finding in &findings {
            tracing::warn!(target: "sardana::event::damaged", depot = %self.own, %finding, "the store was not as it should be");
        }
        tracing::info!(
            target: "sardana::event::store_opened", depot = %self.own, folder = %self.folder.display(),
            "the store of checkpoints is open again"
        );
        Ok(())
    }
}
