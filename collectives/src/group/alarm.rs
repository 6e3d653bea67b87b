//! Wakes the ranks of a group that wait when it is over. Knows nothing of links.

use std::sync::Arc;

use tokio::sync::watch;

use super::error::GroupError;

/// Raised once, with the first reason. All that share it are woken: the ranks of one process, and what ends their generations.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<watch::Sender<Option<Arc<GroupError>>>>);

impl Default for Alarm {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Alarm {
    /// Ends the group of all who share it, for this reason, unless another came first.
    pub fn raise(&self, reason: Arc<GroupError>) {
        self.0.send_if_modified(|raised| {
            let is_first = raised.is_none();
            raised.get_or_insert(reason);
            is_first
        });
    }

    /// Why it was raised, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<Arc<GroupError>> {
        self.0.borrow().clone()
    }

    /// Waits until it is raised, and says why.
    pub async fn raised(&self) -> Arc<GroupError> {
        let mut raised = self.0.subscribe();
        loop {
            if let Some(reason) = raised.borrow_and_update().clone() {
                return reason;
            }
            // The sender is at hand: it does not end.
            let _ = raised.changed().await;
        }
    }
}
