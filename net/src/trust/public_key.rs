//! Public keys, as signing requests and certificates hold them: by them the authority knows which processes have come before.

use std::fmt;

use rcgen::{CertificateSigningRequestParams, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls_pki_types::CertificateSigningRequestDer;

use super::authority::CertifyError;
use super::limits::SIGNING_REQUEST_BYTES;

/// A public key in few bytes. To find two keys with the same bytes, an attacker must make 2^64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDigest([u8; 16]);

impl KeyDigest {
    /// The digest with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The digest of the key with these bytes.
    pub(super) fn of(key: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&blake3::hash(key).as_bytes()[..16]);
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

/// A signing request that was looked at: its maker has the key.
#[derive(Debug)]
pub struct SigningRequest(rcgen::PublicKey);

impl SigningRequest {
    /// Looks at `request`, which is PKCS #10 in DER. Only its public key counts.
    ///
    /// # Errors
    /// When the request is not signed with the key that it is for, or is none.
    pub fn read(request: &[u8]) -> Result<Self, CertifyError> {
        let refused = |reason: String| CertifyError::Request { reason };
        if request.len() > SIGNING_REQUEST_BYTES {
            let found = request.len();
            return Err(refused(format!(
                "it has {found} bytes, at most {SIGNING_REQUEST_BYTES} are looked at"
            )));
        }
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
            .map_err(|error| refused(error.to_string()))?;
        if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err(refused("its key is of another kind".to_owned()));
        }
        Ok(Self(request.public_key))
    }

    /// Its key in few bytes.
    #[must_use]
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of(self.0.der_bytes())
    }

    pub(super) const fn key(&self) -> &rcgen::PublicKey {
        &self.0
    }
}
