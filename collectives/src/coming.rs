//! What comes once in each step, and is waited for.

use std::fmt;

use tokio::sync::watch;

/// What comes in the step under way. Used again in the next one, without an allocation.
pub(crate) struct Coming<T>(watch::Sender<Option<T>>);

impl<T: Clone> Coming<T> {
    /// A step begins, or is over: it is not there.
    pub(crate) fn expect(&self) {
        self.0.send_replace(None);
    }

    /// It is there.
    pub(crate) fn come(&self, what: T) {
        self.0.send_replace(Some(what));
    }

    /// Waits for it.
    pub(crate) async fn there(&self) -> T {
        let mut told = self.0.subscribe();
        let found = told.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        found.expect("the sender outlives those that are told")
    }
}

impl<T> Default for Coming<T> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<T> fmt::Debug for Coming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Coming").field(&self.0.borrow().is_some()).finish()
    }
}
