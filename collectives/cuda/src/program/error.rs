//! What can go wrong with kernels of a program's own: what was expected, what was found, what to do. Must not know how they are compiled.

use std::fmt;

use thiserror::Error;

use crate::device::DeviceError;

/// Names of kernels that an error lists.
const MOST_NAMES: usize = 16;

/// Lines of the compiler's log that an error says: a mistake in a header may be told of each line that includes it.
const MOST_LINES: usize = 20;

/// Why a program of kernels is not there, or a launch of one was not enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// There is no device that can be used, or it has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// NVRTC cannot be used.
    #[error(transparent)]
    Absent(#[from] CompilerAbsent),
    /// The compiler does not take the source.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// What is to be compiled or loaded is not what can be; nothing was tried.
    #[error("expected {expected}, found {found}; correct what the program is made of")]
    Input {
        /// What can be compiled or loaded.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The compiler itself has failed.
    #[error(
        "expected NVRTC to compile, found that {call} says: {words}; see that all of NVRTC is installed, its `libnvrtc-builtins` too"
    )]
    Failed {
        /// The function that failed.
        call: &'static str,
        /// In NVRTC's words.
        words: String,
    },
    /// The driver does not make code of the PTX. The device is of use as before.
    #[error(
        "expected the driver to load the kernels of `{program}`, found {name} ({code}){}; compile them by an NVRTC that is no newer than the driver, for a GPU like this one",
        .log.as_ref().map_or_else(String::new, |log| format!(", which says `{log}`"))
    )]
    Refused {
        /// The program's name.
        program: String,
        /// CUDA's code.
        code: u32,
        /// CUDA's name for it.
        name: String,
        /// What the driver's translator of PTX says, if it was that.
        log: Option<String>,
    },
    /// The program has no kernel of this name.
    #[error("expected one of the kernels of `{program}`: {}, found `{asked}`; name one of them, and declare it `extern \"C\" __global__`", listed(.kernels))]
    Unknown {
        /// The program's name.
        program: String,
        /// What was asked for.
        asked: String,
        /// What it has.
        kernels: Vec<String>,
    },
    /// A launch does not fit its kernel, or the device. Nothing was enqueued.
    #[error("expected {expected} for the kernel {kernel}, found {found}; correct the call")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
}

/// Why NVRTC cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompilerAbsent {
    /// The library cannot be opened.
    #[error(
        "expected NVRTC, NVIDIA's compiler as a library (libnvrtc.so), to compile kernels, found none: {reason}; install it (of CUDA's toolkit or `pip install nvidia-cuda-nvrtc-cu12`), and name its folder in LD_LIBRARY_PATH or its file in SARDANA_NVRTC, or load PTX that was compiled before"
    )]
    Library {
        /// In the loader's words.
        reason: String,
    },
    /// The library lacks a function.
    #[error(
        "expected {function} in NVRTC's library {library}, which lacks it; install NVRTC of CUDA 12.0 or later, or load PTX that was compiled before"
    )]
    Function {
        /// Its name.
        function: &'static str,
        /// The name under which the library was found.
        library: String,
    },
    /// It compiles for no GPU that is like this one.
    #[error(
        "expected NVRTC to compile for compute capability {}.{}, found that {version} has {oldest} as its oldest; install an older one, or load PTX that was compiled before",
        .device / 10, .device % 10
    )]
    Architecture {
        /// The device's, as in 80 for 8.0.
        device: u32,
        /// NVRTC's version.
        version: String,
        /// The oldest that it compiles for, in the same way; none where it names none.
        oldest: String,
    },
}

/// What the compiler says of a source that it does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The file in which the first error is: the source by its name, or a header by its own. None where it is in no file, as of a flag.
    pub file: Option<String>,
    /// The line, from 1 on.
    pub line: Option<u32>,
    /// What the first error is.
    pub message: String,
    /// All that the compiler has said.
    pub log: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("expected kernels that NVRTC compiles, found")?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(formatter, " in {file}, line {line}: ")?,
            (Some(file), None) => write!(formatter, " in {file}: ")?,
            (None, _) => formatter.write_str(": ")?,
        }
        write!(formatter, "{}; correct it", self.message)?;
        let mut lines = self.log.lines().filter(|line| !line.trim().is_empty());
        let mut said = lines.by_ref().take(MOST_LINES).peekable();
        if said.peek().is_some() {
            formatter.write_str("; the compiler says:")?;
        }
        for line in said {
            write!(formatter, "\n    {line}")?;
        }
        match lines.count() {
            0 => Ok(()),
            more => write!(formatter, "\n    and {more} more lines"),
        }
    }
}

impl std::error::Error for CompileError {}

/// The names of kernels, of which not too many are said.
fn listed(kernels: &[String]) -> String {
    let names: Vec<&str> = kernels.iter().take(MOST_NAMES).map(String::as_str).collect();
    let more = kernels.len().saturating_sub(MOST_NAMES);
    match (kernels, more) {
        ([], _) => "none".to_owned(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Absent;

    #[test]
    fn each_error_says_what_was_expected_and_found_and_what_to_do() {
        let text = || "text".to_owned();
        let absent = |absent| ProgramError::Absent(absent);
        let compile = CompileError {
            file: Some("gelu.cu".into()),
            line: Some(3),
            message: "expected a \";\"".into(),
            log: String::new(),
        };
        assert_eq!(
            compile.to_string(),
            "expected kernels that NVRTC compiles, found in gelu.cu, line 3: expected a \";\"; correct it"
        );
        let errors = [
            ProgramError::Device(DeviceError::Absent(Absent::NoDevice)),
            absent(CompilerAbsent::Library { reason: text() }),
            absent(CompilerAbsent::Function {
                function: "nvrtcVersion",
                library: text(),
            }),
            absent(CompilerAbsent::Architecture {
                device: 75,
                version: text(),
                oldest: text(),
            }),
            ProgramError::Compile(compile),
            ProgramError::Input {
                expected: text(),
                found: text(),
            },
            ProgramError::Failed {
                call: "nvrtcGetPTX",
                words: text(),
            },
            ProgramError::Refused {
                program: text(),
                code: 222,
                name: text(),
                log: Some(text()),
            },
            ProgramError::Unknown {
                program: text(),
                asked: text(),
                kernels: vec![],
            },
            ProgramError::Launch {
                kernel: text(),
                expected: text(),
                found: text(),
            },
        ];
        for error in errors {
            let words = error.to_string();
            let is_told = words.contains("found") || words.contains("lacks");
            assert!(
                words.starts_with("expected ") && is_told && words.contains([';', ',']),
                "{words}"
            );
        }
    }

    #[test]
    fn what_the_compiler_says_is_said_unless_it_is_too_long() {
        let said = |log: String| {
            let error = CompileError {
                file: None,
                line: None,
                message: "wrong".to_owned(),
                log,
            };
            error.to_string()
        };
        let head = "expected kernels that NVRTC compiles, found: wrong; correct it; the compiler says:\n";
        assert_eq!(
            said("a.cu(3): error: wrong\n\n    x = y\n".to_owned()),
            format!("{head}    a.cu(3): error: wrong\n        x = y")
        );
        let long = said("line\n".repeat(MOST_LINES + 5));
        assert!(
            long.starts_with(head) && long.ends_with("\n    line\n    and 5 more lines"),
            "{long}"
        );
    }

    #[test]
    fn not_all_kernels_of_a_large_program_are_listed() {
        let names = |count: usize| (0..count).map(|number| format!("k{number}")).collect::<Vec<_>>();
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&names(2)), "k0, k1");
        assert!(listed(&names(20)).ends_with("k15 and 4 more"));
    }
}
