//! For which snapshots pieces are kept that no manifest names yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_protocol::snapshot::SnapshotId;
use sardana_storage::store::PinId;

use super::limits::MAX_SNAPSHOTS;
use super::shelf::Shelf;

#[derive(Debug, Default)]
struct Held {
    /// The number of the last pin. None is used twice.
    next: u64,
    pins: BTreeMap<SnapshotId, PinId>,
}

impl Held {
    fn fresh(&mut self) -> PinId {
        self.next += 1;
        PinId::new(self.next)
    }
}

/// The pins by snapshot. They are gone when the process ends: what was put before is put again then, which costs nothing as long as it is
/// still there.
#[derive(Debug)]
pub(super) struct Pins {
    shelf: Arc<Shelf>,
    held: Mutex<Held>,
}

impl Pins {
    pub(super) fn new(shelf: Arc<Shelf>) -> Self {
        let held = Mutex::default();
        Self { shelf, held }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pin of this snapshot. None if there are too many.
    pub(super) fn of(&self, snapshot: SnapshotId) -> Option<PinId> {
        let mut held = self.lock();
        if let Some(pin) = held.pins.get(&snapshot) {
            return Some(*pin);
        }
        if held.pins.len() >= MAX_SNAPSHOTS {
            return None;
        }
        let pin = held.fresh();
        held.pins.insert(snapshot, pin);
        Some(pin)
    }

    /// The store forgets all of them, since it is opened anew: a worker that puts for a snapshot begins again, with another one.
    pub(super) fn forget(&self) {
        self.lock().pins.clear();
    }

    /// A pin for a caller that lets go of it.
    pub(super) fn fresh(&self) -> PinId {
        self.lock().fresh()
    }

    /// Whether the pin is still that of this snapshot. If not, whatever was pinned late is let go.
    pub(super) fn still(&self, snapshot: SnapshotId, pin: PinId) -> bool {
        let still = self.lock().pins.get(&snapshot) == Some(&pin);
        if !still {
            self.shelf.unpin(pin);
        }
        still
    }

    /// What was put for this snapshot, or for any before it, is not kept for its sake any more.
    pub(super) fn release(&self, snapshot: SnapshotId) {
        let mut held = self.lock();
        let mut later = held.pins.split_off(&snapshot);
        let own = later.remove(&snapshot);
        let earlier = std::mem::replace(&mut held.pins, later);
        drop(held);
        for pin in earlier.into_values().chain(own) {
            self.shelf.unpin(pin);
        }
    }
}
