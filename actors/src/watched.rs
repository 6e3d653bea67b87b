//! A value that tasks wait for a change of.
//!
//! As tokio's `watch`, but the tasks that wait are woken in the order in which they began to wait, where `watch` shuffles them: a
//! simulation must not depend on what no seed decides.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The value. Each of its owners may change it and wait for changes.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// Begins as `value`.
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at it.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }

    /// Changes it, and wakes all tasks that wait.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Changes something of it that no task waits for.
    pub(crate) fn modify_quietly<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock())
    }

    /// Puts another in its place, and wakes all tasks that wait. Returns what was there.
    pub(crate) fn replace(&self, value: T) -> T {
        self.modify(|old| std::mem::replace(old, value))
    }

    /// Waits until `look` finds what it looks for, which may be at once.
    pub(crate) async fn find<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let found = look(&self.lock());
            match found {
                Some(found) => return found,
                None => changed.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let watched = Arc::new(Watched::new(0));
        let (told, mut heard) = mpsc::unbounded_channel();
        for name in 0..32 {
            let (watched, told) = (Arc::clone(&watched), told.clone());
            tokio::spawn(async move {
                watched.find(|&value| (value == 2).then_some(())).await;
                told.send(name).unwrap();
            });
        }
        tokio::task::yield_now().await;
        watched.replace(1);
        assert_eq!(watched.replace(2), 1);
        for name in 0..32 {
            assert_eq!(heard.recv().await, Some(name));
        }
        assert_eq!(watched.read(|&value| value), 2);
    }

    #[tokio::test]
    async fn what_is_there_is_not_waited_for_and_a_quiet_change_wakes_nobody() {
        let watched = Arc::new(Watched::new(1));
        watched.find(|&value| (value == 1).then_some(())).await;
        let waiter = tokio::spawn({
            let watched = Arc::clone(&watched);
            async move { watched.find(|&value| (value > 1).then_some(value)).await }
        });
        tokio::task::yield_now().await;
        watched.modify_quietly(|value| *value = 2);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        watched.modify(|value| *value = 3);
        assert_eq!(waiter.await.unwrap(), 3);
    }
}
