//! What a worker has of a device's memory, and of the host's for what carries its gradients.

use sardana_collectives::limits::LOWERED_BYTES;
use sardana_protocol::memory::DeviceMemory;

use super::carrier::WRITERS_SLOTS;
use super::slots::KEPT_SLOTS;
use crate::device::Device;

/// The pinned memory that carries a device's gradients: parts of sums and gradients on their way, and what is being spilled.
const CARRIER_PINNED_BYTES: u64 = ((KEPT_SLOTS + WRITERS_SLOTS) * LOWERED_BYTES) as u64;

impl Device {
    /// What a worker says of its memory there, where `needed` is the most bytes that it must have at once: all but gradients, which may lie in the host's, and
    /// 4 MiB for parts of sums on their way. Asks the driver nothing.
    #[must_use]
    pub fn worker_memory(&self, needed: u64) -> DeviceMemory {
        let known = self.known_memory();
        DeviceMemory {
            needed,
            // It is pinned when it is first needed.
            pinned: known.pinned.saturating_add(CARRIER_PINNED_BYTES),
            ..known
        }
    }
}
