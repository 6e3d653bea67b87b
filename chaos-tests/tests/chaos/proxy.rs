//! A long way between the workers' hosts: a proxy for their datagrams, which takes time and loses some. Each host has a second address, which
//! is the proxy's; others are told that one. What a host sends from a port to another's second address comes from its own second address, and
//! the same port. Must not know what is in a datagram.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::network::{Host, Network, address};

/// The ports that hosts take: few enough that the proxy has a socket for each.
const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_031;

/// The longest datagram.
const LONGEST: usize = 1 << 16;

/// One of so many datagrams is lost, in turn.
const LOST: u64 = 97;

/// How much has come by.
#[derive(Debug, Default)]
pub(crate) struct Carried(AtomicU64);

impl Carried {
    /// How many datagrams were carried or lost.
    pub(crate) fn datagrams(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// How many of them were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.datagrams() / LOST
    }
}

/// The address that is told of a host.
pub(crate) const fn told(host: Host) -> Ipv4Addr {
    Ipv4Addr::new(10, 86, 1, host + 1)
}

/// Puts a proxy on the host `at` of `network` before the hosts `between`. Each datagram takes `delay`; about 1 % are lost.
pub(crate) async fn lay(network: &Network, at: Host, between: &[Host], delay: Duration) -> Result<Arc<Carried>> {
    for &host in between {
        network.address(at, told(host)).map_err(anyhow::Error::msg)?;
        network.route_to_second(host).map_err(anyhow::Error::msg)?;
        let ports = format!("{} {}", PORTS.start(), PORTS.end());
        let limited = network.on(host, move || Ok(fs::write("/proc/sys/net/ipv4/ip_local_port_range", ports)?))?;
        limited.join().expect("it does not panic")?;
    }
    let carried = Arc::new(Carried::default());
    let (between, counting) = (between.to_vec(), Arc::clone(&carried));
    let (ready, listening) = oneshot::channel();
    network.on(at, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let sockets = Arc::new(sockets(&between).await?);
            let _ = ready.send(());
            let mut carrying = JoinSet::new();
            for &place in sockets.keys() {
                carrying.spawn(carry(Arc::clone(&sockets), place, delay, Arc::clone(&counting)));
            }
            // For as long as the process lives, as a network does.
            while let Some(ended) = carrying.join_next().await {
                ended??;
            }
            Ok(())
        })
    })?;
    listening.await.context("the proxy listens")?;
    Ok(carried)
}

type Sockets = BTreeMap<(Host, u16), UdpSocket>;

async fn sockets(between: &[Host]) -> Result<Sockets> {
    let mut sockets = Sockets::new();
    for &host in between {
        for port in PORTS {
            sockets.insert((host, port), UdpSocket::bind((told(host), port)).await?);
        }
    }
    Ok(sockets)
}

/// Carries what is sent to one port of one host.
async fn carry(sockets: Arc<Sockets>, to: (Host, u16), delay: Duration, carried: Arc<Carried>) -> Result<()> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let (bytes, from) = match sockets[&to].recv_from(&mut buffer).await {
            Ok(received) => received,
            // A host told that nobody listens at a port.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error.into()),
        };
        let number = carried.0.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(LOST) {
            continue;
        }
        let Some(from) = sockets.keys().copied().find(|&place| own(place) == from) else {
            continue;
        };
        let (sockets, datagram) = (Arc::clone(&sockets), buffer[..bytes].to_vec());
        tokio::spawn(async move {
            sleep(delay).await;
            // Whatever hinders it, a datagram more is lost.
            let _ = sockets[&from].send_to(&datagram, own(to)).await;
        });
    }
}

/// Where a host itself has a port.
fn own((host, port): (Host, u16)) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address(host)), port)
}
