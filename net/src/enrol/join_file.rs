//! Join files: an invitation with what its holder needs to use it, in a file that only its owner can read.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use data_encoding::HEXLOWER;
use rustls_pki_types::CertificateDer;
use sardana_protocol::words::JobId;
use sardana_storage::private::{Existing, PrivateError, read_private, write_private};
use serde::{Deserialize, Serialize};

use super::invitation::{Invitation, InvitationError, VERSION};
use super::limits::MAX_ADDRESSES;
use crate::trust::Moment;
use crate::trust::limits::{CERTIFICATE_BYTES, PRIVATE_FILE_BYTES};
use crate::trust::{Authority, Role};

/// What a join file holds. Its secret is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinFile {
    /// The invitation.
    pub invitation: Invitation,
    /// Where the coordinator may be reached, in the order to try.
    pub coordinators: Vec<SocketAddr>,
    authority: Vec<u8>,
}

/// Why a join file cannot be used or written. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum JoinFileError {
    /// It cannot be opened, or other users could have opened it.
    #[error("the join file cannot be used: {0}")]
    Private(#[from] PrivateError),
    /// It is no join file.
    #[error("{path}: not a join file: {reason}; ask for a new one: sardana invite")]
    Malformed {
        /// The path.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// It is no longer good.
    #[error("{path}: {source}")]
    Invitation {
        /// The path.
        path: String,
        /// Why it is not good.
        #[source]
        source: InvitationError,
    },
}

/// The file, in JSON. Bytes are in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u16,
    job: String,
    role: Role,
    coordinators: Vec<SocketAddr>,
    authority: String,
    expires: Moment,
    uses: u32,
    nonce: String,
    secret: String,
}

/// Only the version, of a file of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u16,
}

impl JoinFile {
    /// The join file for `invitation`, made by `authority`, whose coordinator is reached at `coordinators`.
    #[must_use]
    pub fn new(invitation: Invitation, authority: &Authority, coordinators: Vec<SocketAddr>) -> Self {
        Self {
            invitation,
            coordinators,
            authority: authority.certificate().to_vec(),
        }
    }

    /// The certificate of the job's authority: a process that it has not certified is not the coordinator.
    #[must_use]
    pub fn authority(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.authority.clone())
    }

    /// Writes it with mode 0600, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written, or is there and must not be replaced.
    pub fn write(&self, path: &Path, existing: Existing) -> Result<(), JoinFileError> {
        let invitation = &self.invitation;
        let written = Written {
            version: invitation.version,
            job: invitation.job.to_string(),
            role: invitation.role,
            coordinators: self.coordinators.clone(),
            authority: HEXLOWER.encode(&self.authority),
            expires: invitation.expires,
            uses: invitation.uses,
            nonce: HEXLOWER.encode(&invitation.nonce),
            secret: HEXLOWER.encode(&invitation.secret),
        };
        let malformed = |error: serde_json::Error| JoinFileError::Malformed {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let mut bytes = serde_json::to_vec_pretty(&written).map_err(malformed)?;
        bytes.push(b'\n');
        Ok(write_private(path, &bytes, existing)?)
    }

    /// Reads the join file at `path`, which is to be used at `now`.
    ///
    /// # Errors
    /// When others can read it, it is no join file, or of another version, or has expired.
    pub fn read(path: &Path, now: Moment) -> Result<Self, JoinFileError> {
        let join = Self::read_any(path)?;
        join.is_good(path, now)?;
        Ok(join)
    }

    /// Whether it, which is at `path`, has not expired at `now`.
    ///
    /// # Errors
    /// When it has.
    pub fn is_good(&self, path: &Path, now: Moment) -> Result<(), JoinFileError> {
        let at = self.invitation.expires;
        if now < at {
            return Ok(());
        }
        Err(JoinFileError::Invitation {
            path: path.display().to_string(),
            source: InvitationError::Expired { at, now },
        })
    }

    /// Reads the join file at `path`, expired or not.
    ///
    /// # Errors
    /// When others can read it, it is no join file, or of another version.
    pub fn read_any(path: &Path) -> Result<Self, JoinFileError> {
        let bytes = read_private(path, PRIVATE_FILE_BYTES)?;
        let malformed = |reason: String| JoinFileError::Malformed {
            path: path.display().to_string(),
            reason,
        };
        let versioned = serde_json::from_slice::<Versioned>(&bytes).map_err(|error| malformed(place_of(&error)))?;
        if versioned.version != VERSION {
            return Err(JoinFileError::Invitation {
                path: path.display().to_string(),
                source: InvitationError::Version {
                    found: versioned.version,
                },
            });
        }
        let written = serde_json::from_slice::<Written>(&bytes).map_err(|error| malformed(place_of(&error)))?;
        written.checked().map_err(malformed)
    }
}

