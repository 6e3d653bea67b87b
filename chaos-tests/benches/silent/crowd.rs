//! Many strangers who come to a coordinator at once and say nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sardana::hosts::JoinFile;
use sardana_net::enrol::COME_AGAIN;
use sardana_net::quic::{ConnectError, bind_stranger, connect};
use sardana_net::trust::PeerIdentity;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// For how long a stranger tries to be heard.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest datagram.
const DATAGRAM_BYTES: usize = 1 << 16;

/// In which way nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// No stranger comes: what the host does by itself.
    Nobody,
    /// The handshake is finished, and nothing follows.
    Silent,
    /// The handshake is begun, and what the coordinator answers is not heard.
    HalfWay,
}

impl Manner {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Nobody => "nobody comes",
            Self::Silent => "handshakes finished",
            Self::HalfWay => "handshakes never finished",
        }
    }
}

/// A crowd, on a thread of its own.
pub(crate) struct Crowd {
    go: oneshot::Sender<()>,
    thread: JoinHandle<Result<String>>,
}

impl Crowd {
    /// So many strangers come to the coordinator of `door`.
    pub(crate) fn come(manner: Manner, door: JoinFile, count: usize) -> Result<Self> {
        let (go, told) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                match manner {
                    Manner::Nobody => nobody(told).await,
                    Manner::Silent => silent(&door, count, told).await,
                    Manner::HalfWay => half_way(&door, count, told).await,
                }
            })
        });
        Ok(Self { go, thread })
    }

    /// They all go. Returns what they met with.
    pub(crate) fn go(self) -> Result<String> {
        // It may have failed already.
        let _ = self.go.send(());
        self.thread.join().map_err(|_| anyhow!("the crowd panicked"))?
    }
}

async fn nobody(told: oneshot::Receiver<()>) -> Result<String> {
    told.await?;
    Ok("no connection".to_owned())
}

/// What strangers met with that finished their handshakes.
#[derive(Debug, Default)]
struct Met {
    opened: usize,
    /// When the last handshake was finished.
    last: Duration,
    busy: usize,
    turned_away: usize,
    thrown_out: usize,
}

async fn silent(door: &JoinFile, count: usize, told: oneshot::Receiver<()>) -> Result<String> {
    let address = *door.coordinators.first().context("the join file names an address")?;
    let endpoint = bind_stranger(door.authority(), address)?;
    let coordinator = PeerIdentity::coordinator(door.invitation.job());
    let met = Arc::new(Mutex::new(Met::default()));
    let note = |met: &Mutex<Met>, what: &dyn Fn(&mut Met)| what(&mut met.lock().unwrap_or_else(PoisonError::into_inner));
    let begun = Instant::now();
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        let (endpoint, met) = (endpoint.clone(), Arc::clone(&met));
        crowd.spawn(async move {
            match connect(&endpoint, address, coordinator, PATIENCE).await {
                Ok(connection) => {
                    note(&met, &|met| (met.opened, met.last) = (met.opened + 1, begun.elapsed()));
                    let end = connection.closed().await;
                    let again =
                        matches!(&end, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == COME_AGAIN);
                    note(&met, &|met| {
                        *if again { &mut met.turned_away } else { &mut met.thrown_out } += 1
                    });
                }
                Err(ConnectError::Busy { .. }) => note(&met, &|met| met.busy += 1),
                // Not heard by the end; what is counted says so.
                Err(_) => {}
            }
        });
    }
    told.await?;
    let Met {
        opened,
        last,
        busy,
        turned_away,
        thrown_out,
    } = std::mem::take(&mut *met.lock().unwrap_or_else(PoisonError::into_inner));
    crowd.shutdown().await;
    Ok(format!(
        "{opened} of {count} finished a handshake, the last after {:.0} ms, {busy} were refused before it; {turned_away} of them were \
         told to come again, {thrown_out} thrown out for their silence",
        last.as_secs_f64() * 1e3
    ))
}

/// The strangers dial a socket that passes on what they send to the coordinator, and no answers.
async fn half_way(door: &JoinFile, count: usize, mut told: oneshot::Receiver<()>) -> Result<String> {
    let address = *door.coordinators.first().context("the join file names an address")?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (heard, passed_on) = (UdpSocket::bind(loopback).await?, UdpSocket::bind(loopback).await?);
    let dialled = heard.local_addr()?;
    let endpoint = bind_stranger(door.authority(), dialled)?;
    let coordinator = PeerIdentity::coordinator(door.invitation.job());
    let mut crowd = JoinSet::new();
    let (mut begun, mut datagrams) = (0, 0_u64);
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        // One after the other: a burst of first datagrams, which are large on loopback, would be lost.
        if begun < count {
            let endpoint = endpoint.clone();
            crowd.spawn(async move { connect(&endpoint, dialled, coordinator, PATIENCE).await.is_ok() });
            begun += 1;
        }
        tokio::select! {
            biased;
            told = &mut told => break told?,
            received = heard.recv_from(&mut buffer) => {
                passed_on.send_to(&buffer[..received?.0], address).await?;
                datagrams += 1;
            }
        }
    }
    crowd.shutdown().await;
    Ok(format!(
        "{begun} of {count} began a handshake and heard no answer; they sent {datagrams} datagrams"
    ))
}
