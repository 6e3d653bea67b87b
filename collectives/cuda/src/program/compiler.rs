//! The compiler of this machine: found or not, and what it compiles for. Must not know what is compiled.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use super::error::{CompilerAbsent, ProgramError};
use super::log;
use crate::mapped;
use crate::raw::nvrtc::{self, Calls, Failed, Input};

/// NVRTC, with what it says of itself.
#[derive(Debug)]
pub(super) struct Compiler {
    calls: Calls,
    version: String,
    /// None where it is not known which file it is.
    build: Option<String>,
    architectures: Vec<u32>,
}

impl From<Failed> for ProgramError {
    fn from(Failed { call, words }: Failed) -> Self {
        Self::Failed { call, words }
    }
}

impl Compiler {
    /// The compiler of this machine. It is looked for by the first call of a process, and found or not for as long as that lives.
    pub(super) fn of_this_machine() -> Result<&'static Self, ProgramError> {
        static FOUND: OnceLock<Result<Compiler, ProgramError>> = OnceLock::new();
        FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// What tells it from any other: its version, as in 12.8, of which there are several releases, and its file, with its size and the time of its last change.
    pub(super) fn build(&self) -> Option<&str> {
        self.build.as_deref()
    }

    /// The newest architecture that it compiles for and a device has, both as in 90 for compute capability 9.0.
    pub(super) fn architecture(&self, device: u32) -> Result<u32, CompilerAbsent> {
        newest(&self.architectures, device).ok_or_else(|| CompilerAbsent::Architecture {
            device,
            version: self.version.clone(),
            oldest: self
                .architectures
                .iter()
                .min()
                .map_or_else(|| "none".to_owned(), ToString::to_string),
        })
    }

    /// PTX of a source.
    pub(super) fn compile(&self, input: &Input) -> Result<String, ProgramError> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match self.calls.compile(input)? {
            Ok(ptx) => Ok(text(ptx)),
            Err(said) => Err(log::first_error(text(said)).into()),
        }
    }
}

fn find() -> Result<Compiler, ProgramError> {
    let library = nvrtc::open().map_err(|reason| CompilerAbsent::Library { reason })?;
    let calls = Calls::of(&library).map_err(|function| CompilerAbsent::Function {
        function,
        library: library.name.clone(),
    })?;
    let [major, minor] = calls.version()?;
    let version = format!("{major}.{minor}");
    let file = mapped::file_at(&mapped::mappings(), calls.address());
    Ok(Compiler {
        build: file.and_then(|file| build(&version, &file)),
        version,
        architectures: calls.architectures()?,
        calls,
    })
}

fn build(version: &str, file: &Path) -> Option<String> {
    let found = file.metadata().ok()?;
    let (size, [seconds, part]) = (found.size(), [found.mtime(), found.mtime_nsec()]);
    Some(format!("{version} {file:?} {size} {seconds}.{part:09}"))
}

fn newest(architectures: &[u32], device: u32) -> Option<u32> {
    architectures.iter().copied().filter(|one| *one <= device).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_another_build_of_the_same_version() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::write(&one, "1").unwrap();
        std::fs::copy(&one, &other).unwrap();
        let first = build("12.8", &one);
        assert_eq!((first.is_some(), &first), (true, &build("12.8", &one)));
        assert_ne!(build("12.8", &other), first);
        assert_ne!(build("12.9", &one), first);
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        std::fs::File::options()
            .write(true)
            .open(&one)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_ne!(build("12.8", &one), first);
        assert_eq!(build("12.8", &folder.path().join("none")), None);
    }

    #[test]
    fn a_device_that_is_newer_than_the_compiler_gets_code_for_the_newest_that_it_knows() {
        let known = [75, 80, 90, 86];
        assert_eq!(
            [75, 80, 89, 90, 120].map(|device| newest(&known, device)),
            [75, 80, 86, 90, 90].map(Some)
        );
        assert_eq!((newest(&known, 70), newest(&[], 90)), (None, None));
    }
}
