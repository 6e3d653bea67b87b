//! Pinned memory for parts of gradients and of running sums on their way: kept from one to the next, since pinning takes longer than a copy. Decides nothing.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_collectives::gradient::{ResidentError, Slot};
use sardana_collectives::limits::{LOWERED_BYTES, PASSING_AT_ONCE};

use crate::device::{Device, DeviceError, Pinned};

/// Copies to the host that are under way at once: one lands while the next ones come. A ring gives as many parts of a sum.
pub(super) const LANDING_AT_ONCE: usize = PASSING_AT_ONCE;

/// As many slots as a visit needs: of parts of gradients that land, and of parts of a sum, of which it fills one and empties another besides. No more are kept:
/// a rank that is visited several times, or goes on while parts of a ring that was given up are still to land, has more for as long.
pub(super) const KEPT_SLOTS: usize = LANDING_AT_ONCE + PASSING_AT_ONCE + 2;

/// The slots of a device that nothing uses.
#[derive(Debug)]
pub(super) struct Slots {
    device: Device,
    free: Mutex<Vec<Pinned<u8>>>,
}

/// Pinned memory for one part. It is kept for others at its end.
#[derive(Debug)]
pub(super) struct PinnedSlot {
    /// Until its end.
    pinned: Option<Pinned<u8>>,
    slots: Arc<Slots>,
}

impl Slots {
    pub(super) fn new(device: &Device) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            free: Mutex::default(),
        })
    }

    pub(super) fn one(self: &Arc<Self>) -> Result<PinnedSlot, DeviceError> {
        let used = self.free().pop();
        let pinned = used.map_or_else(|| Pinned::zeros(&self.device, LOWERED_BYTES), Ok)?;
        Ok(PinnedSlot {
            pinned: Some(pinned),
            slots: Arc::clone(self),
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<Pinned<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinnedSlot {
    /// What a ring has filled, if it is a slot of this device.
    pub(super) fn of<'a>(slot: &'a mut dyn Slot, device: &Device) -> Option<&'a mut Self> {
        let any: &mut dyn Any = slot;
        any.downcast_mut::<Self>().filter(|own| own.slots.device == *device)
    }

    pub(super) const fn pinned(&mut self) -> &mut Pinned<u8> {
        self.pinned.as_mut().expect("it is there until its end")
    }
}

impl Slot for PinnedSlot {
    fn bytes(&mut self) -> Result<&mut [u8], ResidentError> {
        self.pinned().write().map_err(ResidentError::new)
    }
}

impl Drop for PinnedSlot {
    fn drop(&mut self) {
        let mut free = self.slots.free();
        if free.len() < KEPT_SLOTS {
            free.extend(self.pinned.take());
        }
        drop(free);
        // What is not kept goes without the others' waiting for it.
        drop(self.pinned.take());
    }
}
