//! One worker process, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use sardana_net::wire::limits::BUNDLE_BYTES;
use sardana_net::wire::write_frame_blocking;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::bundle::{BUNDLE_VARIABLE, Bundle, OWN_GROUP};
use super::ends::{Ends, ending};
use super::group::Group;

/// Exit code of a worker that may be started again: the network, or a dismissal. So may a worker that ends with any other code but
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

/// Where a child's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// Where the agent's own goes.
    Inherited,
    /// Through pipes, to the agent.
    Piped,
}

/// What is done to a process before it has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// SIGKILL: it ends at once, and all that it has started.
    Kill,
    /// SIGTERM: it is to end in good order.
    Terminate,
}

/// A started process. Dropping it kills it, and all that it has started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Stays open as long as the agent lives.
    lifeline: ChildStdin,
    /// None once it has ended.
    group: Option<Group>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
    }
}

impl Process {
    /// With what is in `berth` beside the program's environment.
    pub(super) fn start(program: &Program, berth: &[(OsString, OsString)], streams: Streams) -> io::Result<Self> {
        let output = || match streams {
            Streams::Inherited => Stdio::inherit(),
            Streams::Piped => Stdio::piped(),
        };
        let mut child = Command::new(&program.program)
            .args(&program.arguments)
            .envs(program.environment.iter().chain(berth).map(|(name, value)| (name, value)))
            .env(BUNDLE_VARIABLE, OWN_GROUP)
            // A signal from the terminal is for the launcher, which ends its workers in good order. And what the worker starts ends with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output())
            .stderr(output())
            .kill_on_drop(true)
            .spawn()?;
        let lifeline = child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("the child has no standard input"))?;
        let group = child.id().and_then(Group::led_by);
        Ok(Self { child, lifeline, group })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it prints into, if that was piped and is not taken yet.
    pub(super) fn output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Hands over the bundle, then carries out orders until the end. Returns how it ended, in words, and whether well: where it ends badly, and the worker
    /// holds the pipes, as soon as that is decided. Threads of it may still run for a moment, and the system may take long to take back what it had.
    pub(super) async fn run(
        &mut self,
        bundle: &Bundle,
        mut ends: Ends,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> (String, Ending) {
        let mut frame = Vec::new();
        let given = match write_frame_blocking(&mut frame, bundle, BUNDLE_BYTES) {
            Ok(()) => self.lifeline.write_all(&frame).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = given {
            // A child that ended at once shows the same; its end says more.
            tracing::debug!(%error, "a worker's start could not be handed over");
        }
        loop {
            tokio::select! {
                biased;
                ended = self.child.wait() => return self.ended(ended),
                () = ends.one() => {
                    if let Some(status) = self.pid().and_then(ending) {
                        return self.ended(Ok(status));
                    }
                }
                Some(order) = orders.recv() => self.obey(order),
            }
        }
    }

    fn ended(&mut self, how: io::Result<ExitStatus>) -> (String, Ending) {
        // What it has started ends with it.
        self.kill_group();
        match how {
            Ok(status) => (words(status), Ending::of(status)),
            Err(error) => (format!("it could not be waited for: {error}"), Ending::Bad),
        }
    }

    /// Waits until all that it had is free for others.
    pub(super) async fn gone(mut self) {
        // How it ended has been told.
        let _ = self.child.wait().await;
    }

    fn obey(&self, order: Order) {
        match (order, &self.group) {
            (Order::Kill, Some(group)) => group.kill(),
            (Order::Terminate, Some(group)) => group.terminate(),
            (Order::Kill | Order::Terminate, None) => {}
        }
    }

    /// Once: then the number is free for others.
    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            group.kill();
        }
    }
}

/// Whether a process ended as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Good,
    /// Another worker may fare better.
    Bad,
    /// Another worker would end in the same way.
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
