//! TLS for QUIC: version 1.3 only, both ends show a certificate of the job's authority, nothing is resumed or sent early. Only to
//! enrol does the dialling end need none.

use std::sync::{Arc, Mutex, PoisonError};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};

use super::endpoint::BindError;
use super::purpose::Purpose;
use crate::environment::Environment;
use crate::trust::{Credentials, RotatingCredentials};

/// Which clients an accepting end takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clients {
    /// Those with a certificate of the job.
    Certified,
    /// Those, and clients that want to enrol. TLS cannot tell them apart, so this must be done before anything of them is read.
    Strangers,
}

/// TLS as the accepting end.
pub(super) fn server(
    environment: &Environment,
    rotating: &RotatingCredentials,
    purpose: Purpose,
    clients: Clients,
) -> Result<QuicServerConfig, BindError> {
    let provider = environment.cryptography();
    let authority = rotating.current().authority();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, Arc::clone(&provider));
    let (verifier, protocols) = match clients {
        Clients::Certified => (verifier, vec![purpose]),
        Clients::Strangers => (verifier.allow_unauthenticated(), vec![purpose, Purpose::Enrolment]),
    };
    let mut tls = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(environment.clock()))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier.build().map_err(unusable)?)
        .with_cert_resolver(Shown::new(rotating, provider)?);
    tls.alpn_protocols = protocols.into_iter().map(|purpose| purpose.protocol().to_vec()).collect();
    // Without tickets every connection verifies the peer's certificate anew.
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    QuicServerConfig::try_from(tls).map_err(unusable)
}

/// TLS as the dialling end.
pub(super) fn client(
    environment: &Environment,
    rotating: &RotatingCredentials,
    purpose: Purpose,
) -> Result<QuicClientConfig, BindError> {
    let provider = environment.cryptography();
    let tls = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(environment.clock()))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots(rotating.current().authority())?)
        .with_client_cert_resolver(Shown::new(rotating, provider)?);
    dialling(tls, purpose)
}

/// TLS as an end without a certificate, that believes `authority` and wants to enrol.
pub(super) fn stranger(
    environment: &Environment,
    authority: CertificateDer<'static>,
) -> Result<QuicClientConfig, BindError> {
    let tls = ClientConfig::builder_with_details(environment.cryptography(), Arc::new(environment.clock()))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots(authority)?)
        .with_no_client_auth();
    dialling(tls, Purpose::Enrolment)
}

fn dialling(mut tls: ClientConfig, purpose: Purpose) -> Result<QuicClientConfig, BindError> {
    tls.alpn_protocols = vec![purpose.protocol().to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_early_data = false;
    QuicClientConfig::try_from(tls).map_err(unusable)
}

pub(super) fn roots(authority: CertificateDer<'static>) -> Result<Arc<RootCertStore>, BindError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(unusable)?;
    Ok(Arc::new(roots))
}

/// Shows the present certificate of these credentials in every handshake.
#[derive(Debug)]
struct Shown {
    rotating: RotatingCredentials,
    provider: Arc<CryptoProvider>,
    /// What was shown last, as TLS needs it.
    last: Mutex<(Arc<Credentials>, Arc<CertifiedKey>)>,
}

impl Shown {
    fn new(rotating: &RotatingCredentials, provider: Arc<CryptoProvider>) -> Result<Arc<Self>, BindError> {
        let credentials = rotating.current();
        let key = usable(&credentials, &provider).map_err(unusable)?;
        Ok(Arc::new(Self {
            rotating: rotating.clone(),
            provider,
            last: Mutex::new((credentials, key)),
        }))
    }

    fn present(&self) -> Arc<CertifiedKey> {
        let credentials = self.rotating.current();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.0, &credentials) {
            match usable(&credentials, &self.provider) {
                Ok(key) => *last = (credentials, key),
                Err(error) => tracing::warn!(%error, "the renewed certificate cannot be used; the one before it is shown"),
            }
        }
        Arc::clone(&last.1)
    }
}

/// Certificate and key as TLS needs them, if they belong together.
fn usable(credentials: &Credentials, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, rustls::Error> {
    CertifiedKey::from_der(vec![credentials.certificate()], credentials.key(), provider).map(Arc::new)
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn unusable(error: impl std::fmt::Display) -> BindError {
    BindError::Credentials {
        reason: error.to_string(),
    }
}
