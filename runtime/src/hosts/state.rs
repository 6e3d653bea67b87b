//! A coordinator's state directory: its authority, how often join files were used, its address, its incarnation, and a lock.

use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardana_net::enrol::{Registrar, UsesError};
use sardana_net::trust::{Authority, StoreError};
use sardana_protocol::words::{Incarnation, JobId};
use sardana_storage::lock::{FileLock, Holder};
use sardana_storage::private::{Existing, Missing, PrivateError, PrivateFolder, read_private, write_private};

/// The file with the addresses at which the coordinator is reached.
pub const ADDRESS_FILE: &str = "address";
/// The file that says how often a coordinator was started here.
pub const INCARNATION_FILE: &str = "incarnation";
/// Which coordinator fenced the last one here.
pub const FENCE_FILE: &str = "fenced";
const LOCK_FILE: &str = "lock";
const RECORDS_FOLDER: &str = "records";

/// Longest of the short files that is read.
const SHORT_FILE_BYTES: u64 = 4 << 10;

/// Why a state directory cannot be used. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory, or a file in it, cannot be used, or other users could have changed it.
    #[error("the state directory cannot be used: {0}")]
    Private(#[from] PrivateError),
    /// Its authority cannot be used.
    #[error(transparent)]
    Authority(#[from] StoreError),
    /// Its list of used join files cannot be used.
    #[error(transparent)]
    Uses(#[from] UsesError),
    /// Another coordinator uses it.
    #[error(
        "{}: another coordinator uses this state directory (process {pid}); stop it first, or give another directory",
        .path.display()
    )]
    Locked {
        /// The state directory.
        path: PathBuf,
        /// The number of that process; `unknown` if it has not written it yet.
        pid: String,
    },
    /// A file in it is damaged.
    #[error("{}: expected {expected}, found something else; bring the file back from a copy, or use an empty directory", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
    },
    /// This directory holds no job.
    #[error("{}: there is no job here; start its coordinator first, or give the state directory of one", .0.display())]
    NoJob(PathBuf),
}

/// A state directory.
#[derive(Debug, Clone)]
pub struct StateDirectory(PrivateFolder);

/// The last coordinator of a state directory was fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The coordinator that was fenced.
    pub own: Incarnation,
    /// The coordinator, of another directory, that fenced it.
    pub by: Incarnation,
}

impl StateDirectory {
    /// The directory at `path`, made if it is not there.
    ///
    /// # Errors
    /// When others can enter it, or it belongs to another user.
    pub fn create(path: &Path) -> Result<Self, StateError> {
        Ok(Self(PrivateFolder::open(path, Missing::Create)?))
    }

    /// The directory at `path`, which is there.
    ///
    /// # Errors
    /// When it is not, others can enter it, or it belongs to another user.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Ok(Self(PrivateFolder::open(path, Missing::Refuse)?))
    }

    /// Takes the directory for this process.
    ///
    /// # Errors
    /// When another coordinator has it.
    pub fn lock(&self) -> Result<FileLock, StateError> {
        let path = self.0.file(LOCK_FILE);
        let system = |error: io::Error| StateError::Private(PrivateError::system(&path, error));
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let taken = FileLock::take(opened.map_err(system)?).map_err(system)?;
        taken.map_err(|Holder { pid }| StateError::Locked {
            path: self.0.path().to_owned(),
            pid,
        })
    }

    /// The job's authority, with what it remembers of join files; made for a new job, whose id is `fresh`, if there is none.
    ///
    /// # Errors
    /// When one of them is damaged, or others could have read it.
    pub fn registrar(&self, fresh: JobId) -> Result<Registrar, StateError> {
        let authority = Authority::load_or_create(&self.0, fresh)?;
        Ok(Registrar::kept(Arc::new(authority), &self.0)?)
    }

    /// The job's authority.
    ///
    /// # Errors
    /// When there is none, it is damaged, or others could have read it.
    pub fn authority(&self) -> Result<Authority, StateError> {
        match Authority::load(&self.0) {
            Err(StoreError::Private(PrivateError::Missing { .. })) => Err(self.no_job()),
            loaded => Ok(loaded?),
        }
    }

    /// The incarnation of the coordinator that starts now: one more than any before, and than `known`. On the disk when this returns.
    ///
    /// # Errors
    /// When the last one's number is damaged or the new one cannot be written.
    pub fn next_incarnation(&self, known: Incarnation) -> Result<Incarnation, StateError> {
        let path = self.0.file(INCARNATION_FILE);
        let last = match read_private(&path, SHORT_FILE_BYTES) {
            Err(PrivateError::Missing { .. }) => Some(0),
            bytes => checked(&bytes?).and_then(|text| text.parse::<u64>().ok()),
        };
        let next = last
            .and_then(|last| last.max(known.get()).checked_add(1))
            .ok_or(StateError::Damaged {
                path: path.clone(),
                expected: "the number of starts",
            })?;
        write_private(&path, with_check(&next.to_string()).as_bytes(), Existing::Replace)?;
        Ok(Incarnation::new(next))
    }

    /// Whether another coordinator leads the job of this directory, as far as the last one here knew.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn fence(&self) -> Result<Option<Fence>, StateError> {
        let path = self.0.file(FENCE_FILE);
        let bytes = match read_private(&path, SHORT_FILE_BYTES) {
            Err(PrivateError::Missing { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let numbers = checked(&bytes).and_then(|text| text.split_once('-'));
        let number = |text: &str| text.parse().ok().map(Incarnation::new);
        let fence = numbers.and_then(|(own, by)| {
            Some(Fence {
                own: number(own)?,
                by: number(by)?,
            })
        });
        let expected = "the numbers of two coordinators";
        fence.map(Some).ok_or(StateError::Damaged { path, expected })
    }

    /// Another coordinator leads the job: no later life here does, unless it takes over.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_fence(&self, fence: Fence) -> Result<(), StateError> {
        let text = with_check(&format!("{}-{}", fence.own.get(), fence.by.get()));
        Ok(write_private(&self.0.file(FENCE_FILE), text.as_bytes(), Existing::Replace)?)
    }

    /// The coordinator here leads the job again.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove_fence(&self) -> Result<(), StateError> {
        let path = self.0.file(FENCE_FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PrivateError::system(&path, error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Where the coordinator writes down what its next life should know of the job.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.0.file(RECORDS_FOLDER)
    }

    /// Writes down where the coordinator is reached.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_addresses(&self, addresses: &[SocketAddr]) -> Result<(), StateError> {
        let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        Ok(write_private(&self.0.file(ADDRESS_FILE), text.as_bytes(), Existing::Replace)?)
    }

    /// Where the coordinator is, or was last, reached.
    ///
    /// # Errors
    /// When no coordinator was ever started here, or the file is damaged.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, StateError> {
        let path = self.0.file(ADDRESS_FILE);
        let bytes = match read_private(&path, SHORT_FILE_BYTES) {
            Err(PrivateError::Missing { .. }) => return Err(self.no_job()),
            bytes => bytes?,
        };
        let text = std::str::from_utf8(&bytes).ok();
        let addresses = text.and_then(|text| text.lines().map(|line| line.parse().ok()).collect::<Option<Vec<_>>>());
        addresses
            .filter(|addresses| !addresses.is_empty())
            .ok_or(StateError::Damaged {
                path,
                expected: "the coordinator's addresses",
            })
    }

    fn no_job(&self) -> StateError {
        StateError::NoJob(self.0.path().to_owned())
    }
}

