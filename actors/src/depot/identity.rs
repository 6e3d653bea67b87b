//! Which depot a store is, and which coordinator it served last. Both are in the store's folder, and outlive the process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::words::{Incarnation, JobId};
use sardana_storage::private::{Existing, Missing, PrivateError, PrivateFolder, read_private, write_private};
use sardana_storage::store::MANIFESTS_FOLDER;

use super::limits::NOTE_BYTES;

/// The file that says which depot it is.
pub const DEPOT_FILE: &str = "depot";

/// The file that says which coordinator it served last.
pub const SERVED_FILE: &str = "served";

/// The form of both files. A higher one is refused.
const FORMAT: u32 = 1;

/// Why it is not known which depot a store is. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The folder or a file in it cannot be opened, or other users could have changed it.
    #[error("the checkpoint actor's folder cannot be used: {0}; see whether it is the right one, and can be written to")]
    Private(#[from] PrivateError),
    /// A file is not what was written.
    #[error(
        "{}: expected a note of the checkpoint actor, found {found}; bring the file back from a copy, or give an empty folder", .path.display()
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        found: String,
    },
    /// The store has checkpoints, which say which depot keeps them; but the note of its id is lost.
    #[error(
        "{}: expected the file that says which checkpoint actor this is, since there are checkpoints beside it, found none; bring the \
         file back from a copy, or give an empty folder: then what is lost here is fetched from the other hosts", .path.display()
    )]
    Lost {
        /// The file that should be there.
        path: PathBuf,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {reason}; see whether getrandom is forbidden to this process")]
    Random {
        /// What it said.
        reason: String,
    },
}

/// Which depot the store in `folder` is. Drawn at random the first time, in a folder that has no checkpoints; the same from then on.
///
/// # Errors
/// See [`IdentityError`].
pub fn identity(folder: &Path) -> Result<DepotId, IdentityError> {
    let private = PrivateFolder::open(folder, Missing::Create)?;
    let path = private.file(DEPOT_FILE);
    if let Some(number) = read(&path, DEPOT_FILE, None)? {
        return Ok(DepotId::new(number));
    }
    if has_checkpoints(&private.file(MANIFESTS_FOLDER))? {
        return Err(IdentityError::Lost { path });
    }
    let number = getrandom::u64().map_err(|error| IdentityError::Random {
        reason: error.to_string(),
    })?;
    match write_private(&path, note(DEPOT_FILE, number).as_bytes(), Existing::Refuse) {
        Ok(()) => Ok(DepotId::new(number)),
        // Another process was faster.
        Err(PrivateError::Exists { .. }) => {
            let theirs = read(&path, DEPOT_FILE, None)?;
            theirs.map(DepotId::new).ok_or(IdentityError::Lost { path })
        }
        Err(error) => Err(error.into()),
    }
}

/// The highest incarnation of a coordinator of `job` that the depot in `folder` has served. Those of another job do not count: a folder
/// outlives jobs.
pub(super) fn served(folder: &Path, job: JobId) -> Result<Incarnation, IdentityError> {
    let number = read(&folder.join(SERVED_FILE), SERVED_FILE, Some(job))?;
    Ok(number.map_or(Incarnation::ZERO, Incarnation::new))
}

/// From now on it obeys no coordinator of `job` before `incarnation`, also after a crash.
pub(super) fn note_served(folder: &Path, job: JobId, incarnation: Incarnation) -> Result<(), IdentityError> {
    let note = note(&named(SERVED_FILE, Some(job)), incarnation.get());
    Ok(write_private(&folder.join(SERVED_FILE), note.as_bytes(), Existing::Replace)?)
}

fn has_checkpoints(manifests: &Path) -> Result<bool, IdentityError> {
    match fs::read_dir(manifests) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PrivateError::system(manifests, error).into()),
    }
}

/// A number as a file says it, with what it is and a hash of all that.
fn note(what: &str, number: u64) -> String {
    let line = format!("sardana {what} {FORMAT} {number:016x}");
    format!("{line} {}\n", blake3::hash(line.as_bytes()))
}

/// What a file is called in itself.
fn named(what: &str, job: Option<JobId>) -> String {
    job.map_or_else(|| what.to_owned(), |job| format!("{what}-{job}"))
}

/// The number in a file. None if there is no file, or if it is of another job.
fn read(path: &Path, what: &str, job: Option<JobId>) -> Result<Option<u64>, IdentityError> {
    let bytes = match read_private(path, NOTE_BYTES) {
        Ok(bytes) => bytes,
        Err(PrivateError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let damaged = |found: &str| IdentityError::Damaged {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("bytes that are no text"))?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let ["sardana", found, format, number, _hash] = words[..] else {
        return Err(damaged("something else"));
    };
    if found.split('-').next() != Some(what) || found.contains('-') != job.is_some() {
        return Err(damaged("a note of something else"));
    }
    if format != FORMAT.to_string() {
        return Err(damaged("one of another release, which must be used instead"));
    }
    let number = u64::from_str_radix(number, 16).map_err(|_| damaged("no number"))?;
    if note(found, number) == text {
        Ok((found == named(what, job)).then_some(number))
    } else {
        Err(damaged("one whose hash does not match"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_id_stays_and_damage_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("depot");
        let id = identity(&folder).unwrap();
        assert_eq!(identity(&folder).unwrap(), id);
        let file = folder.join(DEPOT_FILE);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert!(identity(&folder).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&file, &flipped).unwrap();
            assert!(identity(&folder).is_err(), "byte {at}");
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(identity(&folder).unwrap(), id);
    }

    #[test]
    fn a_store_with_checkpoints_does_not_become_another_depot() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("depot");
        let id = identity(&folder).unwrap();
        fs::remove_file(folder.join(DEPOT_FILE)).unwrap();
        let other = identity(&folder).unwrap();
        assert_ne!(other, id, "an empty one may");
        let manifests = folder.join(MANIFESTS_FOLDER);
        fs::create_dir(&manifests).unwrap();
        fs::write(manifests.join("x"), []).unwrap();
        assert_eq!(identity(&folder).unwrap(), other);
        fs::remove_file(folder.join(DEPOT_FILE)).unwrap();
        assert!(matches!(identity(&folder), Err(IdentityError::Lost { .. })));
    }

    #[test]
    fn whom_it_served_is_kept() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let job = JobId::new([7; 16]);
        assert_eq!(served(place.path(), job).unwrap(), Incarnation::ZERO);
        for number in [3, u64::MAX] {
            note_served(place.path(), job, Incarnation::new(number)).unwrap();
            assert_eq!(served(place.path(), job).unwrap(), Incarnation::new(number));
            assert_eq!(served(place.path(), JobId::new([8; 16])).unwrap(), Incarnation::ZERO);
        }
        fs::copy(place.path().join(SERVED_FILE), place.path().join(DEPOT_FILE)).unwrap();
        assert!(matches!(identity(place.path()), Err(IdentityError::Damaged { .. })));
    }
}
