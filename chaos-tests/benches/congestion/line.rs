//! A path in virtual time that several connections share, and hosts at its ends: each datagram from a giver queues with those of the others.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use rustls::crypto::CryptoProvider;
use sardana_net::environment::{Congestion, Environment, SimulatedHost, cryptography};
use sardana_net::trust::Clock;
use tokio::time::{Instant, Sleep, sleep};

use crate::way::{Fate, Kind, Way};

/// What Ethernet carries of a UDP datagram; longer ones are lost without a word.
const CARRIED_BYTES: usize = 1_472;

/// Both ways, and who is at the ends.
#[derive(Debug)]
pub(crate) struct Line {
    there: Mutex<Way>,
    back: Mutex<Way>,
    ends: Mutex<BTreeMap<SocketAddr, Arc<End>>>,
    /// How many datagrams found no room.
    crowded: AtomicU64,
}

#[derive(Debug, Default)]
struct End(Mutex<Coming>);

#[derive(Debug, Default)]
struct Coming {
    letters: VecDeque<Letter>,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Letter {
    due: Instant,
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Coming {
    fn due(&mut self, now: Instant) -> Option<Letter> {
        let due = self.letters.front().is_some_and(|first| first.due <= now);
        due.then(|| self.letters.pop_front()).flatten()
    }
}

/// Which end of the path a host is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Giver,
    Taker,
}

/// A host with a number of its own on its side.
pub(crate) struct Host {
    pub(crate) line: Arc<Line>,
    pub(crate) side: Side,
    pub(crate) number: u8,
    /// What decides how fast its connections send.
    pub(crate) congestion: Option<Congestion>,
}

impl Line {
    pub(crate) fn new(there: Kind, back: Kind) -> Arc<Self> {
        let now = Instant::now().into_std();
        Arc::new(Self {
            there: Mutex::new(Way::new(there, now)),
            back: Mutex::new(Way::new(back, now)),
            ends: Mutex::default(),
            crowded: AtomicU64::new(0),
        })
    }

    pub(crate) fn crowded(&self) -> u64 {
        self.crowded.load(Ordering::Relaxed)
    }

    fn carry(&self, side: Side, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if bytes.len() > CARRIED_BYTES {
            return;
        }
        let way = match side {
            Side::Giver => &self.there,
            Side::Taker => &self.back,
        };
        let fate = way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now().into_std(), bytes.len());
        let due = match fate {
            Fate::Arrives(due) => Instant::from_std(due),
            Fate::Crowded => {
                self.crowded.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Fate::Lost => return,
        };
        let end = self.ends.lock().unwrap_or_else(PoisonError::into_inner).get(&to).cloned();
        if let Some(end) = end {
            let mut coming = end.0.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = bytes.to_vec();
            coming.letters.push_back(Letter { due, from, bytes });
            if let Some(reader) = coming.reader.take() {
                reader.wake();
            }
        }
    }
}

impl Host {
    pub(crate) fn address(&self) -> SocketAddr {
        let network = match self.side {
            Side::Giver => 1,
            Side::Taker => 2,
        };
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, network, self.number)), 7_000)
    }

    pub(crate) fn environment(self) -> Environment {
        Environment::Simulated(Arc::new(self))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.address()).finish()
    }
}

impl SimulatedHost for Host {
    fn socket(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let end = Arc::new(End::default());
        let mut ends = self.line.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.insert(address, Arc::clone(&end));
        Ok(Arc::new(Socket {
            line: Arc::clone(&self.line),
            side: self.side,
            address,
            end,
            timer: Mutex::new(Box::pin(sleep(std::time::Duration::ZERO))),
        }))
    }

    fn seed(&self) -> [u8; 32] {
        [self.number; 32]
    }

    fn cryptography(&self) -> Arc<CryptoProvider> {
        Arc::new(cryptography())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn congestion(&self) -> Option<Congestion> {
        self.congestion.clone()
    }
}

struct Socket {
    line: Arc<Line>,
    side: Side,
    address: SocketAddr,
    end: Arc<End>,
    timer: Mutex<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.address).finish()
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
        let length = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        for datagram in transmit.contents.chunks(length) {
            self.line.carry(self.side, self.address, transmit.destination, datagram);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut coming = self.end.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let Some(Letter { from, bytes, .. }) = coming.due(now) else {
                break;
            };
            buffer
                .get_mut(..bytes.len())
                .expect("a datagram fits")
                .copy_from_slice(&bytes);
            *meta = RecvMeta {
                addr: from,
                len: bytes.len(),
                stride: bytes.len(),
                ecn: None,
                dst_ip: None,
            };
            count += 1;
        }
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        coming.reader = Some(context.waker().clone());
        if let Some(first) = coming.letters.front() {
            let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
            timer.as_mut().reset(first.due);
            if timer.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
