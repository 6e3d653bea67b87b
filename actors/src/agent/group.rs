//! A worker's process group: its process, and all that it has started and that has not moved to a group of its own.
//!
//! SIGKILL is for the whole group, and at the end of the worker's process the rest of its group is killed: nothing that a worker has started
//! outlives it. SIGTERM is for the worker alone: it is to finish its step, for which it may need what it has started.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The group that a worker's process leads.
#[derive(Debug)]
pub(super) struct Group(Pid);

impl Group {
    /// The group of the process with this number, which was started as the leader of one.
    pub(super) fn led_by(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        // Never all processes, nor this one's own group.
        (pid.as_raw_nonzero().get() > 1).then_some(Self(pid))
    }

    /// Asks the leader to end in good order. Only while it was not waited for.
    pub(super) fn terminate(&self) {
        tell(kill_process(self.0, Signal::TERM), Signal::TERM);
    }

    /// Ends all that is left of it. While its leader was not waited for, or a process of it lives, no other process has its number.
    /// Straight after that the number is free, but the kernel gives numbers in turn, so that it is another's only after all others.
    pub(super) fn kill(&self) {
        tell(kill_process_group(self.0, Signal::KILL), Signal::KILL);
    }
}

fn tell(sent: Result<(), Errno>, signal: Signal) {
    match sent {
        // It has ended, which is what was wanted.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => tracing::debug!(%error, ?signal, "a signal did not reach a worker"),
    }
}
