//! Certificates and names, as any bytes.

use rustls_pki_types::CertificateDer;

use super::identity::PeerIdentity;
use super::request::life_of;

/// The identity in a certificate, how long the certificate holds, and a name alone.
///
/// # Panics
/// When an identity is not what its own name says.
pub fn fuzz(bytes: &[u8]) {
    drop(life_of(bytes));
    let named = PeerIdentity::in_certificate(&CertificateDer::from(bytes)).ok();
    let called = std::str::from_utf8(bytes)
        .ok()
        .and_then(|name| PeerIdentity::parse(name).ok());
    for identity in named.into_iter().chain(called) {
        assert_eq!(PeerIdentity::parse(&identity.server_name()).ok(), Some(identity));
    }
}
