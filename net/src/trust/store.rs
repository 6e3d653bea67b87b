//! An authority in a file, for a job that outlives the process that coordinates it.

use data_encoding::HEXLOWER;
use sardana_protocol::words::JobId;
use sardana_storage::private::{Existing, PrivateError, PrivateFolder, read_private, write_private};
use serde::{Deserialize, Serialize};

use super::authority::{Authority, AuthorityError};
use super::limits::PRIVATE_FILE_BYTES;

/// The file's name in its folder.
pub const AUTHORITY_FILE: &str = "authority.json";

/// The version of the file's form.
const VERSION: u16 = 1;

/// Why there is no authority. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened, or other users could have opened it.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The file is not what was written.
    #[error(
        "{path}: the job's authority is damaged: {reason}. Bring the file back from a copy; without it no process can join the job any \
         more. To begin another job, give an empty folder"
    )]
    Damaged {
        /// The path.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The file is of another release.
    #[error("{path}: the authority has version {found}, expected {VERSION}; use the release of sardana that made it")]
    Version {
        /// The path.
        path: String,
        /// What it says.
        found: u16,
    },
    /// None could be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// The file, in JSON. Bytes are in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u16,
    job: String,
    certificate: String,
    key: String,
    /// BLAKE3 of the other fields, in this order.
    hash: String,
}

/// Only the version, of a file of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u16,
}

impl Stored {
    fn new(authority: &Authority) -> Self {
        let mut stored = Self {
            version: VERSION,
            job: authority.job().to_string(),
            certificate: HEXLOWER.encode(authority.certificate()),
            key: HEXLOWER.encode(authority.key()),
            hash: String::new(),
        };
        stored.hash = stored.computed();
        stored
    }

    fn computed(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.job, &self.certificate, &self.key] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize().to_string()
    }

    fn authority(&self) -> Result<Authority, String> {
        if self.computed() != self.hash {
            return Err("its hash does not match".to_owned());
        }
        let bytes = |text: &String| HEXLOWER.decode(text.as_bytes()).map_err(|error| error.to_string());
        let job = bytes(&self.job)?.try_into().map_err(|_| "the job's id is no id".to_owned())?;
        Authority::from_parts(JobId::new(job), bytes(&self.certificate)?, bytes(&self.key)?)
            .map_err(|error| error.to_string())
    }
}

impl Authority {
    /// The authority that is kept in `folder`.
    ///
    /// # Errors
    /// When there is none, or it is damaged, or others could have read it.
    pub fn load(folder: &PrivateFolder) -> Result<Self, StoreError> {
        let file = folder.file(AUTHORITY_FILE);
        let path = file.display().to_string();
        let bytes = read_private(&file, PRIVATE_FILE_BYTES)?;
        let damaged = |reason: String| StoreError::Damaged {
            path: path.clone(),
            reason,
        };
        let versioned = serde_json::from_slice::<Versioned>(&bytes).map_err(|error| damaged(place_of(&error)))?;
        if versioned.version != VERSION {
            let found = versioned.version;
            return Err(StoreError::Version { path, found });
        }
        let stored = serde_json::from_slice::<Stored>(&bytes).map_err(|error| damaged(place_of(&error)))?;
        stored.authority().map_err(damaged)
    }

    /// The authority that is kept in `folder`, or a new one for `job` that is kept there from now on.
    ///
    /// # Errors
    /// See [`Authority::load`].
    pub fn load_or_create(folder: &PrivateFolder, job: JobId) -> Result<Self, StoreError> {
        match Self::load(folder) {
            Err(StoreError::Private(PrivateError::Missing { .. })) => {}
            loaded => return loaded,
        }
        let authority = Self::new(job)?;
        let bytes = serde_json::to_vec_pretty(&Stored::new(&authority)).map_err(|error| StoreError::Damaged {
            path: folder.file(AUTHORITY_FILE).display().to_string(),
            reason: error.to_string(),
        })?;
        match write_private(&folder.file(AUTHORITY_FILE), &bytes, Existing::Refuse) {
            // Another process was faster.
            Err(PrivateError::Exists { .. }) => Self::load(folder),
            written => written.map(|()| authority).map_err(StoreError::from),
        }
    }
}

/// What a parser found, without what it found there: that may be a key.
fn place_of(error: &serde_json::Error) -> String {
    format!(
        "it is not the JSON expected, at line {} column {}",
        error.line(),
        error.column()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sardana_storage::private::Missing;

    use super::super::{Role, StoreError};
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);

    fn folder() -> (tempfile::TempDir, PrivateFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        (place, folder)
    }

    #[test]
    fn an_authority_is_the_same_after_a_restart() {
        let (_place, folder) = folder();
        let made = Authority::load_or_create(&folder, JOB).unwrap();
        let loaded = Authority::load_or_create(&folder, JobId::new([8; 16])).unwrap();
        assert_eq!(loaded.job(), JOB, "the job is kept, too");
        assert_eq!(loaded.certificate(), made.certificate());
        assert_eq!(loaded.key(), made.key());
        let before = made.issue(Role::Worker, 1).unwrap();
        let after = loaded.issue(Role::Worker, 1).unwrap();
        assert_eq!(before.authority(), after.authority());
    }

    #[test]
    fn every_damage_is_an_error_that_says_what_to_do() {
        let (_place, folder) = folder();
        Authority::load_or_create(&folder, JOB).unwrap();
        let file = folder.file(AUTHORITY_FILE);
        let whole = std::fs::read(&file).unwrap();
        let check = |bytes: &[u8], what: &str| {
            write_private(&file, bytes, Existing::Replace).unwrap();
            let error = Authority::load_or_create(&folder, JOB).unwrap_err();
            assert!(
                matches!(error, StoreError::Damaged { .. } | StoreError::Version { .. }),
                "{what}: {error}"
            );
        };
        for length in (0..whole.len()).step_by(11) {
            check(&whole[..length], &format!("cut at {length}"));
        }
        for at in (0..whole.len()).step_by(7).filter(|&at| !whole[at].is_ascii_whitespace()) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            check(&damaged, &format!("byte {at}"));
        }
        let text = String::from_utf8(whole).unwrap().replace("\"version\": 1", "\"version\": 2");
        check(text.as_bytes(), "version");
    }

    #[test]
    fn a_key_that_others_could_read_is_refused() {
        let (_place, folder) = folder();
        Authority::load_or_create(&folder, JOB).unwrap();
        let file = folder.file(AUTHORITY_FILE);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Authority::load_or_create(&folder, JOB).unwrap_err();
        assert!(matches!(error, StoreError::Private(PrivateError::Open { .. })), "{error}");
    }

    #[test]
    fn an_error_does_not_show_the_key() {
        let (_place, folder) = folder();
        let made = Authority::load_or_create(&folder, JOB).unwrap();
        let file = folder.file(AUTHORITY_FILE);
        let key = HEXLOWER.encode(made.key());
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace("\"key\": \"", "\"key\": 1, \"x\": \"");
        write_private(&file, text.as_bytes(), Existing::Replace).unwrap();
        let error = format!("{:?}", Authority::load(&folder).unwrap_err());
        assert!(!error.contains(&key[..16]), "{error}");
    }
}
