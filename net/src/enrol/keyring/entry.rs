//! A file of a keyring: a key, and the certificate that was got last.

use std::path::Path;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use sardana_storage::private::{Existing, PrivateError, read_private, write_private};
use serde::{Deserialize, Serialize};

use super::super::join_file::JoinFile;
use super::super::run_out::is_renewed;
use super::KeyringError;
use crate::trust::limits::PRIVATE_FILE_BYTES;
use crate::trust::{Credentials, Moment, PendingKey, Role, certificate_ends};

/// The version of the file's form.
const VERSION: u16 = 1;

/// What it holds. Not shown by `Debug`: it is keys.
pub(super) struct Entry {
    role: Role,
    expires: Moment,
    /// With which the join file is used, PKCS #8.
    pub(super) key: Vec<u8>,
    pub(super) certified: Option<Certified>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The credentials that were got last. The key may be another one by now.
#[derive(Debug)]
pub(super) struct Certified {
    pub(super) credentials: Credentials,
    pub(super) received: SystemTime,
}

/// The file, in JSON. Bytes are in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u16,
    role: Role,
    /// When the join file expires.
    expires: Moment,
    key: String,
    certified: Option<WrittenCertified>,
    /// BLAKE3 of the other fields.
    hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCertified {
    certificate: String,
    key: String,
    received: Moment,
}

/// The same file with the hash that it should have; none if more than the hash is wrong.
#[cfg(feature = "fuzzing")]
pub(super) fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut written: Written = serde_json::from_slice(bytes).ok()?;
    written.hash = written.hash();
    serde_json::to_vec_pretty(&written).ok()
}

/// Only the version, of a file of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u16,
}

impl Written {
    fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &str| {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        };
        add(self.role.word());
        add(&self.expires.seconds().to_string());
        add(&self.key);
        if let Some(certified) = &self.certified {
            add(&certified.certificate);
            add(&certified.key);
            add(&certified.received.seconds().to_string());
        }
        hasher.finalize().to_string()
    }

    fn read(path: &Path) -> Result<Self, KeyringError> {
        let bytes = read_private(path, PRIVATE_FILE_BYTES)?;
        // What a parser has found there may be a key.
        let damaged = |error: serde_json::Error| Entry::damaged(path, format!("unexpected text at line {}", error.line()));
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version != VERSION {
            return Err(KeyringError::Version {
                path: path.to_owned(),
                found: version,
                expected: VERSION,
            });
        }
        let written: Self = serde_json::from_slice(&bytes).map_err(damaged)?;
        if written.hash() == written.hash {
            Ok(written)
        } else {
            Err(Entry::damaged(path, "its hash does not match".to_owned()))
        }
    }
}

impl Entry {
    /// A new key for `join` in a file at `path`, or the key that another process has put there meanwhile.
    pub(super) fn make(path: &Path, join: &JoinFile) -> Result<Self, KeyringError> {
        let entry = Self {
            role: join.invitation.role(),
            expires: join.invitation.expires(),
            key: PendingKey::generate()?.to_bytes(),
            certified: None,
        };
        match entry.put(path, Existing::Refuse) {
            Err(KeyringError::Private(PrivateError::Exists { .. })) => Self::read(path, join),
            written => written.map(|()| entry),
        }
    }

    /// The entry at `path`, which is for `join`.
    pub(super) fn read(path: &Path, join: &JoinFile) -> Result<Self, KeyringError> {
        let written = Written::read(path)?;
        if written.role != join.invitation.role() {
            return Err(Self::damaged(path, "it is for another role".to_owned()));
        }
        let (role, expires) = (written.role, written.expires);
        let (key, certified) = written.contents(join).map_err(|reason| Self::damaged(path, reason))?;
        Ok(Self {
            role,
            expires,
            key,
            certified,
        })
    }

    /// Puts it in the place of the one before: after a crash at any moment one of them is there.
    pub(super) fn write(&self, path: &Path) -> Result<(), KeyringError> {
        self.put(path, Existing::Replace)
    }

    fn put(&self, path: &Path, existing: Existing) -> Result<(), KeyringError> {
        let certified = self.certified.as_ref().map(|certified| WrittenCertified {
            certificate: HEXLOWER.encode(&certified.credentials.certificate()),
            key: HEXLOWER.encode(certified.credentials.key_bytes()),
            received: Moment::of(certified.received),
        });
        let mut written = Written {
            version: VERSION,
            role: self.role,
            expires: self.expires,
            key: HEXLOWER.encode(&self.key),
            certified,
            hash: String::new(),
        };
        written.hash = written.hash();
        let bytes = serde_json::to_vec_pretty(&written).map_err(|error| Self::damaged(path, error.to_string()))?;
        Ok(write_private(path, &bytes, existing)?)
    }

    /// Whether the entry at `path` cannot be used any more.
    pub(super) fn is_useless(path: &Path, now: Moment) -> bool {
        let Ok(written) = Written::read(path) else { return false };
        let renewed = written.certified.as_ref().is_some_and(|certified| {
            let bytes = HEXLOWER.decode(certified.certificate.as_bytes()).ok();
            let ends = bytes.and_then(|bytes| certificate_ends(&bytes).ok());
            ends.is_some_and(|ends| now <= ends || is_renewed(written.role, ends, now))
        });
        written.expires <= now && !renewed
    }

    fn damaged(path: &Path, reason: String) -> KeyringError {
        KeyringError::Damaged {
            path: path.to_owned(),
            reason,
        }
    }
}

impl Written {
    fn contents(self, join: &JoinFile) -> Result<(Vec<u8>, Option<Certified>), String> {
        let bytes = |text: &str| {
            HEXLOWER
                .decode(text.as_bytes())
                .map_err(|_| "a key is not in hexadecimal".to_owned())
        };
        let key = bytes(&self.key)?;
        PendingKey::from_bytes(&key).map_err(|_| "it holds no key".to_owned())?;
        let certified = self.certified.map(|certified| {
            let key = PendingKey::from_bytes(&bytes(&certified.key)?).map_err(|_| "it holds no key".to_owned())?;
            let credentials = key
                .certified(&join.authority(), bytes(&certified.certificate)?)
                .map_err(|error| error.to_string())?;
            let received = SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_secs(certified.received.seconds()))
                .ok_or_else(|| "it was received at no time that there is".to_owned())?;
            Ok::<_, String>(Certified { credentials, received })
        });
        Ok((key, certified.transpose()?))
    }
}
