//! What a GPU is, for people and for comparison with others: what its driver makes of the kernels follows from it. Must not know what is computed.

use super::{Device, DeviceError};
use crate::kernels;

impl Device {
    /// The GPU's name, its compute capability, the driver's version, and the first digits of the kernels' hash: as in `cuda, NVIDIA H100 80GB HBM3
    /// (9.0), driver 12.8, kernels 1a2b3c4d`. Not its number, which says nothing of what it computes.
    ///
    /// # Errors
    /// When the driver does not tell.
    pub fn description(&self) -> Result<String, DeviceError> {
        let context = &self.0.context;
        let (name, (major, minor)) = self.call("say what it is", || Ok((context.name()?, context.compute_capability()?)))?;
        let driver = self.0.driver.version();
        let kernels = blake3::Hash::from(kernels::digest()).to_hex();
        Ok(format!(
            "cuda, {name} ({major}.{minor}), driver {driver}, kernels {}",
            &kernels[..8]
        ))
    }
}
