//! TLS whose messages have one length each: signatures of ECDSA vary by a byte or two, as it comes. It signs again until they do not.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, KeyProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use sardana_net::environment::cryptography as cryptography_of_hosts;
use sardana_net::trust::EVEN_BYTES;

/// The algorithms of production, but that every signature has the commonest length.
pub(super) fn cryptography() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        key_provider: &EvenKeys,
        ..cryptography_of_hosts()
    })
}

#[derive(Debug)]
struct EvenKeys;

impl KeyProvider for EvenKeys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let key = ring::default_provider().key_provider.load_private_key(key)?;
        Ok(Arc::new(EvenKey(key)))
    }
}

#[derive(Debug)]
struct EvenKey(Arc<dyn SigningKey>);

impl SigningKey for EvenKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(EvenSigner(self.0.choose_scheme(offered)?)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct EvenSigner(Box<dyn Signer>);

impl Signer for EvenSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        loop {
            let signature = self.0.sign(message)?;
            if signature.len() == EVEN_BYTES {
                return Ok(signature);
            }
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}
