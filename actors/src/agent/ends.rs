//! An agent learns at once that a child has ended.
//!
//! The system tells a parent that its child has ended, and closes the child's files, only once it has taken back the child's memory, which takes a tenth of a second
//! or more for each GiB in small pages. Others would wait for that. So two threads of the child each hold a pipe of the agent's open, in a table of files that no
//! other thread has: it is closed as soon as that thread has ended. Memory is taken back by the last thread to end, which is one of these two at most. How the
//! process ends is known by then.
//!
//! That holds for a child that is the worker itself, or a shell that has become it (`exec`). Of a shell that waits for it the agent learns when that ends.

#![cfg_attr(
    target_os = "linux",
    expect(
        unsafe_code,
        reason = "the files and the signals of one thread are taken apart from those of all others, by system calls"
    )
)]

use std::fs;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
#[cfg(target_os = "linux")]
use std::thread;

use futures_util::future::select_all;
use rustix::process::Signal;
use tokio::net::unix::pipe;

/// How many threads of a child hold a pipe open: one more than may be the last.
#[cfg(target_os = "linux")]
const PIPES: usize = 2;

/// Such a thread does nothing.
#[cfg(target_os = "linux")]
const STACK_BYTES: usize = 64 << 10;

/// The agent's ends of the pipes of one child.
#[derive(Debug, Default)]
pub(super) struct Ends {
    paths: Vec<PathBuf>,
    /// Those that have not ended.
    pipes: Vec<pipe::Receiver>,
}

impl Ends {
    /// Makes the pipes as files beside this one, which only this child has. Where there are none the agent learns of its end when that is over.
    pub(super) fn beside(tally: &Path) -> Self {
        Self::make(tally)
            .inspect_err(|error| tracing::debug!(%error, "the end of a worker will be known when it is over"))
            .unwrap_or_default()
    }

    #[cfg(target_os = "linux")]
    fn make(tally: &Path) -> io::Result<Self> {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let mut ends = Self::default();
        for number in 0..PIPES {
            let mut path = tally.as_os_str().to_owned();
            path.push(format!(".end{number}"));
            let path = PathBuf::from(path);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            ends.pipes.push(pipe::OpenOptions::new().open_receiver(&path)?);
            ends.paths.push(path);
        }
        Ok(ends)
    }

    #[cfg(not(target_os = "linux"))]
    fn make(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What the child opens.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns when a thread that held one of them has ended, once for each.
    pub(super) async fn one(&mut self) {
        if self.pipes.is_empty() {
            return std::future::pending().await;
        }
        let ((), ended, _) = select_all(self.pipes.iter().map(|pipe| Box::pin(ended(pipe)))).await;
        self.pipes.swap_remove(ended);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for path in &self.paths {
            // What is left goes with its folder.
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns when a process has opened this pipe and closed it.
async fn ended(pipe: &pipe::Receiver) {
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut [0]) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// How a child ends that has not ended yet; none if it does not, or if it will end well, as far as is known.
pub(super) fn ending(pid: u32) -> Option<ExitStatus> {
    // The program's name is in it, which may be any bytes.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    status_in(&String::from_utf8_lossy(&stat))
}

/// The last field, by proc_pid_stat(5), is the exit status in the form of wait(2), from when the process is told to end.
fn status_in(stat: &str) -> Option<ExitStatus> {
    let status = ExitStatus::from_raw(stat.split_ascii_whitespace().next_back()?.parse().ok()?);
    // By these a process stands still, and the field says so.
    let stops = [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
    let stands_still = status.signal().is_some_and(|signal| stops.contains(&signal));
    (!status.success() && !stands_still).then_some(status)
}

/// In a child: from now on its agent learns of its end by this pipe. Where that cannot be, it does so later.
#[cfg(target_os = "linux")]
pub(super) fn hold(pipe: PathBuf) {
    let held = move || {
        // The agent has it open; one that is gone is not waited for.
        let opened = close_all().and_then(|()| {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(libc::O_NONBLOCK).open(pipe)
        });
        while opened.is_ok() {
            thread::park();
        }
    };
    let thread = thread::Builder::new().name("end".to_owned()).stack_size(STACK_BYTES);
    // The program goes on without.
    let _ = without_signals(|| thread.spawn(held));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn hold(_: PathBuf) {}

/// From now on this thread's files are its own, and there are none. Linux 5.9 can do that, also in containers whose processes may not call `unshare`.
#[cfg(target_os = "linux")]
fn close_all() -> io::Result<()> {
    // SAFETY: the numbers are of this thread alone from then on, and all others keep their files. Nothing that this thread runs uses one that was opened before: it
    // opens one pipe and waits, its stack and its panics need none, and no handler of a signal runs on it.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if closed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A thread that is spawned in it takes no signal from others of its process: what handles one may use files.
#[cfg(target_os = "linux")]
fn without_signals<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    use std::mem::MaybeUninit;
    use std::ptr;

    let [mut all, mut before] = [MaybeUninit::uninit(), MaybeUninit::uninit()];
    // SAFETY: the set lives as long as the call, and may be uninitialised before.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: each set lives as long as the call, and the one that is read was filled in. A thread inherits what is blocked.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    let spawned = spawn();
    // SAFETY: the call above has filled it in. It does not fail: how it is to be set is a constant.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    spawned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_ends_is_the_last_field() {
        let found = |last: &str| status_in(&format!("7 (a name) of) Z 1 7 7 0 -1 4 0 {last}\n"));
        assert_eq!(found("9").and_then(|status| status.signal()), Some(9));
        assert_eq!(found("139").and_then(|status| status.signal()), Some(11), "with a core");
        assert_eq!(found("256").and_then(|status| status.code()), Some(1));
        // It runs, or ends well; it stands still.
        for other in ["0", "19", "20", "21", "22"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(found("nothing"), None);
        assert_eq!(status_in(""), None);
        assert_eq!(ending(std::process::id()), None, "this process does not end");
    }

    /// What this thread blocks, as a number.
    #[cfg(target_os = "linux")]
    fn blocked() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        line.unwrap().trim().to_owned()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_holds_a_pipe_takes_no_signal() {
        let before = blocked();
        let inside = without_signals(|| Ok(thread::spawn(blocked))).unwrap().join().unwrap();
        // All but those that the system does not let be blocked, and those that the C library keeps for itself.
        let [all, sigterm] = [u64::from_str_radix(&inside, 16).unwrap(), 1 << (libc::SIGTERM - 1)];
        assert!(all & sigterm != 0 && all.count_ones() >= 60, "{inside}");
        assert_eq!(blocked(), before);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_pipe_ends_when_all_that_have_opened_it_have_closed_it() {
        let place = tempfile::tempdir().unwrap();
        let mut ends = Ends::beside(&place.path().join("7"));
        let paths = ends.paths().to_vec();
        let open = |path: &PathBuf| OpenOptions::new().write(true).open(path).unwrap();
        let [one, other] = [open(&paths[0]), open(&paths[1])];
        let again = open(&paths[0]);
        tokio::select! {
            biased;
            () = ends.one() => panic!("both are open"),
            () = tokio::task::yield_now() => {}
        }
        drop((one, other));
        ends.one().await;
        drop(again);
        ends.one().await;
        drop(ends);
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
    }
}
