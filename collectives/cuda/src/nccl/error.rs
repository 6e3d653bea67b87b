//! What can go wrong with sums by NCCL: what was expected, what was found, what to do. Must not know what is summed.

use thiserror::Error;

use crate::device::DeviceError;
use crate::raw::nccl::Failed;

/// Why NCCL did not do something.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NcclError {
    /// The library cannot be opened.
    #[error(
        "expected NCCL's library (libnccl.so.2), found none: {reason}; install it (`libnccl2`, or `pip install nvidia-nccl-cu12`), and name its folder in LD_LIBRARY_PATH, or sum without it"
    )]
    Library {
        /// In the loader's words.
        reason: String,
    },
    /// The library lacks a function.
    #[error(
        "expected {function} in NCCL's library {library}, which lacks it; install NCCL 2.18 or later, or sum without it"
    )]
    Function {
        /// Its name.
        function: &'static str,
        /// The name under which the library was found.
        library: String,
    },
    /// What was asked for makes no sense; nothing was done.
    #[error("expected {expected}, found {found}; correct the call")]
    Input {
        /// What can be done.
        expected: String,
        /// What was asked for.
        found: String,
    },
    /// The communicator has not come as far as the last thing that was asked of it; nothing was done.
    #[error(
        "expected a communicator that is ready, found one that waits; ask `poll` until it is, or abort it when a rank is dead"
    )]
    Waiting,
    /// The communicator was aborted, or has failed, or is finished.
    #[error("expected a communicator in use, found one that has ended; make another with a new id")]
    Ended,
    /// A call failed. The communicator has been aborted.
    #[error(
        "expected NCCL to work, found that {call} says: {words} ({code}); make another communicator with a new id, and see NCCL_DEBUG=INFO"
    )]
    Failed {
        /// The function that failed, or the communicator itself, for what it did meanwhile.
        call: &'static str,
        /// NCCL's code.
        code: i32,
        /// In NCCL's words.
        words: String,
    },
    /// The device has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<Failed> for NcclError {
    fn from(Failed { call, code, words }: Failed) -> Self {
        Self::Failed { call, code, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Absent;

    #[test]
    fn each_error_says_what_was_expected_and_found_and_what_to_do() {
        let text = || "text".to_owned();
        let errors = [
            NcclError::Library { reason: text() },
            NcclError::Function {
                function: "ncclAllReduce",
                library: text(),
            },
            NcclError::Input {
                expected: text(),
                found: text(),
            },
            NcclError::Waiting,
            NcclError::Ended,
            NcclError::Failed {
                call: "ncclAllReduce",
                code: 4,
                words: text(),
            },
            NcclError::Device(DeviceError::Absent(Absent::NoDevice)),
        ];
        for error in errors {
            let words = error.to_string();
            assert!(
                words.starts_with("expected ") && (words.contains("found") || words.contains("lacks")),
                "{words}"
            );
            assert!(words.contains([';', ',']), "{words}");
        }
    }
}
