//! One QUIC connection on loopback, and links over it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sardana_collectives::links::{LinkReceiver, LinkSender};
use sardana_protocol::memory::Windows;

/// What a connection lets lie.
const WINDOWS: Windows = Windows {
    unread: 1_250_000,
    unacknowledged: 10_000_000,
};

/// Both ends of one connection. The endpoints live as long.
pub(crate) struct Loopback {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    _endpoints: [Endpoint; 2],
}

pub(crate) async fn loopback() -> Loopback {
    loopback_with(WINDOWS).await
}

pub(crate) async fn loopback_with(windows: Windows) -> Loopback {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec!["ring".to_owned()]).unwrap();
    let certificate = CertificateDer::from(cert);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u64(windows.unread).unwrap())
        .send_window(windows.unacknowledged);
    let transport = Arc::new(transport);
    let mut server_config = quinn::ServerConfig::with_single_cert(vec![certificate.clone()], key).unwrap();
    server_config.transport_config(Arc::clone(&transport));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client_config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    client_config.transport_config(transport);

    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Endpoint::server(server_config, anywhere).unwrap();
    let mut client = Endpoint::client(anywhere).unwrap();
    client.set_default_client_config(client_config);
    let connecting = client.connect(server.local_addr().unwrap(), "ring").unwrap();
    let accepting = async { server.accept().await.unwrap().await.unwrap() };
    let (connected, accepted) = tokio::join!(connecting, accepting);
    Loopback {
        client: connected.unwrap(),
        server: accepted,
        _endpoints: [client, server],
    }
}

impl Loopback {
    /// A stream that has been used for a hello, as links are.
    pub(crate) async fn stream(&self) -> (SendStream, RecvStream) {
        let mut sender = self.client.open_uni().await.unwrap();
        sender.write_all(b"hello").await.unwrap();
        let mut receiver = self.server.accept_uni().await.unwrap();
        let mut hello = [0; 5];
        receiver.read_exact(&mut hello).await.unwrap();
        (sender, receiver)
    }

    pub(crate) async fn link(&self) -> (LinkSender, LinkReceiver) {
        let (sender, receiver) = self.stream().await;
        (LinkSender::quic(sender), LinkReceiver::quic(receiver))
    }
}
