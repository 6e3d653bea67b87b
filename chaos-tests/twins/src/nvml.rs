//! The twin of NVML: a `libnvidia-ml.so.1` beside a twin driver, for processes that a test starts. Knows no such program.
//!
//! It tells of the GPUs that the variable `TWIN_GPUS` names, see `host/nvml.cc`. A program that asks before its beginning or behind its end, or leaves it begun,
//! ends with a message.

use std::fs;

use crate::compiler::{CompileError, Compiler};
use crate::driver::DriverFiles;

/// Its file, in the driver's folder: the only name that containers have.
const NAME: &str = "libnvidia-ml.so.1";

impl DriverFiles {
    /// Adds NVML's twin to the folder. Processes find it with the driver.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn with_nvml(self, compiler: &Compiler) -> Result<Self, CompileError> {
        fs::write(self.folder().join("nvml.cc"), include_str!("../host/nvml.cc"))?;
        compiler.run(self.folder(), "the twin of NVML", &["-shared", "nvml.cc", "-o", NAME])?;
        Ok(self)
    }
}
