//! The ring that sums at present, with which the training thread helps where it waits for a sum. Knows no steps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_collectives::helped::{Helped, Helper, helped};
use sardana_collectives::ring::RingError;

/// How a ring has ended.
pub(super) type Summed = Result<(), RingError>;

/// A ring that follows may begin while the training thread helps with the one before.
#[derive(Debug, Default)]
pub(super) struct PresentRing(Mutex<Option<Arc<Present>>>);

#[derive(Debug)]
struct Present {
    helper: Helper<Summed>,
    /// Whether the training thread is woken once it can go on.
    waited_for: bool,
}

impl PresentRing {
    /// This is it from now on. The one before is its task's alone.
    pub(super) fn begin(&self, ring: impl Future<Output = Summed> + Send + 'static, waited_for: bool) -> Helped<Summed> {
        let (helped, helper) = helped(ring);
        let before = self.lock().replace(Arc::new(Present { helper, waited_for }));
        if let Some(before) = before {
            before.helper.hand_over();
        }
        helped
    }

    /// See [`Helper::help`].
    pub(super) fn help(&self, more: impl Fn() -> bool) {
        let Some(ring) = self.lock().clone() else { return };
        ring.helper.help(more);
        if !self.lock().as_ref().is_some_and(|present| Arc::ptr_eq(present, &ring)) {
            // The thread will not come back to it.
            ring.helper.hand_over();
        }
    }

    /// See [`Helper::wait`]. One that is not waited for is handed over.
    pub(super) fn wait(&self) -> bool {
        let present = self.lock();
        let Some(Present { helper, waited_for }) = present.as_deref() else {
            return false;
        };
        if !*waited_for {
            helper.hand_over();
        }
        *waited_for && helper.wait()
    }

    /// See [`Helper::come_back`].
    pub(super) fn come_back(&self) {
        if let Some(ring) = &*self.lock() {
            ring.helper.come_back();
        }
    }

    /// See [`Helper::hand_over`].
    pub(super) fn hand_over(&self) {
        if let Some(ring) = &*self.lock() {
            ring.helper.hand_over();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Present>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