fn with_check(text: &str) -> String {
    format!("{text} {}\n", blake3::hash(text.as_bytes()))
}

fn checked(bytes: &[u8]) -> Option<&str> {
    let (text, _) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    (with_check(text).as_bytes() == bytes).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDirectory) {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(&place.path().join("state")).unwrap();
        (place, state)
    }

    #[test]
    fn incarnations_only_grow_and_damage_is_noticed() {
        let (_place, state) = state();
        for expected in 1..4 {
            assert_eq!(state.next_incarnation(Incarnation::ZERO).unwrap(), Incarnation::new(expected));
        }
        assert_eq!(state.next_incarnation(Incarnation::new(9)).unwrap(), Incarnation::new(10));
        assert_eq!(state.next_incarnation(Incarnation::new(9)).unwrap(), Incarnation::new(11));
        let path = state.0.file(INCARNATION_FILE);
        for damaged in ["", "3", "3 abc\n", "2 2\n", "\n"] {
            write_private(&path, damaged.as_bytes(), Existing::Replace).unwrap();
            let error = state.next_incarnation(Incarnation::ZERO).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn a_second_coordinator_is_refused_by_the_firsts_number() {
        let (_place, state) = state();
        let first = state.lock().unwrap();
        let error = state.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("stop it first"), "{error}");
        drop(first);
        state.lock().unwrap();
    }

    #[test]
    fn a_fence_stays_until_it_is_removed() {
        let (_place, state) = state();
        assert_eq!(state.fence().unwrap(), None);
        state.remove_fence().unwrap();
        let fence = Fence {
            own: Incarnation::new(2),
            by: Incarnation::new(7),
        };
        state.write_fence(fence).unwrap();
        assert_eq!(state.fence().unwrap(), Some(fence));
        let path = state.0.file(FENCE_FILE);
        for damaged in ["", "2-7\n", "2-8 2-7\n"] {
            write_private(&path, damaged.as_bytes(), Existing::Replace).unwrap();
            assert!(matches!(state.fence(), Err(StateError::Damaged { .. })));
        }
        state.remove_fence().unwrap();
        assert_eq!(state.fence().unwrap(), None);
    }

    #[test]
    fn addresses_are_read_as_written() {
        let (_place, state) = state();
        assert!(matches!(state.addresses(), Err(StateError::NoJob(_))));
        assert!(matches!(state.authority(), Err(StateError::NoJob(_))));
        let addresses: Vec<SocketAddr> = vec!["10.0.0.1:7".parse().unwrap(), "[::1]:8".parse().unwrap()];
        state.write_addresses(&addresses).unwrap();
        assert_eq!(state.addresses().unwrap(), addresses);
        write_private(&state.0.file(ADDRESS_FILE), b"nowhere\n", Existing::Replace).unwrap();
        assert!(matches!(state.addresses(), Err(StateError::Damaged { .. })));
    }
}
