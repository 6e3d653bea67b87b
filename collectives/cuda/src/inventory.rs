//! What this machine has for computing on GPUs: the GPUs themselves, and libraries of CUDA with their versions. Must not know what is computed.

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::device::DeviceError;
use crate::device::name_of;
use crate::driver::{Driver, Version};
use crate::raw::context;

pub use crate::libraries::{Library, NoVersion, libraries};

/// A GPU that the driver shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, from 0 on.
    pub ordinal: usize,
    /// In the driver's words.
    pub name: String,
    /// Its compute capability, as in 9.0.
    pub capability: Version,
    /// Bytes of its memory.
    pub memory: u64,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Whether it is an instance of a GPU that is divided (MIG).
    pub is_instance: bool,
}

/// The GPUs that the driver shows.
///
/// # Errors
/// When there is no driver that can be used, or it does not tell.
pub fn gpus() -> Result<Vec<Gpu>, DeviceError> {
    let driver = Driver::of_this_machine()?;
    (0..driver.devices()).map(gpu).collect()
}

fn gpu(ordinal: usize) -> Result<Gpu, DeviceError> {
    let attributes = [
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    ];
    let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let (name, bytes, values) = context::describe(number, attributes).map_err(|error| DeviceError::Failed {
        during: "say what it is",
        code: error.0 as u32,
        name: name_of(error),
    })?;
    let [major, minor, multiprocessors] = values.map(|value| u32::try_from(value).unwrap_or(0));
    Ok(Gpu {
        ordinal,
        // The driver has no other word for it.
        is_instance: name.contains(" MIG "),
        name,
        capability: Version { major, minor },
        memory: bytes as u64,
        multiprocessors,
    })
}
