//! A keyring: the folder in which a user's processes keep the keys that they have used join files with, and what they got for it.
//!
//! One file for each use of a join file. The key is there before the join file is used with it, so that a lost answer costs no use. Every
//! agent and every checkpoint actor has a file of its own; workers and operators share one.

mod entry;
#[cfg(feature = "fuzzing")]
mod fuzz;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use sardana_storage::lock::{FileLock, Holder};
use sardana_storage::private::{Missing, PrivateError, PrivateFolder, open_private};

use self::entry::{Certified, Entry};
#[cfg(feature = "fuzzing")]
pub use self::fuzz::{examples, fuzz};
use super::client::EnrolError;
use super::errand::Errand;
use super::join_file::{JoinFile, JoinFileError};
use super::limits::{MAX_SLOTS, SWEPT_FILES};
use crate::environment::Environment;
use crate::trust::{AuthorityError, Credentials, Moment, PendingKey, Role, RotatingCredentials};

/// What the names of its files end with.
const ENDING: &str = "key";

/// Why a keyring cannot be used. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The folder, or a file in it, cannot be opened, or other users could have opened it.
    #[error(
        "the keyring, where the keys of join files are kept, cannot be used: {0}; or give another folder: --keyring DIR"
    )]
    Private(#[from] PrivateError),
    /// A file in it is damaged.
    #[error(
        "{}: the key that the join file was used with is damaged: {reason}. Remove that file: then this host's next use of the join file \
         counts as another one, and if there is none left, ask for a new one: sardana invite", .path.display()
    )]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file in it is of another release.
    #[error("{}: the key has version {found}, expected {expected}; use the release of sardana that made it, or give another folder: --keyring DIR", .path.display())]
    Version {
        /// The key's file.
        path: PathBuf,
        /// The file's version.
        found: u16,
        /// The version that this release writes.
        expected: u16,
    },
    /// Other processes have the join file.
    #[error(
        "this join file is for {uses} uses, and as many processes of this user use it already (among them process {pid}): stop one, or ask \
         for another join file: sardana invite"
    )]
    Taken {
        /// A process that uses it; `unknown` if it has not said so yet.
        pid: String,
        /// How often the join file may be used, or how often at a time on one host.
        uses: u32,
    },
    /// No key could be made.
    #[error(transparent)]
    Key(#[from] AuthorityError),
}

/// A folder of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyring(PrivateFolder);

impl Keyring {
    /// The keyring in the folder at `path`, made if it is not there.
    ///
    /// # Errors
    /// When other users can enter it, or it is another user's.
    pub fn open(path: &Path) -> Result<Self, KeyringError> {
        Ok(Self(PrivateFolder::open(path, Missing::Create)?))
    }

    /// The keyring in `folder`.
    #[must_use]
    pub const fn within(folder: PrivateFolder) -> Self {
        Self(folder)
    }

    /// The key for this process's use of `join`: the one that is there, or a new one, which is on the disk when this returns.
    pub(super) fn hold(&self, join: &JoinFile, now: Moment) -> Result<Held, KeyringError> {
        self.sweep(now);
        let (slot, lock) = match join.invitation.role() {
            Role::Worker | Role::Operator | Role::Coordinator => (0, None),
            Role::Agent | Role::Checkpoint => {
                let (slot, lock) = self.free_slot(join)?;
                (slot, Some(lock))
            }
        };
        let path = self.path(join, slot, ENDING);
        let entry = match Entry::read(&path, join) {
            Err(KeyringError::Private(PrivateError::Missing { .. })) => Entry::make(&path, join)?,
            read => read?,
        };
        Ok(Held { path, entry, lock })
    }

    /// The first slot that no other process has.
    fn free_slot(&self, join: &JoinFile) -> Result<(u32, FileLock), KeyringError> {
        let uses = join.invitation.uses().min(MAX_SLOTS);
        let mut pid = "unknown".to_owned();
        for slot in 0..uses {
            let path = self.path(join, slot, "lock");
            let file = open_private(&path, Missing::Create)?;
            match FileLock::take(file).map_err(|error| PrivateError::system(&path, error))? {
                Ok(lock) => return Ok((slot, lock)),
                Err(Holder { pid: holder }) => pid = holder,
            }
        }
        Err(KeyringError::Taken { pid, uses })
    }

