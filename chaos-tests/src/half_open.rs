//! Strangers who begin handshakes and never finish them. They prove their address if they are asked to, hear no other answer, and say nothing
//! more once there was one. Counts the handshakes that are pending at the other end: those that it has answered and not yet given up.
//!
//! They take places, they are no flood: as long as some have no answer, few others come. More of them than a slow machine can answer would
//! fill the socket's buffer, and the kernel would drop what honest processes send to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use sardana_net::quic::limits::HANDSHAKE_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_protocol::words::JobId;
use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The largest datagram.
const DATAGRAM_BYTES: usize = 1 << 16;

/// For so long each tries to get an answer.
const TRIES: Duration = HANDSHAKE_DEADLINE;

/// Handshakes begin at most this often: a burst of first datagrams, which are large on loopback, would be lost.
const EVERY: Duration = Duration::from_millis(4);

/// With so many that have no answer yet, no other comes.
const UNANSWERED: usize = 8;

/// The other end's part of a handshake is at least as long as this; a refusal, or an acknowledgement, is shorter.
const ANSWER_BYTES: usize = 1_000;

/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// A crowd of strangers at one address, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct HalfOpen {
    seen: Arc<Mutex<Seen>>,
    /// How many handshakes have begun, and how many are pending.
    told: watch::Receiver<(usize, usize)>,
    go: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What strangers and the other end have said, by the names that they have given their connections.
#[derive(Debug, Default)]
struct Seen {
    /// Strangers who have no answer yet, and since when.
    unanswered: BTreeMap<Vec<u8>, Instant>,
    /// Strangers who have one.
    answered: BTreeSet<Vec<u8>>,
    /// The other end's connections whose handshakes are pending, and since when.
    pending: BTreeMap<Vec<u8>, Instant>,
    /// How many strangers were asked to prove their address.
    retried: usize,
}

impl Seen {
    /// How many are pending now, and how many have no answer yet.
    fn now(&mut self) -> (usize, usize) {
        self.pending.retain(|_, since| since.elapsed() < HANDSHAKE_DEADLINE);
        self.unanswered.retain(|_, since| since.elapsed() < TRIES);
        (self.pending.len(), self.unanswered.len())
    }

    /// A stranger says something: whether it is to be passed on.
    fn said(&mut self, datagram: &[u8]) -> bool {
        let Some(LongHeader { from, .. }) = long_header(datagram) else {
            return false;
        };
        let is_new = !self.answered.contains(from);
        if is_new {
            self.unanswered.entry(from.to_vec()).or_insert_with(Instant::now);
        }
        is_new
    }

    /// The other end answers: whether the answer is to be passed on.
    fn heard(&mut self, datagram: &[u8]) -> bool {
        let Some(LongHeader { kind, to, from }) = long_header(datagram) else {
            return false;
        };
        if kind == RETRY {
            self.retried += 1;
            return true;
        }
        if datagram.len() >= ANSWER_BYTES && self.answered.insert(to.to_vec()) {
            self.unanswered.remove(to);
            self.pending.insert(from.to_vec(), Instant::now());
        }
        false
    }
}

/// The type of a Retry packet (RFC 9000, section 17.2).
const RETRY: u8 = 3;

/// What a packet with a long header shows of itself.
struct LongHeader<'a> {
    kind: u8,
    /// What its receiver calls the connection.
    to: &'a [u8],
    /// What its sender calls the connection.
    from: &'a [u8],
}

fn long_header(datagram: &[u8]) -> Option<LongHeader<'_>> {
    let (&first, rest) = datagram.split_first()?;
    let (&to_bytes, rest) = rest.get(4..)?.split_first()?;
    let (to, rest) = rest.split_at_checked(usize::from(to_bytes))?;
    let (&from_bytes, rest) = rest.split_first()?;
    let from = rest.get(..usize::from(from_bytes))?;
    let kind = first >> 4 & 3;
    (first & 0x80 != 0).then_some(LongHeader { kind, to, from })
}

