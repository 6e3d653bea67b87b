//! Is there a GPU that can be used? Asked without a panic: the bindings panic where the driver's library or one of its functions is missing, so it
//! is looked for by their own names first. Must not know what is computed.

use std::fmt;
use std::sync::OnceLock;

use thiserror::Error;

use crate::raw::library::{self, OpenLibrary};

/// What a reader of [`Absent`] can do.
const INSTALL: &str = "install NVIDIA's driver, or run on processors with `--device cpu`";

/// The driver's functions that this crate calls, or the bindings for it.
pub const FUNCTIONS: [&str; 44] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuPointerGetAttribute",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// A function of newer drivers that is called where it is there: it tells how long a kernel's parameters are.
pub(crate) const PARAMETER_SIZES: &str = "cuFuncGetParamInfo";

/// The oldest driver that translates the kernels, which are PTX of version 8.7.
pub const OLDEST: Version = Version { major: 12, minor: 8 };

/// CUDA's code for "there is no device".
const NO_DEVICE: i32 = 100;

/// A version of CUDA that a driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// As in 12.8.
    pub major: u32,
    /// As in 12.8.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Why no GPU can be used: what was expected, what was found, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Absent {
    /// The driver's library cannot be opened.
    #[error("expected the NVIDIA driver's library, libcuda.so.1, found none: {reason}; {INSTALL}")]
    Library {
        /// In the loader's words.
        reason: String,
    },
    /// The library lacks a function, as that of an old driver does.
    #[error(
        "expected {function} in the NVIDIA driver's library {library}, which lacks it; install a driver for CUDA {OLDEST} or later, or run on processors with `--device cpu`"
    )]
    Function {
        /// Its name.
        function: &'static str,
        /// The name under which the library was found.
        library: String,
    },
    /// The driver does not start.
    #[error(
        "expected the NVIDIA driver to start, found that it says {name} ({code}); see that the kernel module is loaded and of the same version (`nvidia-smi`), or run on processors with `--device cpu`"
    )]
    Refused {
        /// CUDA's code.
        code: i32,
        /// CUDA's name for it, or `unknown`.
        name: String,
    },
    /// The driver is too old for the kernels.
    #[error(
        "expected an NVIDIA driver for CUDA {OLDEST} or later, found one for {found}; install a newer driver, or run on processors with `--device cpu`"
    )]
    Old {
        /// What this driver supports.
        found: Version,
    },
    /// The driver works, and shows no GPU.
    #[error(
        "expected a GPU, found none that the NVIDIA driver shows; see `nvidia-smi` and CUDA_VISIBLE_DEVICES, or run on processors with `--device cpu`"
    )]
    NoDevice,
    /// There are GPUs, and none of this number.
    #[error(
        "expected a GPU of number {asked}, found {found} of them, numbered from 0; choose another, or run on processors with `--device cpu`"
    )]
    Ordinal {
        /// The number that was asked for.
        asked: usize,
        /// How many there are.
        found: usize,
    },
}

/// A driver that started. It shows at least one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driver {
    version: Version,
    devices: usize,
    tells_parameter_sizes: bool,
}

impl Driver {
    /// The driver of this machine. It is started by the first call of a process, and found or not for as long as that lives.
    ///
    /// # Errors
    /// Says why there is none that can be used.
    pub fn of_this_machine() -> Result<Self, Absent> {
        static FOUND: OnceLock<Result<Driver, Absent>> = OnceLock::new();
        FOUND.get_or_init(|| start(open()?)).clone()
    }

    /// The newest version of CUDA that it supports.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// How many GPUs it shows: one or more.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices
    }

    /// Whether it shows a GPU of this number, from 0 on.
    ///
    /// # Errors
    /// When it shows none of this number.
    pub const fn require(&self, ordinal: usize) -> Result<(), Absent> {
        if ordinal < self.devices {
            Ok(())
        } else {
            Err(Absent::Ordinal {
                asked: ordinal,
                found: self.devices,
            })
        }
    }

    /// Whether [`PARAMETER_SIZES`] may be called.
    pub(crate) const fn tells_parameter_sizes(&self) -> bool {
        self.tells_parameter_sizes
    }
}

fn open() -> Result<OpenLibrary, Absent> {
    let names = ["cuda", "nvcuda"].into_iter().flat_map(library::names);
    library::open(names).map_err(|reason| Absent::Library { reason })
}

fn start(library: OpenLibrary) -> Result<Driver, Absent> {
    if let Some(function) = FUNCTIONS.into_iter().find(|function| !library.has(function)) {
        return Err(Absent::Function {
            function,
            library: library.name,
        });
    }
    let is_there = "its functions were looked for";
    accept(&library, library.call_with_flags("cuInit", 0).expect(is_there))?;
    let (code, version) = library.call_for_number("cuDriverGetVersion").expect(is_there);
    accept(&library, code)?;
    let (code, devices) = library.call_for_number("cuDeviceGetCount").expect(is_there);
    accept(&library, code)?;
    let version = version_of(version);
    match usize::try_from(devices) {
        Ok(0) | Err(_) => Err(Absent::NoDevice),
        Ok(_) if version < OLDEST => Err(Absent::Old { found: version }),
        Ok(devices) => Ok(Driver {
            version,
            devices,
            tells_parameter_sizes: library.has(PARAMETER_SIZES),
        }),
    }
}

/// CUDA counts 1,000 a major and 10 a minor version.
fn version_of(number: i32) -> Version {
    let number = u32::try_from(number).unwrap_or(0);
    Version {
        major: number / 1_000,
        minor: number % 1_000 / 10,
    }
}

fn accept(library: &OpenLibrary, code: i32) -> Result<(), Absent> {
    match code {
        0 => Ok(()),
        NO_DEVICE => Err(Absent::NoDevice),
        code => Err(Absent::Refused {
            code,
            name: library
                .call_for_text("cuGetErrorName", code)
                .unwrap_or_else(|| "unknown".to_owned()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_cuda_counts_it() {
        assert_eq!(version_of(12_080), OLDEST);
        assert_eq!(version_of(13_010).to_string(), "13.1");
        assert_eq!(version_of(-1).to_string(), "0.0");
        assert!(version_of(9_020) < OLDEST && version_of(13_000) > OLDEST);
    }

    #[test]
    fn each_absence_says_what_was_expected_and_found_and_what_to_do() {
        let absent = [
            Absent::Library {
                reason: "no such file".into(),
            },
            Absent::Function {
                function: "cuInit",
                library: "libcuda.so".into(),
            },
            Absent::Refused {
                code: 803,
                name: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".into(),
            },
            Absent::Old {
                found: version_of(11_040),
            },
            Absent::NoDevice,
            Absent::Ordinal { asked: 2, found: 1 },
        ];
        for absent in absent {
            let words = absent.to_string();
            assert!(words.starts_with("expected "), "{words}");
            assert!(words.ends_with("run on processors with `--device cpu`"), "{words}");
        }
    }

    #[test]
    fn the_functions_are_named_once() {
        let mut sorted = FUNCTIONS;
        sorted.sort_unstable();
        let mut once = sorted.to_vec();
        once.dedup();
        assert_eq!(once, sorted);
    }

    #[test]
    fn a_number_of_a_gpu_beyond_the_last_is_refused() {
        let driver = Driver {
            version: OLDEST,
            devices: 2,
            tells_parameter_sizes: false,
        };
        assert_eq!(driver.require(1), Ok(()));
        assert_eq!(driver.require(2), Err(Absent::Ordinal { asked: 2, found: 2 }));
    }
}
