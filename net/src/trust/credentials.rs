//! What a process shows to prove who it is: its certificate, its key, and the authority it believes.

use std::fmt;

use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sardana_protocol::words::JobId;
use serde::{Deserialize, Serialize};

use super::identity::{IdentityError, PeerIdentity};
use super::limits::CERTIFICATE_BYTES;
use super::role::Role;

/// A process's own certificate and key with the authority's certificate. Handed to a child over an inherited descriptor, never
/// in arguments or the environment; not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    identity: PeerIdentity,
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Why credentials cannot be used. The caller gives up: they were made or carried wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The certificate names no process of a job.
    #[error("own certificate: {0}")]
    Identity(#[from] IdentityError),
    /// The certificate is another process's.
    #[error("the certificate is for {found}; expected {expected}")]
    Mismatch {
        /// The process that the credentials are for.
        expected: PeerIdentity,
        /// The process that the certificate is for.
        found: PeerIdentity,
    },
    /// The certificate is for another key.
    #[error("the certificate is for another key than the one that it was asked for")]
    OtherKey,
    /// The certificate is far too long.
    #[error("a certificate of {length} bytes, expected at most {CERTIFICATE_BYTES}")]
    TooLong {
        /// Its length.
        length: usize,
    },
}

impl Credentials {
    pub(super) fn new(identity: PeerIdentity, authority: Vec<u8>, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self {
            identity,
            authority,
            certificate,
            key,
        }
    }

    /// The process that they are for.
    #[must_use]
    pub const fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// The job they are for.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.identity.job
    }

    /// The role they prove.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.identity.role
    }

    /// The id they prove.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.identity.id
    }

    /// The certificate of the authority that this process believes.
    #[must_use]
    pub fn authority(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.authority.clone())
    }

    /// The process's own certificate.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.clone())
    }

    /// The process's own key, PKCS #8.
    #[must_use]
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    /// The key in bytes: for the one file that may hold it.
    pub(crate) fn key_bytes(&self) -> &[u8] {
        &self.key
    }

    /// Checks that the certificate is for the identity they are for: they may have come from another process.
    ///
    /// # Errors
    /// When it is for another process or for none.
    pub fn check(&self) -> Result<(), CredentialsError> {
        let found = PeerIdentity::in_certificate(&self.certificate())?;
        if found == self.identity {
            Ok(())
        } else {
            Err(CredentialsError::Mismatch {
                expected: self.identity,
                found,
            })
        }
    }

    /// These credentials with another authority believed: for tests of what a stranger's server sees.
    #[cfg(test)]
    pub(crate) fn believing(mut self, other: &Self) -> Self {
        self.authority.clone_from(&other.authority);
        self
    }
}

impl From<&Credentials> for PeerIdentity {
    fn from(credentials: &Credentials) -> Self {
        credentials.identity
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
