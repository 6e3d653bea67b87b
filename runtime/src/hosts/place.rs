//! Where the jobs of this user on this host leave join files for operators, so that an operator need not be told where a job is.

use std::fs;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use sardana_net::enrol::limits::{MAX_INVITATION_LIFE, MAX_USES};
use sardana_net::enrol::{self, JoinFile, JoinFileError, Moment, Registrar, Terms};
use sardana_net::trust::Role;
use sardana_storage::private::{Existing, Missing, PrivateError, PrivateFolder, own_user};
use tokio::task::JoinSet;

/// What the names of the files end with.
const ENDING: &str = "join";

/// Most files that are looked at: more jobs than a host runs.
const MOST_FILES: usize = 256;

/// Why a job cannot be found, or not be offered. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The folder cannot be used.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The join file cannot be written.
    #[error(transparent)]
    JoinFile(#[from] JoinFileError),
    /// No invitation could be made.
    #[error(transparent)]
    Invite(#[from] enrol::InviteError),
    /// No job runs: there is no file in this folder.
    #[error("no job of this user runs on this host (looked in {}); start one, or give its join file", .0.display())]
    NoJob(PathBuf),
    /// Several jobs run, with these join files.
    #[error("{} jobs of this user run on this host; give the join file of one: {}", .0.len(), listed(.0))]
    Several(Vec<PathBuf>),
}

fn listed(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    names.join(", ")
}

/// The folder for this user's running jobs: in `XDG_RUNTIME_DIR`, or in the folder for temporary files. It is made if it is not
/// there.
///
/// # Errors
/// When others can enter it, or it belongs to another user.
pub fn default_place() -> Result<PrivateFolder, PlaceError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let path = match runtime {
        Some(runtime) => runtime.join("sardana"),
        None => std::env::temp_dir().join(format!("sardana-{}", own_user())),
    };
    // Any user could have put a link into the folder for temporary files.
    if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
        let expected = "a folder";
        return Err(PrivateError::Kind { path, expected }.into());
    }
    Ok(PrivateFolder::open(&path, Missing::Create)?)
}

/// A join file for operators, which is there as long as this is.
#[derive(Debug)]
pub(crate) struct Offered {
    path: PathBuf,
    /// Locked while the job runs, so that no process takes the file for a dead job's.
    _lock: File,
}

impl Offered {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        // Otherwise the next process that looks for jobs removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes a join file for operators of the job that is reached at `addresses` into `place`.
pub(crate) fn offer(
    place: &PrivateFolder,
    registrar: &Registrar,
    addresses: Vec<SocketAddr>,
) -> Result<Offered, PlaceError> {
    let now = Moment::of(SystemTime::now());
    let terms = Terms {
        role: Role::Operator,
        expires: Moment::new(now.seconds().saturating_add(MAX_INVITATION_LIFE.as_secs())),
        uses: MAX_USES,
    };
    let invitation = registrar.invite(terms, now)?;
    let path = place.file(&format!("{}.{ENDING}", registrar.job()));
    let system = |source: io::Error| PrivateError::system(&path, source);
    JoinFile::new(invitation, registrar.authority(), addresses).write(&path, Existing::Replace)?;
    let lock = File::open(&path).map_err(system)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| system(error.into()))?;
    Ok(Offered { path, _lock: lock })
}

/// The join file of the only running job in `place`. Files of jobs that are gone are removed; what is no join file is left alone.
///
/// # Errors
/// When no job runs, or several do.
pub async fn find_running(place: &PrivateFolder) -> Result<PathBuf, PlaceError> {
    let system = |source: io::Error| PrivateError::system(place.path(), source);
    let mut looking = JoinSet::new();
    for entry in fs::read_dir(place.path()).map_err(system)?.take(MOST_FILES) {
        let path = entry.map_err(system)?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            looking.spawn(runs(path));
        }
    }
    let mut files: Vec<PathBuf> = looking.join_all().await.into_iter().flatten().collect();
    files.sort();
    match files.len() {
        0 => Err(PlaceError::NoJob(place.path().to_owned())),
        1 => Ok(files.remove(0)),
        _ => Err(PlaceError::Several(files)),
    }
}

/// The path, if the job of the file there runs. Removes the file if it does not.
async fn runs(path: PathBuf) -> Option<PathBuf> {
    let join = match JoinFile::read_any(&path) {
        Ok(join) => join,
        Err(error) => {
            tracing::debug!(%error, "not a job's file");
            return None;
        }
    };
    match enrol::answers(&join).await {
        Ok(true) => Some(path),
        // Its process may be stopped or busy.
        Ok(false) if is_locked(&path) => None,
        Ok(false) => {
            tracing::debug!(path = %path.display(), "the file of a job that is gone");
            // Another process may have removed it.
            let _ = fs::remove_file(&path);
            None
        }
        Err(error) => {
            tracing::debug!(%error, "a job could not be looked for");
            None
        }
    }
}

/// Whether the process that wrote the file lives.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        matches!(
            flock(&file, FlockOperation::NonBlockingLockShared),
            Err(rustix::io::Errno::WOULDBLOCK)
        )
    })
}
