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

/// The oldest GPUs that the kernels can be translated for, by their compute capability: their PTX is for it, and runs on all later ones.
pub const OLDEST_GPU: Version = Version { major: 8, minor: 0 };

/// Which attributes of a device the two numbers of its compute capability are.
const CAPABILITY: [i32; 2] = [75, 76];

/// CUDA's code for "there is no device".
const NO_DEVICE: i32 = 100;

/// A version of CUDA that a driver supports, or a GPU's compute capability.
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
    /// The GPU is too old for the kernels.
    #[error(
        "expected a GPU of compute capability {OLDEST_GPU} or later, found that number {ordinal} has {found}; choose another, by its number or by CUDA_VISIBLE_DEVICES, or run on processors with `--device cpu`"
    )]
    Capability {
        /// The GPU's number.
        ordinal: usize,
        /// What it has.
        found: Version,
    },
}

/// A driver that started. It shows at least one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    version: Version,
    /// The compute capability of each GPU that it shows.
    capabilities: Vec<Version>,
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
        self.capabilities.len()
    }

    /// Whether it shows a GPU of this number, from 0 on, that the kernels can be translated for.
    ///
    /// # Errors
    /// When it shows none of this number, or that one is too old.
    pub fn require(&self, ordinal: usize) -> Result<(), Absent> {
        match self.capabilities.get(ordinal) {
            Some(&found) if found < OLDEST_GPU => Err(Absent::Capability { ordinal, found }),
            Some(_) => Ok(()),
            None => Err(Absent::Ordinal {
                asked: ordinal,
                found: self.devices(),
            }),
        }
    }

    /// The number of the first GPU that can be used.
    ///
    /// # Errors
    /// When all that it shows are too old.
    pub fn first(&self) -> Result<usize, Absent> {
        let usable = (0..self.devices()).find(|ordinal| self.require(*ordinal).is_ok());
        usable.map_or_else(|| self.require(0).map(|()| 0), Ok)
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
    if devices <= 0 {
        return Err(Absent::NoDevice);
    }
    if version < OLDEST {
        return Err(Absent::Old { found: version });
    }
    Ok(Driver {
        version,
        capabilities: (0..devices)
            .map(|ordinal| capability_of(&library, ordinal))
            .collect::<Result<_, _>>()?,
        tells_parameter_sizes: library.has(PARAMETER_SIZES),
    })
}

/// The compute capability of the GPU of this number. The library has the functions.
fn capability_of(library: &OpenLibrary, ordinal: i32) -> Result<Version, Absent> {
    let is_there = "its functions were looked for";
    let (code, device) = library.call_for_one("cuDeviceGet", ordinal).expect(is_there);
    let [major, minor] = CAPABILITY.map(|which| {
        library
            .call_for_attribute("cuDeviceGetAttribute", which, device)
            .expect(is_there)
    });
    for code in [code, major.0, minor.0] {
        accept(library, code)?;
    }
    let number = |found: i32| u32::try_from(found).unwrap_or(0);
    Ok(Version {
        major: number(major.1),
        minor: number(minor.1),
    })
}

/// CUDA counts 1,000 a major and 10 a minor version.
pub(crate) fn version_of(number: i32) -> Version {
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
            Absent::Capability {
                ordinal: 0,
                found: version_of(7_050),
            },
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

    fn with(capabilities: &[Version]) -> Driver {
        Driver {
            version: OLDEST,
            capabilities: capabilities.to_vec(),
            tells_parameter_sizes: false,
        }
    }

    #[test]
    fn a_number_of_a_gpu_beyond_the_last_is_refused() {
        let driver = with(&[OLDEST_GPU; 2]);
        assert_eq!(driver.require(1), Ok(()));
        assert_eq!(driver.require(2), Err(Absent::Ordinal { asked: 2, found: 2 }));
    }

    #[test]
    fn the_first_gpu_that_is_not_too_old_is_used() {
        let old = Version { major: 7, minor: 5 };
        let refused = Err(Absent::Capability { ordinal: 0, found: old });
        assert_eq!(with(&[OLDEST_GPU, old]).first(), Ok(0));
        assert_eq!(with(&[old, OLDEST_GPU]).first(), Ok(1));
        assert_eq!(with(&[old, old]).first(), refused);
        assert_eq!(with(&[old, OLDEST_GPU]).require(0), refused.map(|_: usize| ()));
    }
}
