//! Gates: files at which worker processes wait until the test lets them on, so that no test needs to sleep.
//!
//! The test holds an exclusive lock, a worker takes a shared one for a moment. A process that dies lets go of its locks.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Between two looks at a gate that a worker waits at for a limited time.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Where a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before its model is built: it has not joined yet.
    Door,
    /// In every gradient from the setup's gate step on.
    Step,
    /// In every gradient from two steps later on.
    Late,
    /// In no gradient but those of the last step. Until it is open, each step from the gate step on takes a millisecond longer than the
    /// one before, and those near the last one far longer: training goes on, from boundary to boundary, while the test waits for something,
    /// and the job does not end before it, however busy the machine is.
    Pace,
}

/// A gate that the test keeps closed. Dropping it opens it.
#[derive(Debug)]
pub struct Closed(File);

impl Place {
    fn path(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Self::Door => "door",
            Self::Step => "gate",
            Self::Late => "late",
            Self::Pace => "pace",
        })
    }

    fn file(self, folder: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        options.open(self.path(folder))
    }

    /// Closes the gate for the workers of `folder`.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub fn close(self, folder: &Path) -> io::Result<Closed> {
        let file = self.file(folder)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Closed(file))
    }

    /// Waits until the gate of `folder` is open, but no longer than `longest`. Many workers wait so at a time, so that the longer one has
    /// waited, the more seldom it looks.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub fn pass_within(self, folder: &Path, longest: Duration) -> io::Result<()> {
        let (file, until) = (self.file(folder)?, Instant::now() + longest);
        let mut pause = Duration::from_millis(1);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) if !left.is_zero() => thread::sleep(pause.min(left)),
                Ok(()) | Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until the gate of `folder` is open.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub fn pass(self, folder: &Path) -> io::Result<()> {
        let file = self.file(folder)?;
        Ok(flock(&file, FlockOperation::LockShared)?)
    }
}

/// A trap that the first process to compute a gradient from the setup's gate step on walks into, and never leaves: its training thread
/// hangs while the rest of it lives.
#[derive(Debug)]
pub struct Trap;

impl Trap {
    const SET: &str = "trap";
    const SPRUNG: &str = "trapped";

    /// Sets it for the workers of `folder`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn set(folder: &Path) -> io::Result<()> {
        File::create(folder.join(Self::SET)).map(drop)
    }

    /// Does not return if the trap of `folder` is set and this is the first process here.
    pub fn pass(folder: &Path) {
        // Only one process can rename it.
        if std::fs::rename(folder.join(Self::SET), folder.join(Self::SPRUNG)).is_ok() {
            loop {
                std::thread::park();
            }
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        // Explicitly: a child that is just being started may hold a copy of the file for a moment. Closing it unlocks as well.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
