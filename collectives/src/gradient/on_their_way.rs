//! How many parts of a gradient are on their way to the host. Knows not which.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many [`Lowering`](super::Lowering)s there are of a gradient.
#[derive(Debug, Default)]
pub(super) struct OnTheirWay {
    count: Mutex<usize>,
    arrived: Condvar,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Counted(Arc<OnTheirWay>);

impl OnTheirWay {
    pub(super) fn one_more(all: &Arc<Self>) -> Counted {
        *all.count() += 1;
        Counted(Arc::clone(all))
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is none.
    pub(super) fn wait(&self) {
        let none = self.arrived.wait_while(self.count(), |count| *count > 0);
        drop(none.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.arrived.notify_all();
    }
}
