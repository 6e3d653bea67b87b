//! TLS for QUIC: version 1.3 only, both ends show a certificate of the job's authority, nothing is resumed or sent early.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::endpoint::BindError;
use super::purpose::Purpose;
use crate::trust::Credentials;

/// TLS as the accepting end.
pub(super) fn server(credentials: &Credentials, purpose: Purpose) -> Result<QuicServerConfig, BindError> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots(credentials)?, provider())
        .build()
        .map_err(unusable)?;
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![credentials.certificate()], credentials.key())
        .map_err(unusable)?;
    tls.alpn_protocols = vec![purpose.protocol().to_vec()];
    // Without tickets every connection verifies the peer's certificate anew.
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    QuicServerConfig::try_from(tls).map_err(unusable)
}

/// TLS as the dialling end.
pub(super) fn client(credentials: &Credentials, purpose: Purpose) -> Result<QuicClientConfig, BindError> {
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots(credentials)?)
        .with_client_auth_cert(vec![credentials.certificate()], credentials.key())
        .map_err(unusable)?;
    tls.alpn_protocols = vec![purpose.protocol().to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    tls.enable_early_data = false;
    QuicClientConfig::try_from(tls).map_err(unusable)
}

pub(super) fn roots(credentials: &Credentials) -> Result<Arc<RootCertStore>, BindError> {
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority()).map_err(unusable)?;
    Ok(Arc::new(roots))
}

/// Chosen here and not for the process, so that a program that embeds us may choose another for itself.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(error: impl std::fmt::Display) -> BindError {
    BindError::Credentials {
        reason: error.to_string(),
    }
}
