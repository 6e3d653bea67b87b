//! Which GPU a device is, how much memory it has, and how many workers share it. Must not know what they compute.

use std::env;
use std::ffi::OsString;

use sardana_protocol::memory::{DeviceMemory, SHARERS_VARIABLE};

use super::{Device, DeviceError, locked};

/// What is known of a device and does not change.
#[derive(Debug)]
pub(super) struct Place {
    /// With nothing held.
    known: DeviceMemory,
}

impl Place {
    /// Of the GPU of this number among those that the process sees, of whose memory workers may have `total` bytes.
    pub(super) fn find(ordinal: usize, total: u64) -> Self {
        let known = DeviceMemory {
            total,
            sharers: sharers(env::var_os(SHARERS_VARIABLE)),
            ..DeviceMemory::default()
        };
        let gpu = name(ordinal, env::var_os("CUDA_VISIBLE_DEVICES"));
        Self {
            known: known.named(&gpu),
        }
    }

    /// Bytes that this worker may have.
    pub(super) fn share(&self) -> u64 {
        self.known.share()
    }
}

impl Device {
    /// What is held of its memory, and of what.
    pub(crate) fn known_memory(&self) -> DeviceMemory {
        let (held, pinned) = (self.memory(), self.pinned());
        DeviceMemory {
            held: held.held,
            peak: held.peak,
            pinned: pinned.peak,
            ..self.0.place.known.clone()
        }
    }

    /// Bytes of its memory that tensors may still have, and that are no other's who shares it.
    pub(crate) fn memory_left(&self) -> Result<u64, DeviceError> {
        let (found, left) = {
            let account = locked(&self.0.device_memory);
            (account.found(), account.left())
        };
        let own = self.0.place.share().saturating_sub(found.held);
        Ok(own.min(left).min(self.free_memory()?))
    }

    /// Bytes of the device's memory that is free: neither this process nor another one has them.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn free_memory(&self) -> Result<u64, DeviceError> {
        let found = self.call("tell how much memory is left", || self.0.context.mem_get_info())?;
        Ok(found.0 as u64)
    }
}

/// What the variable calls the GPU that is this one for the process, or its number.
fn name(ordinal: usize, visible: Option<OsString>) -> String {
    let visible = visible.and_then(|names| names.into_string().ok());
    let named = visible.as_deref().and_then(|names| names.split(',').nth(ordinal));
    let named = named.map(str::trim).filter(|name| !name.is_empty());
    named.map_or_else(|| ordinal.to_string(), str::to_owned)
}

fn sharers(told: Option<OsString>) -> u32 {
    let told = told.and_then(|number| number.into_string().ok()?.parse().ok());
    told.unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_called_what_the_process_is_told_or_by_its_number() {
        let of = |ordinal, visible: Option<&str>| name(ordinal, visible.map(OsString::from));
        assert_eq!(of(0, Some("GPU-a")), "GPU-a");
        assert_eq!(of(1, Some("3, 5")), "5");
        assert_eq!(of(2, Some("3,5")), "2");
        assert_eq!(of(1, None), "1");
        assert_eq!(of(0, Some("")), "0");
    }

    #[test]
    fn each_of_those_that_share_a_gpu_has_an_equal_part() {
        let of = |told: Option<&str>| sharers(told.map(OsString::from));
        assert_eq!([None, Some("3"), Some("0"), Some("many")].map(of), [1, 3, 1, 1]);
    }
}
