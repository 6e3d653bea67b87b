//! File systems of our own, where the machine allows it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A child becomes another program within milliseconds, unless the host is very busy.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match output {
        Err(error) => Err(format!("{program}: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Copies a folder with what is in it, as private as it is.
pub(crate) fn copy(from: &Path, to: &Path) {
    run("cp", &["-a", text(from), text(to)]).unwrap();
}

/// Something mounted at a folder, until it is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn new(at: &Path, arguments: &[&str]) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        run("mount", &[arguments, &[text(at)]].concat())?;
        Ok(Self(at.to_owned()))
    }

    /// A file system in memory, of so many bytes.
    pub(crate) fn memory(at: &Path, bytes: u64) -> Result<Self, String> {
        let size = format!("size={bytes},mode=0700");
        Self::new(at, &["-t", "tmpfs", "-o", &size, "sardana-test"])
    }

    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run("mount", &["-o", &options, text(&self.0)]).unwrap();
    }

    pub(crate) fn unmount(self) {
        let begun = Instant::now();
        // A child that another test is just starting still has the files that were open here, until it has become another program.
        while let Err(error) = run("umount", &[text(&self.0)]) {
            assert!(begun.elapsed() < PATIENCE && error.contains("busy"), "{error}");
        }
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failed test a process may still be in it.
        let _ = run("umount", &["-l", text(&self.0)]);
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
