//! A key that waits for its certificate: its owner makes it, and only a signing request with the public half travels.

use std::fmt;
use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authority::AuthorityError;
use super::credentials::{Credentials, CredentialsError};
use super::identity::{IdentityError, PeerIdentity};
use super::limits::{CERTIFICATE_BYTES, CLOCK_SLACK};
use super::moment::Moment;

/// A key without a certificate. Not shown by `Debug`.
pub struct PendingKey(KeyPair);

impl PendingKey {
    /// A new key.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// The key of `credentials`, for another certificate.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(credentials: &Credentials) -> Result<Self, AuthorityError> {
        Self::from_bytes(credentials.key_bytes())
    }

    /// The key in PKCS #8, as [`Self::to_bytes`] has given it.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, AuthorityError> {
        let der = PrivatePkcs8KeyDer::from(bytes);
        Ok(Self(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)?))
    }

    /// The key in PKCS #8: for the one file that may hold it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.serialize_der()
    }

    /// The signing request for it: PKCS #10 in DER. It asks for nothing but a certificate: name and role are the authority's to
    /// decide.
    ///
    /// # Errors
    /// When the system cannot sign.
    pub fn request(&self) -> Result<Vec<u8>, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&self.0)?.der().to_vec())
    }

    /// The credentials that it makes with `certificate`, which came as the answer to the request.
    ///
    /// # Errors
    /// When the certificate is not one for this key: its sender is broken.
    pub fn certified(&self, authority: &CertificateDer<'_>, certificate: Vec<u8>) -> Result<Credentials, CredentialsError> {
        if certificate.len() > CERTIFICATE_BYTES {
            return Err(CredentialsError::TooLong {
                length: certificate.len(),
            });
        }
        let parsed = parsed(&certificate)?;
        if parsed.public_key().subject_public_key.data.as_ref() != self.0.der_bytes() {
            return Err(CredentialsError::OtherKey);
        }
        let identity = PeerIdentity::in_certificate(&CertificateDer::from(certificate.as_slice()))?;
        Ok(Credentials::new(
            identity,
            authority.to_vec(),
            certificate,
            self.0.serialize_der(),
        ))
    }
}

impl fmt::Debug for PendingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingKey").finish_non_exhaustive()
    }
}

/// For how long `certificate` is valid from the moment it was made.
pub(super) fn life_of(certificate: &[u8]) -> Result<Duration, CredentialsError> {
    let parsed = parsed(certificate)?;
    let validity = parsed.validity();
    let whole = validity.not_after.timestamp().saturating_sub(validity.not_before.timestamp());
    let whole = Duration::from_secs(u64::try_from(whole).unwrap_or(0));
    Ok(whole.saturating_sub(CLOCK_SLACK))
}

/// The last second in which `certificate` is valid.
pub(crate) fn certificate_ends(certificate: &[u8]) -> Result<Moment, CredentialsError> {
    let seconds = parsed(certificate)?.validity().not_after.timestamp();
    Ok(Moment::new(u64::try_from(seconds).unwrap_or(0)))
}

fn parsed(certificate: &[u8]) -> Result<X509Certificate<'_>, CredentialsError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(CredentialsError::Identity(IdentityError::Unreadable {
            reason: error.to_string(),
        })),
    }
}
