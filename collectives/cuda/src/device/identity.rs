//! What a GPU is, for people and for comparison with others: what its driver makes of the kernels follows from it, and what libraries on it compute. Must not
//! know what is computed.

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::{Device, DeviceError};
use crate::kernels;
use crate::libraries;

/// What libraries choose their algorithms by.
const VARIABLES: [&str; 2] = ["CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"];

/// As much of a variable as is said.
const MOST_CHARACTERS: usize = 32;

impl Device {
    /// What decides the bits of what is computed on it, each item behind a comma and a blank: the GPU's name (with that of its instance, if it is one),
    /// compute capability and multiprocessors, the driver's version, the first digits of the kernels' hash, and, if they are there, the versions
    /// of libraries that this process has loaded by now and the variables that those heed. As in `cuda, NVIDIA H100 80GB HBM3 (9.0), 132
    /// multiprocessors, driver 12.8 (570.86.15), kernels 1a2b3c4d, cuBLAS 12.8.4, NVIDIA_TF32_OVERRIDE=0`. Not its number, which says nothing of
    /// what it computes.
    ///
    /// # Errors
    /// When the driver does not tell.
    pub fn description(&self) -> Result<String, DeviceError> {
        let context = &self.0.context;
        let multiprocessors = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let (name, (major, minor), multiprocessors) = self.call("say what it is", || {
            Ok((
                context.name()?,
                context.compute_capability()?,
                context.attribute(multiprocessors)?,
            ))
        })?;
        let kernels = blake3::Hash::from(kernels::digest()).to_hex();
        let driver = match libraries::module_version() {
            Some(module) => format!("driver {} ({module})", self.0.driver.version()),
            None => format!("driver {}", self.0.driver.version()),
        };
        let mut items = vec![
            "cuda".to_owned(),
            format!("{name} ({major}.{minor})"),
            format!("{multiprocessors} multiprocessors"),
            driver,
            format!("kernels {}", &kernels[..8]),
        ];
        items.extend(
            libraries::loaded()
                .into_iter()
                .map(|(name, version)| format!("{name} {version}")),
        );
        items.extend(VARIABLES.into_iter().filter_map(variable));
        Ok(items.join(", "))
    }
}

fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?;
    let value = value.to_string_lossy();
    // As a part of a list, and of any length.
    let shown = value.chars().filter(|one| one.is_ascii_graphic() && *one != ',');
    Some(format!("{name}={}", shown.take(MOST_CHARACTERS).collect::<String>()))
}
