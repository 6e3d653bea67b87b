//! Paths between hosts, in virtual time: how much one stream carries where a round trip is long, and how large datagrams become.

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
use crate::quic::limits::NETWORK_BYTES;
use crate::quic::{Reach, bind_peer_on};
use crate::trust::Clock;

/// From one end to the other and back.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A datagram takes half a round trip; longer ones than it carries are lost.
#[derive(Debug)]
struct Line {
    carries: AtomicUsize,
    ends: Mutex<BTreeMap<SocketAddr, Arc<End>>>,
}

#[derive(Debug, Default)]
struct End {
    coming: Mutex<(VecDeque<Letter>, Option<Waker>)>,
}

#[derive(Debug)]
struct Letter {
    due: Instant,
    from: SocketAddr,
    bytes: Vec<u8>,
}

fn line(carries: usize) -> Arc<Line> {
    Arc::new(Line {
        carries: AtomicUsize::new(carries),
        ends: Mutex::default(),
    })
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
        let fits = transmit.contents.len() <= self.line.carries.load(Ordering::Relaxed);
        if let Some(end) = self.line.ends.lock().unwrap().get(&transmit.destination).filter(|_| fits) {
            let mut coming = end.coming.lock().unwrap();
            coming.0.push_back(Letter {
                due: Instant::now() + ROUND_TRIP / 2,
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

/// A stream that never ends, between workers that take the path for so long: the connection that it leaves by, where it comes out, and the rest.
/// It rests for so long after each part of 64 KiB.
async fn stream(line: &Arc<Line>, reach: Reach, rest: Duration) -> (Connection, RecvStream, [Endpoint; 2]) {
    let authority = authority(JOB);
    let [one, two] = [1, 2].map(|id| authority.issue(Role::Worker, id).unwrap());
    let bind = |credentials: &Credentials, last| {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), 7_000);
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
    let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap().0);
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
    (accepted, receiving, [listening, dialling])
}

/// The most that one stream carries within a round trip, looked for during `patience`.
async fn most_within_a_round_trip(reach: Reach, patience: Duration) -> usize {
    let (_sending, mut receiving, _endpoints) = stream(&line(1 << 16), reach, Duration::ZERO).await;
    let (began, mut within, mut sum, mut most) = (Instant::now(), VecDeque::new(), 0, 0);
    while began.elapsed() < patience {
        let chunk = receiving.read_chunk(usize::MAX, true).await.unwrap().unwrap();
        let now = Instant::now();
        within.push_back((now, chunk.bytes.len()));
        sum += chunk.bytes.len();
        while within.front().is_some_and(|&(at, _)| now - at >= ROUND_TRIP) {
            sum -= within.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        most = most.max(sum);
    }
    most
}

#[tokio::test(start_paused = true)]
async fn a_stream_fills_ten_gigabits_at_a_tenth_of_a_second_where_workers_are_said_to_be_so_far() {
    let near = most_within_a_round_trip(Reach::default(), Duration::from_secs(2)).await;
    assert!(
        (12_500_000..17_000_000).contains(&near),
        "{near} bytes, as much as 1 Gbit/s carries"
    );
    let far = Reach::of(ROUND_TRIP).unwrap();
    let far = most_within_a_round_trip(far, Duration::from_millis(1_900)).await;
    assert!(far >= 125_000_000, "{far} bytes, as much as 10 Gbit/s carry");
}

/// Reads for so long.
async fn read(receiving: &mut RecvStream, time: Duration) -> usize {
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        bytes += receiving.read_chunk(usize::MAX, true).await.unwrap().unwrap().bytes.len();
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn datagrams_become_as_large_as_the_path_carries_and_smaller_again() {
    const PATIENCE: Duration = Duration::from_secs(6);
    // UDP payloads of networks of 9,000, and of 1,500, which quinn finds but for 20 bytes.
    for (carries, least, most) in [(8_972, NETWORK_BYTES, NETWORK_BYTES), (1_472, 1_452, 1_472)] {
        let line = line(carries);
        let (sending, mut receiving, _endpoints) = stream(&line, Reach::default(), ROUND_TRIP / 10).await;
        read(&mut receiving, PATIENCE).await;
        let found = sending.stats().path;
        assert!((least..=most).contains(&found.current_mtu), "{found:?}");
        assert_eq!(found.black_holes_detected, 0);
        // From now on it carries no more than QUIC needs.
        line.carries.store(1_200, Ordering::Relaxed);
        let bytes = read(&mut receiving, 2 * PATIENCE).await;
        let found = sending.stats().path;
        assert_eq!(found.current_mtu, 1_200);
        assert!(found.black_holes_detected > 0, "{found:?}");
        assert!(bytes > 1 << 20, "{bytes} bytes");
    }
}