impl HalfOpen {
    /// So many strangers come to `address`, where connections are for `purpose`, and others in place of those that are given up.
    ///
    /// # Errors
    /// When there is no thread for them.
    pub fn come(address: SocketAddr, purpose: Purpose, wanted: usize) -> Result<Self> {
        let (go, told) = oneshot::channel();
        let (tell, heard) = watch::channel((0, 0));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let noted = Arc::clone(&seen);
        let work = move || runtime.block_on(crowd((address, purpose), wanted, &noted, &tell, told));
        let thread = thread::Builder::new().name("half-open".to_owned()).spawn(work)?;
        Ok(Self {
            seen,
            told: heard,
            go: Some(go),
            thread: Some(thread),
        })
    }

    /// How many strangers were asked to prove their address.
    #[must_use]
    pub fn retried(&self) -> usize {
        lock(&self.seen).retried
    }

    /// Waits until so many have begun, and at least so many are pending.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn reached(&mut self, begun: usize, pending: usize) -> Result<()> {
        let reached = timeout(PATIENCE, self.told.wait_for(|told| told.0 >= begun && told.1 >= pending)).await;
        let reached = reached.is_ok_and(|reached| reached.is_ok());
        ensure!(
            reached,
            "expected {begun} handshakes begun and {pending} pending, found {:?}",
            *self.told.borrow()
        );
        Ok(())
    }

    /// All strangers go.
    ///
    /// # Errors
    /// When they could not do what they were to.
    pub fn go(mut self) -> Result<()> {
        self.go = None;
        let thread = self.thread.take().context("it goes once")?;
        thread.join().map_err(|_| anyhow!("the crowd panicked"))?
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The strangers dial a socket that passes on what they send, and of the answers only those that ask for a proof.
async fn crowd(
    (address, purpose): (SocketAddr, Purpose),
    wanted: usize,
    seen: &Mutex<Seen>,
    tell: &watch::Sender<(usize, usize)>,
    mut told: oneshot::Receiver<()>,
) -> Result<()> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (front, back) = (UdpSocket::bind(loopback).await?, UdpSocket::bind(loopback).await?);
    let dialled = front.local_addr()?;
    // The other end never sees what the strangers call themselves.
    let job = JobId::new([0xee; 16]);
    let endpoint = bind_client(Authority::new(job)?.issue(Role::Worker, 1)?, purpose, dialled)?;
    let dialling = endpoint.local_addr()?;
    let coordinator = PeerIdentity::coordinator(job);
    let mut dialled_by = JoinSet::new();
    let mut begun = 0;
    let mut again = interval(EVERY);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut answer) = (vec![0; DATAGRAM_BYTES], vec![0; DATAGRAM_BYTES]);
    loop {
        tokio::select! {
            // Dropped is told as well.
            _ = &mut told => break,
            received = front.recv_from(&mut sent) => {
                let said = &sent[..received?.0];
                if lock(seen).said(said) {
                    back.send_to(said, address).await?;
                }
            }
            // An address where no process listens any more is an error of the socket, and of no interest.
            received = back.recv_from(&mut answer) => {
                let Ok((bytes, _)) = received else { continue };
                if lock(seen).heard(&answer[..bytes]) {
                    front.send_to(&answer[..bytes], dialling).await?;
                }
            }
            _ = again.tick() => {
                let (pending, unanswered) = lock(seen).now();
                tell.send_replace((begun, pending));
                while dialled_by.try_join_next().is_some() {}
                if pending + unanswered < wanted && unanswered < UNANSWERED {
                    begun += 1;
                    let endpoint = endpoint.clone();
                    dialled_by.spawn(async move { connect(&endpoint, dialled, coordinator, TRIES).await.is_ok() });
                }
            }
        }
    }
    dialled_by.shutdown().await;
    Ok(())
}
