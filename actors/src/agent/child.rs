//! One worker process, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::bundle::{BUNDLE_VARIABLE, Bundle};
use crate::wire::limits::BUNDLE_BYTES;
use crate::wire::write_frame_blocking;

/// Exit code of a worker that may be started again: the network, or a dismissal. So may one that ends with any other code but
/// [`EXIT_GIVE_UP`], or by a signal.
pub const EXIT_RETRY: i32 = 1;

/// Exit code of a worker that would fail again in the same way: it was refused, or its model failed.
pub const EXIT_GIVE_UP: i32 = 3;

/// What to start.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

/// A started process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Stays open as long as the agent lives.
    lifeline: ChildStdin,
}

impl Process {
    pub(super) fn start(program: &Program) -> io::Result<Self> {
        let mut child = Command::new(&program.program)
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .env(BUNDLE_VARIABLE, "stdin")
            // A signal from the terminal is for the launcher, which ends its workers in good order.
            .process_group(0)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lifeline = child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("the child has no standard input"))?;
        Ok(Self { child, lifeline })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Hands over the bundle, then waits for the end. Returns how it ended, in words, and whether well.
    pub(super) async fn run(mut self, bundle: &Bundle) -> (String, Ending) {
        let mut frame = Vec::new();
        let given = match write_frame_blocking(&mut frame, bundle, BUNDLE_BYTES) {
            Ok(()) => self.lifeline.write_all(&frame).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = given {
            // A child that ended at once shows the same; its end says more.
            tracing::debug!(%error, "a worker's start could not be handed over");
        }
        match self.child.wait().await {
            Ok(status) => (words(status), Ending::of(status)),
            Err(error) => (format!("it could not be waited for: {error}"), Ending::Bad),
        }
    }
}

/// Whether a process ended as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Good,
    /// Another one may fare better.
    Bad,
    /// Another one would end in the same way.
    GaveUp,
}

impl Ending {
    fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(0) => Self::Good,
            Some(EXIT_GIVE_UP) => Self::GaveUp,
            // Any other code, or a signal.
            Some(_) | None => Self::Bad,
        }
    }
}

fn words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