impl Written {
    fn checked(self) -> Result<JoinFile, String> {
        let authority = bytes("authority", &self.authority)?;
        if authority.len() > CERTIFICATE_BYTES {
            let found = authority.len();
            return Err(format!("an authority of {found} bytes, expected at most {CERTIFICATE_BYTES}"));
        }
        let addresses = self.coordinators.len();
        if addresses == 0 || addresses > MAX_ADDRESSES {
            return Err(format!("{addresses} addresses, expected 1 to {MAX_ADDRESSES}"));
        }
        Ok(JoinFile {
            invitation: Invitation {
                version: self.version,
                job: JobId::new(array("job", &self.job)?),
                role: self.role,
                expires: self.expires,
                uses: self.uses,
                nonce: array("nonce", &self.nonce)?,
                secret: array("secret", &self.secret)?,
            },
            coordinators: self.coordinators,
            authority,
        })
    }
}

fn bytes(field: &str, text: &str) -> Result<Vec<u8>, String> {
    HEXLOWER
        .decode(text.as_bytes())
        .map_err(|_| format!("`{field}` is not in hexadecimal"))
}

fn array<const N: usize>(field: &str, text: &str) -> Result<[u8; N], String> {
    let bytes = bytes(field, text)?;
    let found = bytes.len();
    bytes
        .try_into()
        .map_err(|_| format!("`{field}` has {found} bytes, expected {N}"))
}

/// What a parser found, without what it found there: that may be a secret.
fn place_of(error: &serde_json::Error) -> String {
    format!("unexpected text at line {} column {}", error.line(), error.column())
}

impl fmt::Debug for JoinFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinFile")
            .field("invitation", &self.invitation)
            .field("coordinators", &self.coordinators)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::super::invitation::Terms;
    use super::super::registrar::invite;
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);
    const NOW: Moment = Moment::new(1_800_000_000);

    fn written() -> (tempfile::TempDir, PathBuf, JoinFile) {
        let authority = Authority::new(JOB).unwrap();
        let terms = Terms {
            role: Role::Agent,
            expires: Moment::new(NOW.seconds() + 60),
            uses: 3,
        };
        let invitation = invite(&authority, terms, NOW).unwrap();
        let addresses = vec!["10.0.0.1:7077".parse().unwrap(), "[::1]:7077".parse().unwrap()];
        let join = JoinFile::new(invitation, &authority, addresses);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.join");
        join.write(&path, Existing::Refuse).unwrap();
        (place, path, join)
    }

    #[test]
    fn a_join_file_is_written_and_read() {
        let (_place, path, join) = written();
        assert_eq!(JoinFile::read(&path, NOW).unwrap(), join);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(join.write(&path, Existing::Refuse).is_err(), "none is overwritten by mistake");
    }

    #[test]
    fn one_that_others_can_read_has_expired_or_is_of_another_version_is_refused() {
        let (_place, path, join) = written();
        let error = JoinFile::read(&path, join.invitation.expires).unwrap_err().to_string();
        assert!(error.contains("expired at") && error.contains("sardana invite"), "{error}");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
        let error = JoinFile::read(&path, NOW).unwrap_err().to_string();
        assert!(error.contains("version 7, expected 1"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = JoinFile::read(&path, NOW).unwrap_err().to_string();
        assert!(error.contains("expected mode 0600, found 0640"), "{error}");
    }

    #[test]
    fn a_malformed_one_is_an_error_that_shows_no_secret() {
        let (_place, path, join) = written();
        let text = std::fs::read_to_string(&path).unwrap();
        let secret = HEXLOWER.encode(&join.invitation.secret);
        let long = "0.0.0.0:1\", \"".repeat(MAX_ADDRESSES);
        let changes = [
            (r#""uses": 3"#.to_owned(), format!(r#""uses": "{secret}""#)),
            (r#""uses": 3"#.to_owned(), r#""uses": -1"#.to_owned()),
            (r#""uses": 3"#.to_owned(), format!(r#""uses": 3, "x": "{secret}""#)),
            (secret.clone(), secret.to_uppercase()),
            (secret.clone(), format!("{secret}00")),
            (r#""agent""#.to_owned(), r#""emperor""#.to_owned()),
            ("10.0.0.1:7077".to_owned(), "10.0.0.1".to_owned()),
            ("10.0.0.1:7077".to_owned(), format!("{long}0.0.0.0:1")),
            ("{".to_owned(), "[".to_owned()),
            ("30".to_owned(), "3".to_owned()),
        ];
        for (from, to) in changes {
            std::fs::write(&path, text.replacen(&from, &to, 1)).unwrap();
            let error = JoinFile::read(&path, NOW).unwrap_err();
            assert!(matches!(error, JoinFileError::Malformed { .. }), "{to}: {error}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.to_lowercase().contains(&secret[..8]), "{shown}");
        }
        for length in (0..text.len() - 2).step_by(13) {
            std::fs::write(&path, &text[..length]).unwrap();
            assert!(JoinFile::read(&path, NOW).is_err(), "cut at {length}");
        }
        std::fs::write(&path, vec![b' '; PRIVATE_FILE_BYTES as usize + 1]).unwrap();
        let error = JoinFile::read(&path, NOW).unwrap_err();
        assert!(
            matches!(error, JoinFileError::Private(PrivateError::TooLong { .. })),
            "{error}"
        );
        assert!(!format!("{join:?}").contains("secret"));
    }
}
