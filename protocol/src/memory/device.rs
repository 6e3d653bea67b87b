//! What a worker has of a GPU's memory, and whether what it must have there can ever fit. Knows no GPU.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Bytes;
use crate::limits::MAX_GPU_BYTES;

/// The variable in which an agent tells its workers how many of them have the same GPU.
pub const SHARERS_VARIABLE: &str = "SARDANA_DEVICE_WORKERS";

/// What a worker has of its GPU's memory, and of the host's memory for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Which GPU it is, for people: as `CUDA_VISIBLE_DEVICES` names it, or its number.
    pub gpu: String,
    /// Bytes that the worker holds there now.
    pub held: u64,
    /// The most that it ever held.
    pub peak: u64,
    /// The most that it must have at once, with every gradient in the host's memory.
    pub needed: u64,
    /// Bytes of the GPU that workers may have, all together.
    pub total: u64,
    /// How many workers share it, this one among them.
    pub sharers: u32,
    /// Bytes of the host's memory that are pinned for it, or will be.
    pub pinned: u64,
}

/// What a worker must have of its GPU's memory is more than it can ever have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTooSmall(DeviceMemory);

impl DeviceMemory {
    /// What each of those that share it may have: an equal part.
    #[must_use]
    pub fn share(&self) -> u64 {
        self.total / u64::from(self.sharers.max(1))
    }

    /// Whether it can ever have what it must.
    ///
    /// # Errors
    /// [`DeviceTooSmall`] if it cannot.
    pub fn suffices(&self) -> Result<(), DeviceTooSmall> {
        if self.needed <= self.share() {
            return Ok(());
        }
        Err(DeviceTooSmall(self.clone()))
    }

    /// With a name that is not too long to be told.
    #[must_use]
    pub fn named(mut self, gpu: &str) -> Self {
        let mut end = gpu.len().min(MAX_GPU_BYTES);
        while !gpu.is_char_boundary(end) {
            end -= 1;
        }
        gpu[..end].clone_into(&mut self.gpu);
        self
    }
}

impl std::error::Error for DeviceTooSmall {}

impl fmt::Display for DeviceTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(memory) = self;
        let (needed, total) = (Bytes(memory.needed), Bytes(memory.total));
        write!(
            f,
            "a worker needs {needed} of its GPU's memory at once, beside gradients; this one's, {}, has {total}",
            memory.gpu
        )?;
        if memory.sharers > 1 {
            write!(
                f,
                ", which is {} for each of the {} workers that share it",
                Bytes(memory.share()),
                memory.sharers
            )?;
        }
        f.write_str(": use a GPU with more, start fewer workers for each GPU, or set more shards, if it is a shard's samples that need it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn memory(needed: u64, sharers: u32) -> DeviceMemory {
        DeviceMemory {
            needed: needed * GIB,
            total: 80 * GIB,
            sharers,
            ..DeviceMemory::default()
        }
        .named("GPU-a")
    }

    #[test]
    fn what_can_never_fit_is_told_with_both_sizes() {
        assert_eq!(memory(80, 1).suffices(), Ok(()));
        assert_eq!(memory(40, 2).suffices(), Ok(()));
        assert_eq!(memory(1, 0).suffices(), Ok(()), "a worker is one of those that share");
        let alone = memory(81, 1).suffices().unwrap_err().to_string();
        assert!(
            alone.contains("needs 81 GiB") && alone.contains("GPU-a, has 80 GiB: use"),
            "{alone}"
        );
        let shared = memory(41, 2).suffices().unwrap_err().to_string();
        assert!(
            shared.contains("has 80 GiB, which is 40 GiB for each of the 2 workers"),
            "{shared}"
        );
    }

    #[test]
    fn a_name_is_cut_where_it_is_too_long() {
        let long = "ü".repeat(MAX_GPU_BYTES);
        let named = DeviceMemory::default().named(&long).gpu;
        assert!(named.len() <= MAX_GPU_BYTES && long.starts_with(&named) && !named.is_empty());
    }
}
