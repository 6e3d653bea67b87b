//! A path between two sockets on this host, through which datagrams go as its two ways have it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::way::{Fate, Kind, Way};

/// The largest datagram.
const DATAGRAM_BYTES: usize = 1 << 16;

/// So often it is looked whether the path ends.
const LOOK: Duration = Duration::from_millis(50);

/// What is asked of the kernel for each socket.
const SOCKET_BYTES: usize = 8 << 20;

/// Until it is dropped.
pub(crate) struct Path {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    crowded: AtomicU64,
    lost: AtomicU64,
    /// The socket that dials.
    dialler: OnceLock<SocketAddr>,
}

impl Path {
    /// Leads to `to`; whatever comes first from elsewhere is the other end.
    pub(crate) fn begin(to: SocketAddr, forth: Kind, back: Kind) -> Result<Self> {
        let (front, rear) = (socket()?, socket()?);
        rear.connect(to)?;
        let (address, shared) = (front.local_addr()?, Arc::new(Shared::default()));
        let (there, here) = (front.try_clone()?, rear.try_clone()?);
        lead(forth, Arc::clone(&shared), front, move |datagram, _| rear.send(datagram));
        lead(back, Arc::clone(&shared), here, move |datagram, shared| {
            shared.dialler.get().map_or(Ok(0), |dialler| there.send_to(datagram, dialler))
        });
        Ok(Self { address, shared })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many datagrams found no room in a queue.
    pub(crate) fn crowded(&self) -> u64 {
        self.shared.crowded.load(Ordering::Relaxed)
    }

    /// How many were lost at random.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(LOOK))?;
    set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
    set_socket_send_buffer_size(&socket, SOCKET_BYTES)?;
    Ok(socket)
}

/// One direction: a thread that takes datagrams in, and one that sends each when its time has come.
fn lead(
    kind: Kind,
    shared: Arc<Shared>,
    from: UdpSocket,
    send: impl Fn(&[u8], &Shared) -> io::Result<usize> + Send + 'static,
) {
    let (queue, due) = channel();
    let sending = Arc::clone(&shared);
    thread::spawn(move || take_in(kind, &shared, &from, &queue));
    thread::spawn(move || send_out(&due, |datagram| send(datagram, &sending)));
}

fn take_in(kind: Kind, shared: &Shared, from: &UdpSocket, queue: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; DATAGRAM_BYTES];
    let mut way = Way::new(kind, Instant::now());
    while !shared.over.load(Ordering::Relaxed) {
        let Ok((length, sender)) = from.recv_from(&mut buffer) else {
            continue;
        };
        let _ = shared.dialler.get_or_init(|| sender);
        let due = match way.take(Instant::now(), length) {
            Fate::Arrives(due) => due,
            Fate::Crowded => {
                shared.crowded.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Fate::Lost => {
                shared.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        let datagram = buffer.get(..length).unwrap_or_default().to_vec();
        if queue.send((due, datagram)).is_err() {
            return;
        }
    }
}

fn send_out(due: &Receiver<(Instant, Vec<u8>)>, send: impl Fn(&[u8]) -> io::Result<usize>) {
    while let Ok((when, datagram)) = due.recv() {
        thread::sleep(when.saturating_duration_since(Instant::now()));
        // The other end may be gone.
        let _ = send(&datagram);
    }
}
