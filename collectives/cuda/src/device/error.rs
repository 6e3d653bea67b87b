//! What can go wrong with a device. Must not know what was computed.

use thiserror::Error;

use crate::driver::Absent;

/// Why a device did not do something: what was expected, what was found, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// There is no device that can be used.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// Memory was refused; nothing else has happened.
    #[error(
        "expected {asked} bytes of {kind}, found that {held} are held and {left} are left; give the device fewer shards, or less to others that use it"
    )]
    Memory {
        /// The device's memory, or the host's that it reaches.
        kind: MemoryKind,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that this device had been given before.
        held: u64,
        /// Bytes that could still be had, as the limit or the driver says.
        left: u64,
    },
    /// A launch does not fit its kernel: a mistake of the program that launches. Nothing was enqueued.
    #[error("expected {expected} for the kernel {kernel}, found {found}; correct the call")]
    Launch {
        /// The kernel's name.
        kernel: &'static str,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// The driver does not make code of the kernels.
    #[error(
        "expected the driver to load the kernels `{module}`, found {name} ({code}); install a newer driver, or run on processors with `--device cpu`"
    )]
    Kernels {
        /// The module's name.
        module: &'static str,
        /// CUDA's code.
        code: u32,
        /// CUDA's name for it.
        name: String,
    },
    /// A call failed. The device's context may be of no use any more, so each later call on the device says this again.
    #[error(
        "expected the GPU to {during}, found {name} ({code}); nothing more is computed on it by this process: start another, and see `nvidia-smi` and the kernel's log for `Xid`"
    )]
    Failed {
        /// What was asked of it.
        during: &'static str,
        /// CUDA's code.
        code: u32,
        /// CUDA's name for it.
        name: String,
    },
}

/// Which memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// The device's own.
    Device,
    /// The host's, pinned for the device.
    Pinned,
}

impl std::fmt::Display for MemoryKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Device => "the GPU's memory",
            Self::Pinned => "pinned memory of the host",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_was_expected_and_found_and_what_to_do() {
        let name = || "CUDA_ERROR".to_owned();
        let errors = [
            DeviceError::Absent(Absent::NoDevice),
            DeviceError::Memory {
                kind: MemoryKind::Device,
                asked: 3,
                held: 2,
                left: 1,
            },
            DeviceError::Launch {
                kernel: "sum_f32",
                expected: "5 arguments".into(),
                found: "4".into(),
            },
            DeviceError::Kernels {
                module: "sums",
                code: 222,
                name: name(),
            },
            DeviceError::Failed {
                during: "copy",
                code: 700,
                name: name(),
            },
        ];
        for error in errors {
            let words = error.to_string();
            assert!(
                words.starts_with("expected ") && words.contains(", found ") && words.contains(';') | words.contains(", or"),
                "{words}"
            );
        }
    }
}
