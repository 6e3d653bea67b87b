//! How an endpoint that was started again tells its peers that their connections are gone (RFC 9000, section 10.3): with a key that
//! outlives it. Otherwise they would wait until the connections have been idle for too long.

use std::io;
use std::sync::Arc;

use quinn::EndpointConfig;
use quinn::crypto::{CryptoError, HmacKey};

use super::connection_ids::SignedIds;

/// A key of an endpoint that no other process knows, and that each of its lives has, if they are to tell of each other's connections.
pub struct ResetKey(pub [u8; 32]);

impl std::fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResetKey")
    }
}

impl ResetKey {
    /// One that no other life has.
    pub(super) fn random() -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(key))
    }

    pub(super) fn config(&self) -> EndpointConfig {
        let tokens = blake3::derive_key("sardana 2026-11 stateless reset tokens", &self.0);
        let names = blake3::derive_key("sardana 2026-11 connection ids", &self.0);
        let mut config = EndpointConfig::new(Arc::new(Keyed(tokens)));
        config.cid_generator(move || Box::new(SignedIds::new(names)));
        config
    }
}

/// BLAKE3 with a key, which is a MAC.
struct Keyed([u8; 32]);

impl HmacKey for Keyed {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        blake3::Hasher::new_keyed(&self.0)
            .update(data)
            .finalize_xof()
            .fill(signature_out);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        // Hashes compare in constant time.
        match <[u8; 32]>::try_from(signature) {
            Ok(found) if blake3::Hash::from_bytes(found) == blake3::Hash::from_bytes(expected) => Ok(()),
            Ok(_) | Err(_) => Err(CryptoError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_verified_by_its_key_alone() {
        let (one, other) = (Keyed([1; 32]), Keyed([2; 32]));
        let mut signature = [0; 32];
        one.sign(b"token", &mut signature);
        one.verify(b"token", &signature).unwrap();
        assert!(other.verify(b"token", &signature).is_err());
        assert!(one.verify(b"tokem", &signature).is_err());
        assert!(one.verify(b"token", &signature[..31]).is_err());
        assert_eq!(format!("{:?}", ResetKey([7; 32])), "ResetKey");
    }
}
