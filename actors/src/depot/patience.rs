//! How long a depot and its clients wait for what does not move. Must not know what is waited for.

use std::time::Duration;

use super::error::DepotError;
use super::limits::{DISK_PATIENCE, SILENT, WAIT_EVERY};
use sardana_protocol::checkpoint::DepotId;
use tokio::time::timeout;

/// How long is waited. Tests have less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A process that asks: for a byte or a word.
    pub silent: Duration,
    /// A depot: for a call of its disk.
    pub disk: Duration,
    /// A depot: before it says that it waits.
    pub wait_every: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            silent: SILENT,
            disk: DISK_PATIENCE,
            wait_every: WAIT_EVERY,
        }
    }
}

impl Patience {
    /// What comes of `work`, unless it takes longer than a depot may be silent.
    pub(super) async fn with<T>(&self, depot: DepotId, work: impl Future<Output = T>) -> Result<T, DepotError> {
        let after = self.silent;
        let done = timeout(after, work).await;
        done.map_err(|_| DepotError::Hangs { depot, after })
    }
}
