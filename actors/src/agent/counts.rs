//! Where an agent's children count their gradients: a folder for each agent, in memory where the system has such a place, as children
//! write there at every gradient.
//!
//! The folder is gone with its agent, unless the agent is killed. Then the next agent of the same user on this host removes it: the folder
//! has a lock, which the kernel holds for the agent as long as it lives, and under the lock's name there never is a file that is not locked
//! by its agent. Folders without a lock are left alone: it is not known which process they belong to.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sardana_protocol::words::WorkerId;
use sardana_storage::lock::FileLock;
use tempfile::TempDir;

const IN_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "sardana-agent-";
const LOCK: &str = "lock";

/// An agent's folder.
#[derive(Debug)]
pub(super) struct Counts {
    // Removed before the lock is given back.
    folder: TempDir,
    _lock: FileLock,
}

impl Counts {
    /// A new folder. Those of agents that were killed are removed.
    pub(super) fn make() -> io::Result<Self> {
        Self::make_at([Path::new(IN_MEMORY), &std::env::temp_dir()])
    }

    /// In the first of these places, or in the second where that cannot be.
    fn make_at(places: [&Path; 2]) -> io::Result<Self> {
        for place in places {
            sweep(place);
        }
        Self::make_in(places[0]).or_else(|_| Self::make_in(places[1]))
    }

    fn make_in(place: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let unnamed = folder.path().join("new-lock");
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&unnamed)?;
        let locked = FileLock::take(file)?;
        let lock = locked.map_err(|holder| io::Error::other(format!("process {} has a lock that is new", holder.pid)))?;
        fs::rename(unnamed, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where a worker counts.
    pub(super) fn of(&self, worker: WorkerId) -> PathBuf {
        self.folder.path().join(worker.to_string())
    }
}

/// Removes the folders in `place` whose agents are gone.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let named = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in named {
        let path = entry.path();
        match remove_if_left(&path) {
            Ok(true) => tracing::info!(path = %path.display(), "the folder of an agent that was killed is removed"),
            Ok(false) => {}
            // Another agent may remove it at this moment.
            Err(error) => tracing::debug!(path = %path.display(), %error, "a folder of an agent stays"),
        }
    }
}

/// Whether it is removed: not if its agent lives, it is another user's, or that cannot be known.
fn remove_if_left(path: &Path) -> io::Result<bool> {
    let about = fs::symlink_metadata(path)?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    let file = match fs::File::options().read(true).write(true).open(path.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match FileLock::take(file)? {
        Err(_alive) => Ok(false),
        Ok(lock) => {
            fs::remove_dir_all(path)?;
            drop(lock);
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(place: &Path) -> usize {
        fs::read_dir(place).unwrap().count()
    }

    #[test]
    fn what_a_killed_agent_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let living = Counts::make_in(place).unwrap();
        fs::write(living.of(WorkerId::new(1)), [0; 24]).unwrap();
        // As SIGKILL leaves it: the lock is free, the folder stays.
        let killed = Counts::make_in(place).unwrap();
        fs::write(killed.of(WorkerId::new(2)), [0; 24]).unwrap();
        let Counts { folder, _lock } = killed;
        drop(_lock);
        let left = folder.keep();
        // A folder without a lock, a file, and a link to another user's folder.
        fs::create_dir(place.join(format!("{PREFIX}unknown"))).unwrap();
        fs::write(place.join(format!("{PREFIX}file")), "x").unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(LOCK), "1").unwrap();
        std::os::unix::fs::symlink(other.path(), place.join(format!("{PREFIX}link"))).unwrap();
        assert_eq!(folders(place), 5);
        sweep(place);
        assert!(!left.exists() && other.path().join(LOCK).exists());
        assert!(living.of(WorkerId::new(1)).exists());
        assert_eq!(folders(place), 4);
        drop(living);
        assert_eq!(folders(place), 3);
    }

    #[test]
    fn an_agent_that_starts_removes_what_killed_ones_left_wherever_that_may_be() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = [first.path(), second.path()];
        for place in places {
            let Counts { folder, _lock } = Counts::make_in(place).unwrap();
            drop(_lock);
            let _left = folder.keep();
        }
        let next = Counts::make_at(places).unwrap();
        assert!(next.of(WorkerId::new(1)).starts_with(places[0]));
        assert_eq!(places.map(folders), [1, 0], "its own is all that is there");
    }
}
