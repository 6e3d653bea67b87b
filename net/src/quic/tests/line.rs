//! Two hosts in virtual time, and a line between them with a long round trip.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, RecvStream, UdpPoller};
use rustls::crypto::CryptoProvider;
use sardana_protocol::words::WorkerId;
use tokio::time::{Instant, Sleep, sleep};

use super::*;
use crate::environment::{Environment, SimulatedHost, cryptography};
use crate::quic::{Reach, bind_peer_on};
use crate::trust::Clock;

/// From one end to the other and back.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A datagram takes half a round trip; longer ones than it carries are lost.
#[derive(Debug)]
pub(super) struct Line {
    /// What its ends' addresses begin with.
    network: [u8; 3],
    pub(super) carries: AtomicUsize,
    narrow: Option<Narrow>,
    pub(super) dropped: AtomicUsize,
    ends: Mutex<BTreeMap<SocketAddr, Arc<End>>>,
}

/// A line that datagrams wait for at each end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    pub(super) bytes_per_second: f64,
    /// What waits for longer is dropped.
    pub(super) queue: Duration,
    /// One of so many is lost on the line, in turn.
    pub(super) loses_one_of: Option<usize>,
}

#[derive(Debug, Default)]
struct End {
    coming: Mutex<(VecDeque<Letter>, Option<Waker>)>,
    /// When all has left that waits here, and how many datagrams there were.
    leaving: Mutex<Option<(Instant, usize)>>,
}

#[derive(Debug)]
struct Letter {
    due: Instant,
    from: SocketAddr,
    bytes: Vec<u8>,
}

/// A line that is as fast as its ends, unless it is narrow.
pub(super) fn line(carries: usize, narrow: Option<Narrow>) -> Arc<Line> {
    line_on([192, 0, 2], carries, narrow)
}

/// The same, whose ends count as one host.
pub(super) fn loopback(carries: usize) -> Arc<Line> {
    line_on([127, 0, 0], carries, None)
}

fn line_on(network: [u8; 3], carries: usize, narrow: Option<Narrow>) -> Arc<Line> {
    Arc::new(Line {
        network,
        carries: AtomicUsize::new(carries),
        narrow,
        dropped: AtomicUsize::new(0),
        ends: Mutex::default(),
    })
}

impl Line {
    /// When what leaves an end now is at the other. None if never.
    fn due(&self, from: &End, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let Some(narrow) = self.narrow else {
            return Some(now + ROUND_TRIP / 2);
        };
        let mut leaving = from.leaving.lock().unwrap();
        let (free, count) = leaving.map_or((now, 0), |(free, count)| (free.max(now), count));
        if free - now > narrow.queue {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let free = free + Duration::from_secs_f64(bytes as f64 / narrow.bytes_per_second);
        *leaving = Some((free, count + 1));
        let lost = narrow.loses_one_of.is_some_and(|rarity| (count + 1).is_multiple_of(rarity));
        (!lost).then_some(free + ROUND_TRIP / 2)
    }
}

/// One end's host.
#[derive(Debug)]
struct Host(Arc<Line>);

impl SimulatedHost for Host {
    fn socket(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let end = Arc::new(End::default());
        self.0.ends.lock().unwrap().insert(address, Arc::clone(&end));
        let timer = Mutex::new(Box::pin(sleep(Duration::ZERO)));
        let line = Arc::clone(&self.0);
        Ok(Arc::new(Socket {
            line,
            address,
            end,
            timer,
        }))
    }

    fn seed(&self) -> [u8; 32] {
        [7; 32]
    }

    fn cryptography(&self) -> Arc<CryptoProvider> {
        Arc::new(cryptography())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }
}

struct Socket {
    line: Arc<Line>,
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
        if transmit.contents.len() > self.line.carries.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(due) = self.line.due(&self.end, transmit.contents.len()) else {
            return Ok(());
        };
        if let Some(end) = self.line.ends.lock().unwrap().get(&transmit.destination) {
            let mut coming = end.coming.lock().unwrap();
            coming.0.push_back(Letter {
                due,
                from: self.address,
                bytes: transmit.contents.to_vec(),
            });
            if let Some(reader) = coming.1.take() {
                reader.wake();
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut coming = self.end.coming.lock().unwrap();
        let now = Instant::now();
        let mut count = 0;
        while count < buffers.len() && coming.0.front().is_some_and(|letter| letter.due <= now) {
            let Letter { from, bytes, .. } = coming.0.pop_front().expect("there is a first one");
            buffers[count][..bytes.len()].copy_from_slice(&bytes);
            meta[count] = RecvMeta {
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
        coming.1 = Some(context.waker().clone());
        if let Some(first) = coming.0.front() {
            let mut timer = self.timer.lock().unwrap();
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

/// Two workers that take the path for so long, connected: the end that was dialled, the one that dialled, and their endpoints.
pub(super) async fn connected(line: &Arc<Line>, reach: Reach) -> (Connection, Connection, [Endpoint; 2]) {
    let authority = authority(JOB);
    let [one, two] = [1, 2].map(|id| authority.issue(Role::Worker, id).unwrap());
    let bind = |credentials: &Credentials, last| {
        let [a, b, c] = line.network;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, last)), 7_000);
        let host = Environment::Simulated(Arc::new(Host(Arc::clone(line))));
        (bind_peer_on(&host, credentials, address, reach).unwrap(), address)
    };
    let ((listening, address), (dialling, _)) = (bind(&one, 1), bind(&two, 2));
    let (dialled, accepted) = tokio::join!(
        connect(
            &dialling,
            address,
            PeerIdentity::worker(JOB, WorkerId::new(1)),
            CONNECT_DEADLINE
        ),
        accept_one(&listening, &one)
    );
    (accepted.unwrap().0, dialled.unwrap(), [listening, dialling])
}

/// A stream that never ends, between workers that take the path for so long: the connection that it leaves by, where it comes out, and the rest.
/// It rests for so long after each part of 64 KiB.
pub(super) async fn stream(line: &Arc<Line>, reach: Reach, rest: Duration) -> (Connection, RecvStream, [Endpoint; 2]) {
    let (accepted, dialled, endpoints) = connected(line, reach).await;
    // What is dialled has the windows from the beginning.
    let mut sending = accepted.open_uni().await.unwrap();
    sending.write_all(b"a stream begins with its first byte").await.unwrap();
    tokio::spawn(async move {
        let chunk = bytes::Bytes::from(vec![0; 1 << 16]);
        while sending.write_chunk(chunk.clone()).await.is_ok() {
            if !rest.is_zero() {
                sleep(rest).await;
            }
        }
    });
    let receiving = dialled.accept_uni().await.unwrap();
    (accepted, receiving, endpoints)
}

/// Reads for so long.
pub(super) async fn read(receiving: &mut RecvStream, time: Duration) -> usize {
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        bytes += receiving.read_chunk(usize::MAX, true).await.unwrap().unwrap().bytes.len();
    }
    bytes
}
