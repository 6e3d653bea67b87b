//! The machine's C++ compiler: where it is, and what it makes of kernels. Knows not what they do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::library::Twin;
use crate::source::Source;

/// The twin's own sources, which are in this program, so that it needs none beside it.
const HOST: [(&str, &str); 5] = [
    ("device.h", include_str!("../host/device.h")),
    ("twin.h", include_str!("../host/twin.h")),
    ("memory.cc", include_str!("../host/memory.cc")),
    ("scheduler.cc", include_str!("../host/scheduler.cc")),
    ("unit.cc", include_str!("../host/unit.cc")),
];

const ALL: &[&str] = &["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions"];

/// For kernels. Compilers contract products and sums where the processor can, unless told otherwise. The sanitizers only announce what is accessed
/// and what is undefined; what answers is the twin.
const GCC: &[&str] = &[
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fsanitize=thread,shift,bounds,integer-divide-by-zero,alignment",
];

/// The same. Clang leaves a read out where a write to the same place follows, unless told otherwise.
const CLANG: &[&str] = &[
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fsanitize=thread,shift,array-bounds,integer-divide-by-zero,alignment",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
];

/// A C++ compiler.
#[derive(Clone, Debug)]
pub struct Compiler {
    path: PathBuf,
    is_clang: bool,
}

/// Why there is no twin of a source.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The source is no C++, or uses what a twin refuses.
    #[error("the compiler refuses {what}: {said}")]
    Refused {
        /// What was compiled.
        what: String,
        /// What the compiler said.
        said: String,
    },
    /// The kernels cannot be loaded.
    #[error("what was compiled cannot be loaded: make sure that the folder for temporary files allows it")]
    Load(#[source] libloading::Error),
    /// Files cannot be written, or the compiler not started.
    #[error("the folder for what is compiled cannot be used, or the compiler not started")]
    Io(#[from] io::Error),
}

/// Says that a test is skipped, for want of a compiler.
pub(crate) fn skips() {
    println!("skipped: no C++ compiler is installed, or the variable CXX names none");
}

impl Compiler {
    /// The one that the variable `CXX` names, or else the first that is installed, and that can announce what kernels access. None where there is none.
    #[must_use]
    pub fn find() -> Option<Self> {
        let named = std::env::var_os("CXX").filter(|name| !name.is_empty()).map(PathBuf::from);
        let names = named.map_or_else(|| ["c++", "g++", "clang++"].map(PathBuf::from).to_vec(), |named| vec![named]);
        names.into_iter().find_map(Self::at)
    }

    /// The same; where there is none it says that a test is skipped.
    #[must_use]
    pub fn or_skip() -> Option<Self> {
        let found = Self::find();
        if found.is_none() {
            skips();
        }
        found
    }

    fn at(path: PathBuf) -> Option<Self> {
        let version = Command::new(&path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let is_clang = String::from_utf8_lossy(&version.stdout).contains("clang");
        let compiler = Self { path, is_clang };
        // Nothing at all, with every option.
        let arguments = [compiler.kernels(), &["-x", "c++", "-c", "-", "-o", "/dev/null"]].concat();
        compiler
            .run(Path::new("."), "nothing", &arguments)
            .is_ok()
            .then_some(compiler)
    }

    /// The options for kernels.
    fn kernels(&self) -> &'static [&'static str] {
        if self.is_clang { CLANG } else { GCC }
    }

    /// Compiles and loads kernels. Nothing of it is left on the disk.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn compile(&self, source: &Source) -> Result<Twin, CompileError> {
        let folder = tempfile::tempdir()?;
        Twin::load(&self.make(source, folder.path())?).map_err(CompileError::Load)
    }

    /// Compiles kernels in a folder. Returns the library's file.
    pub(crate) fn make(&self, source: &Source, folder: &Path) -> Result<PathBuf, CompileError> {
        for (name, text) in HOST.into_iter().chain(source.files()) {
            fs::write(folder.join(name), text)?;
        }
        fs::write(folder.join("kernels.cc"), source.unit())?;
        self.run(
            folder,
            "the kernels",
            &[self.kernels(), &["-c", "kernels.cc", "-o", "kernels.o"]].concat(),
        )?;
        fs::write(folder.join("unit.o"), self.host(folder)?)?;
        self.run(
            folder,
            "the twin",
            &["-shared", "kernels.o", "unit.o", "-lm", "-o", "twin.so"],
        )?;
        Ok(folder.join("twin.so"))
    }

    /// The twin without kernels, which is made once.
    fn host(&self, folder: &Path) -> Result<&'static [u8], CompileError> {
        static HOST: OnceLock<Vec<u8>> = OnceLock::new();
        if let Some(made) = HOST.get() {
            return Ok(made);
        }
        self.run(folder, "the twin", &["-c", "unit.cc", "-o", "host.o"])?;
        let made = fs::read(folder.join("host.o"))?;
        Ok(HOST.get_or_init(|| made))
    }

    pub(crate) fn run(&self, folder: &Path, what: &str, arguments: &[&str]) -> Result<(), CompileError> {
        let mut command = Command::new(&self.path);
        let output = command
            .args(ALL)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(CompileError::Refused {
            what: what.to_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
