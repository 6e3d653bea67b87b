//! The ring that sums at present, with which the training thread helps where it waits for a sum. Knows no steps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_collectives::helped::{Helped, Helper, helped};
use sardana_collectives::ring::RingError;

/// How a ring has ended.
pub(super) type Summed = Result<(), RingError>;

/// A ring that follows may begin while the training thread helps with the one before.
#[derive(Debug, Default)]
pub(super) struct PresentRing(Mutex<Option<Arc<Helper<Summed>>>>);

impl PresentRing {
    /// This is it from now on. The one before is its task's alone.
    pub(super) fn begin(&self, ring: impl Future<Output = Summed> + Send + 'static) -> Helped<Summed> {
        let (helped, helper) = helped(ring);
        let before = self.lock().replace(Arc::new(helper));
        if let Some(before) = before {
            before.hand_over();
        }
        helped
    }

    /// See [`Helper::help`].
    pub(super) fn help(&self, more: impl Fn() -> bool) {
        let Some(ring) = self.lock().clone() else { return };
        ring.help(more);
        if !self.lock().as_ref().is_some_and(|present| Arc::ptr_eq(present, &ring)) {
            // The thread will not come back to it.
            ring.hand_over();
        }
    }

    /// See [`Helper::come_back`].
    pub(super) fn come_back(&self) {
        if let Some(ring) = &*self.lock() {
            ring.come_back();
        }
    }

    /// See [`Helper::hand_over`].
    pub(super) fn hand_over(&self) {
        if let Some(ring) = &*self.lock() {
            ring.hand_over();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Helper<Summed>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
