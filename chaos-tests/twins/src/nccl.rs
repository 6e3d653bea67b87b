//! The twin of NCCL: a `libnccl.so` beside a twin driver, for processes that a test starts. Knows no such program.
//!
//! Ranks are processes of one host. A sum is put on its stream when the program asks how far it is, which is as late as NCCL may, and waits there for all of them, also
//! for one that is dead, until the waiting rank aborts. A program that asks for the next thing before the last one is enqueued, destroys what is in use, or aborts
//! twice, ends with a message.

use std::fs;

use crate::compiler::{CompileError, Compiler};
use crate::driver::DriverFiles;

/// What ranks write down in the folder that `TWIN_NCCL` names: a line for each communicator that a rank has `made` or `aborted`, and for each sum that it has
/// `summed`, with its number and that of all ranks behind it.
pub const NCCL_CALLS: &str = "calls";

/// Its file, in the driver's folder.
const NAME: &str = "libnccl.so";

impl DriverFiles {
    /// Adds NCCL's twin to the folder. Processes find it with the driver; ranks share files in the folder that the variable `TWIN_NCCL` names.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn with_nccl(self, compiler: &Compiler) -> Result<Self, CompileError> {
        fs::write(self.folder().join("nccl.cc"), include_str!("../host/nccl.cc"))?;
        let arguments = ["-shared", "nccl.cc", "-ldl", "-o", NAME];
        compiler.run(self.folder(), "the twin of NCCL", &arguments)?;
        Ok(self)
    }
}
