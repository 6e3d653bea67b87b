//! Pinned memory for parts of gradients and of running sums on their way: kept from one to the next, since pinning takes longer than a copy. Decides nothing.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_collectives::gradient::{ResidentError, Slot};
use sardana_collectives::limits::{CHUNK_BYTES, LOWERED_BYTES, PASSING_AT_ONCE, SEEN_PAGES, SHARED_SLOTS};
use sardana_collectives::pages::InPlace;

use crate::device::{Device, DeviceError, Pinned};

/// Copies to the host that are under way at once: one lands while the next ones come. A ring gives as many parts of a sum.
pub(super) const LANDING_AT_ONCE: usize = PASSING_AT_ONCE;

/// Parts of a running sum that have slots at once: of a rank a ring fills or offers one and empties another, besides those that pass; the rank that it lends parts to has as many,
/// from which its device reads; and the chunks of one more may be in the link between them, which holds as many frames of such parts as one has chunks. (A rank that adds on the host still
/// has a frame when it has passed it on: then there may be one more slot for a moment.)
const PASSED_AT_ONCE: usize = 2 * (PASSING_AT_ONCE + 2) + 1;

/// As many slots as are kept of all kinds.
pub(super) const KEPT_SLOTS: usize = LANDING_AT_ONCE + PASSED_AT_ONCE;

const _: () = assert!(SHARED_SLOTS * CHUNK_BYTES <= LOWERED_BYTES);
// A neighbour maps each once. (Where a rank is visited twice in a step, those of both visits may be too many: then it maps some again.)
const _: () = assert!(PASSED_AT_ONCE <= SEEN_PAGES);

/// Slots of one kind that nothing uses. No more are kept than a visit needs: a rank that is visited several times, or goes on while parts of a ring that was given up
/// are still to land, has more for as long.
#[derive(Debug)]
pub(super) struct Slots {
    device: Device,
    kind: Kind,
    free: Mutex<Vec<Pinned<u8>>>,
}

/// What slots are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Parts of gradients, which are copied to where their gradient is.
    Landing,
    /// Parts of running sums, which other processes of the host may read where they are.
    Passing,
}

/// Pinned memory for one part. It is kept for others at its end.
#[derive(Debug)]
pub(super) struct PinnedSlot {
    /// Until its end.
    pinned: Option<Pinned<u8>>,
    slots: Arc<Slots>,
}

impl Kind {
    /// How many are kept.
    const fn kept(self) -> usize {
        match self {
            Self::Landing => LANDING_AT_ONCE,
            Self::Passing => PASSED_AT_ONCE,
        }
    }

    /// Whether it is of less use than others of its kind.
    fn is_worse(self, slot: &mut Pinned<u8>) -> bool {
        match self {
            Self::Landing => false,
            Self::Passing => slot.pages().is_none() || slot.are_read(),
        }
    }

    fn make(self, device: &Device) -> Result<Pinned<u8>, DeviceError> {
        match self {
            Self::Landing => Pinned::zeros(device, LOWERED_BYTES),
            Self::Passing => Pinned::in_pages(device, LOWERED_BYTES),
        }
    }
}

impl Slots {
    pub(super) fn new(device: &Device, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            kind,
            free: Mutex::default(),
        })
    }

    /// One that nothing uses, nor another process reads.
    pub(super) fn one(self: &Arc<Self>) -> Result<PinnedSlot, DeviceError> {
        let mut free = self.free();
        // The last one first: the fewer there are in turn, the fewer another process has to map.
        let unread = free.iter_mut().rposition(|slot| !slot.are_read());
        let used = unread.map(|at| free.remove(at));
        drop(free);
        let pinned = used.map_or_else(|| self.kind.make(&self.device), Ok)?;
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
        debug_assert!(!self.pinned().are_read(), "what a neighbour reads is not written");
        self.pinned().write().map_err(ResidentError::new)
    }

    fn in_place(&mut self) -> Result<InPlace<'_>, ResidentError> {
        let pinned = self.pinned();
        let bytes = pinned.read().map_err(ResidentError::new)?;
        Ok(InPlace::new(bytes, pinned.pages()))
    }
}

impl Drop for PinnedSlot {
    fn drop(&mut self) {
        let Some(mut own) = self.pinned.take() else { return };
        let mut free = self.slots.free();
        let mut surplus = None;
        if free.len() >= self.slots.kind.kept() {
            // What a neighbour that stands still reads, or cannot read, serves less than one that comes back.
            let worse = if self.slots.kind.is_worse(&mut own) {
                None
            } else {
                free.iter_mut().position(|slot| self.slots.kind.is_worse(slot))
            };
            surplus = worse.map(|at| free.remove(at));
        }
        if free.len() < self.slots.kind.kept() {
            free.push(own);
        } else {
            surplus = Some(own);
        }
        drop(free);
        // What is not kept goes without the others' waiting for it. A neighbour that reads it has it until then.
        drop(surplus);
    }
}
