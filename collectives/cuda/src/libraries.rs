//! Libraries that programs may use on a GPU: which are there, which this process has loaded, and their versions. Must not know what they compute.

use thiserror::Error;

use crate::driver::version_of;
use crate::mapped;
use crate::raw::library::{self, OpenLibrary};
use crate::raw::nvrtc;

/// A library that programs may use on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its name, as in `cuBLAS`.
    pub name: &'static str,
    /// What was found of it: the name of its file, and its version if it tells; or the loader's words.
    pub found: Result<(String, Result<String, NoVersion>), String>,
}

/// Why a library that is there does not tell its version. What programs call in it may be missing as well: install it anew.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoVersion {
    /// It is not what its name says, or not all of it.
    #[error("it lacks the function {0}, which each version has")]
    Lacks(&'static str),
    /// It was asked, and refused.
    #[error("its function {function} says no version, but code {code}")]
    Refused {
        /// That was asked.
        function: &'static str,
        /// The library's.
        code: i32,
    },
}

/// A library, and how it is asked for its version.
struct Known {
    name: &'static str,
    /// What is between `lib` and `.so` in the names of its files.
    stem: &'static str,
    open: fn() -> Result<OpenLibrary, String>,
    version: fn(&OpenLibrary) -> Result<String, NoVersion>,
}

const LIBRARIES: [Known; 6] = [
    Known {
        name: "NVRTC",
        stem: "nvrtc",
        open: nvrtc::open,
        version: |library| {
            let [major, minor] = told("nvrtcVersion", |name| library.call_for_two_numbers(name))?;
            Ok(format!("{major}.{minor}"))
        },
    },
    Known {
        name: "cudart",
        stem: "cudart",
        open: || library::open(library::names("cudart")),
        version: |library| {
            let version = told("cudaRuntimeGetVersion", |name| library.call_for_number(name))?;
            Ok(version_of(version).to_string())
        },
    },
    Known {
        name: "cuBLAS",
        stem: "cublas",
        open: || library::open(names("cublas", "libcublas.so.13")),
        version: |library| {
            // 0, 1 and 2 stand for the major, the minor and the patch.
            let part = |which| told("cublasGetProperty", |name| library.call_for_property(name, which));
            let [major, minor, patch] = [part(0)?, part(1)?, part(2)?];
            Ok(format!("{major}.{minor}.{patch}"))
        },
    },
    Known {
        name: "cuRAND",
        stem: "curand",
        open: || library::open(library::names("curand")),
        version: |library| {
            let version = told("curandGetVersion", |name| library.call_for_number(name))?;
            Ok(curand_version(version))
        },
    },
    Known {
        name: "cuDNN",
        stem: "cudnn",
        open: || library::open(names("cudnn", "libcudnn.so.8")),
        version: |library| {
            let version = told("cudnnGetVersion", |name| Some((0, library.call_for_size(name)?)))?;
            Ok(cudnn_version(version))
        },
    },
    Known {
        name: "NCCL",
        stem: "nccl",
        open: || library::open(library::nccl_names()),
        version: |library| {
            let version = told("ncclGetVersion", |name| library.call_for_number(name))?;
            Ok(nccl_version(version))
        },
    },
];

/// What a function says that answers with a code besides, if it is there and the code is none of a failure.
fn told<T>(function: &'static str, ask: impl FnOnce(&str) -> Option<(i32, T)>) -> Result<T, NoVersion> {
    match ask(function) {
        Some((0, told)) => Ok(told),
        Some((code, _)) => Err(NoVersion::Refused { function, code }),
        None => Err(NoVersion::Lacks(function)),
    }
}

/// The names of a library's file, with one that the bindings do not know.
fn names(stem: &str, more: &str) -> impl Iterator<Item = String> {
    library::names(stem).chain([more.to_owned()])
}

impl Known {
    fn open(&self) -> Library {
        let found = (self.open)().map(|library| (library.name.clone(), (self.version)(&library)));
        Library { name: self.name, found }
    }

    /// Whether this is its file: in a package for Python the name may have eight digits of a hash behind the stem.
    fn is_at(&self, path: &str) -> bool {
        let rest = path
            .rsplit_once('/')
            .and_then(|(_, name)| name.strip_prefix("lib")?.strip_prefix(self.stem));
        let hash = rest.and_then(|rest| rest.strip_prefix('-')?.split_once(".so"));
        let is_hash = |hash: &str| hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        rest.is_some_and(|rest| rest.starts_with(".so")) || hash.is_some_and(|(hash, _)| is_hash(hash))
    }

    /// Its version, if this process has it, and not that of another one of the same name: what is loaded from this path already is not loaded anew.
    fn loaded(&self, mappings: &str) -> Option<(&'static str, String)> {
        let path = mapped::files(mappings).find(|path| self.is_at(path))?;
        let version = library::open([path.to_owned()])
            .ok()
            .and_then(|library| (self.version)(&library).ok());
        Some((self.name, version.unwrap_or_else(|| "of an unknown version".to_owned())))
    }
}