    fn path(&self, join: &JoinFile, slot: u32, ending: &str) -> PathBuf {
        let nonce = HEXLOWER.encode(&join.invitation.nonce());
        self.0.file(&format!("{nonce}.{slot}.{ending}"))
    }

    /// Removes entries that cannot be used any more. A file that cannot be read is left to the process that wants it.
    fn sweep(&self, now: Moment) {
        let Ok(files) = fs::read_dir(self.0.path()) else { return };
        for file in files.flatten().take(SWEPT_FILES) {
            let path = file.path();
            if path.extension().is_some_and(|ending| ending == ENDING) && Entry::is_useless(&path, now) {
                // Another process may have been faster.
                let _ = fs::remove_file(&path).and_then(|()| fs::remove_file(path.with_extension("lock")));
            }
        }
    }
}

/// One use of a join file, which this process has.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    entry: Entry,
    /// None if it is shared.
    lock: Option<FileLock>,
}

impl Held {
    /// What is to be done to have credentials at `now`. `good` says whether the join file has not expired.
    pub(super) fn errand(
        &self,
        join: &JoinFile,
        good: Result<(), JoinFileError>,
        now: SystemTime,
    ) -> Result<Errand, EnrolError> {
        // An agent or checkpoint actor is renewed as long as it comes in time; an operator's access ends with its file.
        let stays = self.lock.is_some();
        if let Some(Certified { credentials, received }) = &self.entry.certified {
            let is_fresh = !RotatingCredentials::new(credentials.clone(), *received).is_due(now);
            if is_fresh && (stays || good.is_ok()) {
                return Ok(Errand::Show(credentials.clone()));
            }
            if stays && good.is_err() {
                return Ok(Errand::renewal(&Environment::Host, credentials)?);
            }
        }
        good?;
        let key = PendingKey::from_bytes(&self.entry.key)?;
        Ok(Errand::invited(&Environment::Host, join, key)?)
    }

    /// What it got before is of no use, whatever its times say.
    pub(super) fn forget(&mut self) {
        self.entry.certified = None;
    }

    /// Keeps these for the next time. A worker's are for one process only, and are not kept.
    pub(super) fn keep(&mut self, credentials: &Credentials, received: SystemTime) -> Result<(), KeyringError> {
        if credentials.role() == Role::Worker {
            return Ok(());
        }
        self.entry.certified = Some(Certified {
            credentials: credentials.clone(),
            received,
        });
        self.entry.write(&self.path)
    }

    /// Keeps what comes after, for a process that stays; no other process has its place meanwhile.
    pub(super) fn kept(self) -> Option<Kept> {
        self.lock.is_some().then_some(Kept(self))
    }
}

/// Where a process's next certificates are kept, and its place on the keyring: no other process has it while this lives.
#[derive(Debug)]
pub struct Kept(Held);

impl Kept {
    /// From now on writes down each certificate that `rotating` gets, until its last owner has let go of it.
    ///
    /// Must be called inside a tokio runtime.
    pub fn follow(self, rotating: &RotatingCredentials) {
        let mut renewals = rotating.renewals();
        let Self(mut held) = self;
        tokio::spawn(async move {
            while let Some((credentials, received)) = renewals.next().await {
                let written = tokio::task::spawn_blocking(move || {
                    let kept = held.keep(&credentials, received);
                    (held, kept)
                });
                let kept;
                // It panics only if this process is broken.
                let Ok(done) = written.await else { return };
                (held, kept) = done;
                if let Err(error) = kept {
                    tracing::warn!(%error, "a new certificate could not be kept: if this process is started again later than the one before holds, it needs its join file");
                }
            }
        });
    }
}
