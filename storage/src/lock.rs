//! Locks: files that say that one process has what lies beside them, and mutexes within a process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::private::{Missing, PrivateError, open_private};

/// The name of the file in a folder that one process at a time has.
pub const LOCK_FILE: &str = "lock";

/// Keeps every other process away as long as it lives.
#[derive(Debug)]
pub struct FileLock(File);

/// The process that has the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The number of its process, or `unknown`.
    pub pid: String,
}

impl FileLock {
    /// Takes the lock of `folder`, in a file that is made if it is not there; or says which process has it.
    ///
    /// # Errors
    /// When others could have changed the file, or the system does not lock it.
    pub(crate) fn take_in(folder: &Path) -> Result<Result<Self, Holder>, PrivateError> {
        let path = folder.join(LOCK_FILE);
        Self::take(open_private(&path, Missing::Create)?).map_err(|error| PrivateError::system(&path, error))
    }

    /// Takes the lock of `file`, which is open for reading and writing, and writes this process's number into it; or says which
    /// process has it.
    ///
    /// # Errors
    /// When the system does not lock such a file.
    pub fn take(mut file: File) -> io::Result<Result<Self, Holder>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // It may be writing it.
                let _ = Read::take(&mut file, 32).read_to_string(&mut pid);
                let pid = pid.trim();
                let pid = if pid.is_empty() { "unknown" } else { pid }.to_owned();
                return Ok(Err(Holder { pid }));
            }
            Err(error) => return Err(error.into()),
        }
        // The number is for people: on a full disk it is left out, so that what is kept can still be read.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Ok(Self(file)))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone is not enough: a child of this process that is being started has the file open until it runs its
        // program.
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock could not be given back before its file is closed");
        }
    }
}

/// What a mutex guards, also after a panic: that is a bug of ours, and what the mutexes here guard is only replaced as a whole, or is on the
/// disk in any case.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_a_copy_that_a_child_would_have_does_not_keep_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let open = || {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let file = open();
        let of_a_child = file.try_clone().unwrap();
        let lock = FileLock::take(file).unwrap().unwrap();
        let holder = FileLock::take(open()).unwrap().unwrap_err();
        assert_eq!(holder.pid, std::process::id().to_string());
        drop(lock);
        FileLock::take(open()).unwrap().unwrap();
        drop(of_a_child);
    }
}
