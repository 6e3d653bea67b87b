//! What the training thread tells of a GPU's memory. Part of the step driver.

use std::sync::PoisonError;

use sardana_protocol::memory::DeviceMemory;

use super::StepDriver;

impl StepDriver {
    /// What the model has of a GPU's memory now, if it knows: it is told with the next heartbeat.
    pub fn note_device_memory(&self, memory: Option<DeviceMemory>) {
        *self.device_memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    pub(crate) fn device_memory(&self) -> Option<DeviceMemory> {
        self.device_memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
