//! What a simulated process stands on: sockets in the air, random choices that follow from the seed, signatures of one length. When it
//! is killed, its sockets are dead at once.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use rustls::crypto::CryptoProvider;
use sardana::within::{Clock, Environment, SimulatedHost};

use super::air::{Air, Mailbox};
use super::even;
use crate::dice::{Dice, mix};

/// One process's host. It has one address.
#[derive(Debug, Clone)]
pub(super) struct Host(Arc<Inner>);

struct Inner {
    air: Arc<Air>,
    ip: IpAddr,
    seed: u64,
    /// How many endpoints there were.
    endpoints: AtomicU64,
    alive: Arc<AtomicBool>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.ip).finish()
    }
}

impl Host {
    pub(super) fn new(air: &Arc<Air>, ip: IpAddr, seed: u64) -> Self {
        Self(Arc::new(Inner {
            air: Arc::clone(air),
            ip,
            seed,
            endpoints: AtomicU64::new(0),
            alive: Arc::new(AtomicBool::new(true)),
        }))
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.0.ip
    }

    pub(super) fn environment(&self) -> Environment {
        Environment::Simulated(Arc::clone(&self.0) as Arc<dyn SimulatedHost>)
    }

    /// Whether its process lives.
    pub(super) fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// From now on nothing is sent or received by what stands on it.
    pub(super) fn kill(&self) {
        self.0.alive.store(false, Ordering::Relaxed);
        self.0.air.bury(self.0.ip);
    }
}

impl Inner {
    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

impl SimulatedHost for Inner {
    fn socket(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        if !self.is_alive() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let ip = if address.ip().is_unspecified() {
            self.ip
        } else {
            address.ip()
        };
        if ip != self.ip {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let (address, mailbox) = self.air.bind(SocketAddr::new(ip, address.port()))?;
        Ok(Arc::new(Socket {
            air: Arc::clone(&self.air),
            address,
            mailbox,
            alive: Arc::clone(&self.alive),
        }))
    }

    fn seed(&self) -> [u8; 32] {
        let count = self.endpoints.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::new(mix(self.seed) ^ mix(count));
        let mut seed = [0; 32];
        for bytes in seed.chunks_mut(8) {
            bytes.copy_from_slice(&dice.bits().to_le_bytes());
        }
        seed
    }

    fn cryptography(&self) -> Arc<CryptoProvider> {
        even::cryptography()
    }

    fn clock(&self) -> Clock {
        self.air.clock()
    }
}

/// A bound UDP socket that can always be written to.
struct Socket {
    air: Arc<Air>,
    address: SocketAddr,
    mailbox: Arc<Mailbox>,
    /// Whether the process lives.
    alive: Arc<AtomicBool>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.address).finish()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.air.release(self.address, &self.mailbox);
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let alive = self.alive.load(Ordering::Relaxed);
        self.air
            .send(alive, self.address, transmit.destination, transmit.ecn, transmit.contents);
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        let letter = ready!(self.mailbox.poll(context));
        // As the kernel does, what does not fit is cut off.
        let len = letter.bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&letter.bytes[..len]);
        *meta = RecvMeta {
            addr: letter.from,
            len,
            stride: len,
            ecn: letter.ecn,
            dst_ip: Some(self.address.ip()),
        };
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
