//! How the training thread hears that there may be something for it to do. Knows not what.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use tokio::sync::Notify;

/// Wakes the training thread, or the task that does its work.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The thread, while it is to be unparked.
    thread: Mutex<Option<Thread>>,
    task: Notify,
}

impl Changed {
    /// This thread looks for something to do, and is unparked by what comes from now on.
    pub(super) fn looks(&self) {
        *self.thread() = Some(thread::current());
    }

    /// Whether something has come since then: whatever has parked this thread since may have been unparked in place of it.
    pub(super) fn has(&self) -> bool {
        self.thread().is_none()
    }

    pub(super) fn notify_all(&self) {
        if let Some(thread) = self.thread().take() {
            thread.unpark();
        }
        self.task.notify_waiters();
    }

    /// What wakes the task.
    pub(super) const fn task(&self) -> &Notify {
        &self.task
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
