//! How a command ends: its exit code, and the signals that ask it to.

use std::fmt;
use std::process::ExitCode;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called wrongly: exit code 2.
    Usage(String),
    /// It failed: exit code 1.
    Failed(String),
    /// A signal ended it at once.
    Ended(EndSignal),
}

impl Failure {
    pub(crate) fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
            // As a shell counts them: 128 and the signal's number.
            Self::Ended(EndSignal::Interrupt) => ExitCode::from(130),
            Self::Ended(EndSignal::Terminate) => ExitCode::from(143),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(words) | Self::Failed(words) => f.write_str(words),
            Self::Ended(signal) => write!(f, "ended at once by {signal}"),
        }
    }
}

/// What the command's actors run on.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Failed(format!("the system gives no event queue: {error}")))
}

/// A signal that asks a process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub(crate) enum EndSignal {
    /// From a person at the terminal.
    #[strum(to_string = "SIGINT")]
    Interrupt,
    /// From the person or program that runs this process.
    #[strum(to_string = "SIGTERM")]
    Terminate,
}

/// The signals that this process waits for.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    /// From now on these signals do not end the process by themselves.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).map_err(|error| Failure::Failed(format!("signals cannot be caught: {error}")));
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.interrupt.recv() => EndSignal::Interrupt,
            _ = self.terminate.recv() => EndSignal::Terminate,
        }
    }
}