/// The libraries beside the driver: NVRTC, the CUDA runtime, cuBLAS, cuRAND, cuDNN and NCCL, each opened to ask for its version, which takes a second or so.
#[must_use]
pub fn libraries() -> [Library; 6] {
    LIBRARIES.map(|known| known.open())
}

/// Those of them that this process has loaded already, with their versions. None where the system does not tell.
pub(crate) fn loaded() -> Vec<(&'static str, String)> {
    let mappings = mapped::mappings();
    LIBRARIES.iter().filter_map(|known| known.loaded(&mappings)).collect()
}

/// The version of the driver's part in the kernel, which is that of the driver's files. None where there is none.
pub(crate) fn module_version() -> Option<String> {
    version_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word of the first line that consists of numbers with dots between them.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        parts.clone().count() > 1 && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let version = text.lines().next()?.split_whitespace().find(is_version)?;
    Some(version.to_owned())
}

/// cuDNN counts 10,000 a major version since 9, and 1,000 before.
fn cudnn_version(number: usize) -> String {
    let major = if number >= 90_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

/// cuRAND counts 1,000 a major and 100 a minor version.
fn curand_version(number: i32) -> String {
    format!("{}.{}.{}", number / 1_000, number % 1_000 / 100, number % 100)
}

/// NCCL counts 10,000 a major version since 2.9, and 1,000 before.
fn nccl_version(number: i32) -> String {
    let major = if number >= 10_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_each_library_counts_them() {
        assert_eq!([91_002, 90_100, 8_907].map(cudnn_version), ["9.10.2", "9.1.0", "8.9.7"]);
        assert_eq!(curand_version(10_307), "10.3.7");
        assert_eq!([22_703, 20_900, 2_804].map(nccl_version), ["2.27.3", "2.9.0", "2.8.4"]);
    }

    #[test]
    fn a_library_that_does_not_tell_its_version_says_why() {
        assert_eq!(told("f", |_| Some((0, 7))), Ok(7));
        let said = |answer: Option<(i32, i32)>| told("f", |_| answer).unwrap_err().to_string();
        assert_eq!(said(None), "it lacks the function f, which each version has");
        assert_eq!(said(Some((3, 7))), "its function f says no version, but code 3");
    }

    #[test]
    fn the_version_of_the_module_is_the_first_number_with_dots() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\nGCC version: 12.1\n";
        assert_eq!(version_in(text).as_deref(), Some("580.159.04"));
        for none in ["", "NVRM version: none\nGCC version: 12.1", "NVRM 580. .5 x.1"] {
            assert_eq!(version_in(none), None, "{none}");
        }
    }

    #[test]
    fn a_library_is_known_by_its_file() {
        let at = |path: &str| {
            let known = LIBRARIES.iter().filter(|known| known.is_at(path));
            known.map(|known| known.name).collect::<Vec<_>>()
        };
        assert_eq!(at("/opt/cuda/libcudnn.so.9.1"), ["cuDNN"]);
        assert_eq!(at("/a b/libnvrtc-672ee683.so.11.2"), ["NVRTC"]);
        for other in [
            "/usr/lib/libcublasLt.so.12",
            "/usr/lib/libnvrtc-builtins.so.12.8",
            "/usr/lib/libnccl.so/other",
            "/usr/lib/libncclx.so",
            "/usr/lib/nccl.so",
            "",
        ] {
            assert_eq!(at(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn the_library_that_is_loaded_is_asked_and_no_other_of_its_name() {
        let Some(compiler) = sardana_twins::Compiler::or_skip() else {
            return;
        };
        let nccl = || loaded().into_iter().find(|(name, _)| *name == "NCCL");
        let twin = compiler
            .driver_files(&[])
            .and_then(|files| files.with_nccl(&compiler))
            .unwrap();
        // None of this machine's, where it has one, is loaded in its place.
        assert_eq!(nccl(), None);
        let _open = library::open([twin.folder().join("libnccl.so").display().to_string()]).unwrap();
        assert_eq!(nccl(), Some(("NCCL", "2.27.3".to_owned())));
    }

    #[test]
    fn each_library_is_found_or_it_is_said_why_not() {
        let libraries = libraries();
        assert_eq!(
            libraries.each_ref().map(|library| library.name),
            ["NVRTC", "cudart", "cuBLAS", "cuRAND", "cuDNN", "NCCL"]
        );
        for library in libraries {
            match library.found {
                Ok((file, _)) => assert!(file.contains(".so"), "{file}"),
                Err(reason) => assert!(!reason.is_empty(), "{}", library.name),
            }
        }
    }
}
