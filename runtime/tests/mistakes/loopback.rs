//! A coordinator in this process, for workers over real QUIC on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sardana::{Balance, JobEvent};
use sardana_actors::agent::Bundle;
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::trust::{Authority, Credentials};
use sardana_protocol::words::Incarnation;
use tokio::sync::mpsc::UnboundedReceiver;

pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A coordinator that waits for `workers` workers, and what happens to its job.
pub(crate) async fn coordinator(authority: &Arc<Authority>, workers: u32) -> (Coordinator, UnboundedReceiver<JobEvent>) {
    let config = CoordinatorConfig {
        registrar: Arc::new(Registrar::new(Arc::clone(authority))),
        listen: LOOPBACK,
        incarnation: Incarnation::new(1),
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min: workers,
        expected: workers,
        max: 8,
        balance: Balance::default(),
        saves: None,
    };
    coordinator::start(config).await.unwrap()
}

/// What a worker of this coordinator starts with.
pub(crate) fn bundle(coordinator: &Coordinator, credentials: Credentials) -> Bundle {
    Bundle {
        credentials,
        coordinator: coordinator.address().into(),
        listen: LOOPBACK,
        advertise: None,
        tally: None,
        memory: None,
        ends: Vec::new(),
    }
}
