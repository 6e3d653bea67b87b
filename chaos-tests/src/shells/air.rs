//! The network in memory: which socket is bound where, what is on its way, and what the weather does to it. One seed decides the fate of
//! each datagram, by its link and its place on that link, so that no other link's traffic changes it. Knows nothing of QUIC.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use quinn::udp::EcnCodepoint;
use sardana::within::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::trace::{Datagram, Fate, Trace};
use super::weather::Weather;
use crate::dice::{Dice, mix};

/// Most datagrams that wait in a socket: about a kernel's buffer. What is beyond is dropped.
const QUEUE: usize = 256;

/// First port that is given to a socket that asks for any.
const FIRST_PORT: u16 = 40_000;

/// The network.
#[derive(Debug)]
pub(super) struct Air {
    inner: Mutex<Inner>,
    /// Something is on its way that was not before.
    sent: Notify,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    began: Instant,
    /// What clocks said when the run began.
    began_at: SystemTime,
    weather: Weather,
    bound: BTreeMap<SocketAddr, Arc<Mailbox>>,
    next_port: BTreeMap<IpAddr, u16>,
    /// How many datagrams each link has carried.
    carried: BTreeMap<(SocketAddr, SocketAddr), u64>,
    /// By arrival, link, place on the link, and copy.
    coming: BTreeMap<(Instant, SocketAddr, SocketAddr, u64, u8), Letter>,
    trace: Trace,
}

/// What arrives.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) from: SocketAddr,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: Arc<[u8]>,
}

/// Where a bound socket's datagrams wait.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    inner: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    letters: VecDeque<Letter>,
    reader: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next datagram, or a promise to wake.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Letter> {
        let mut waiting = self.lock();
        match waiting.letters.pop_front() {
            Some(letter) => Poll::Ready(letter),
            None => {
                waiting.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether there was room.
    fn put(&self, letter: Letter) -> bool {
        let mut waiting = self.lock();
        let room = waiting.letters.len() < QUEUE;
        if room {
            waiting.letters.push_back(letter);
        }
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
        room
    }
}

impl Air {
    /// A calm network on which `seed` decides. Must be made inside the runtime whose clock it follows; [`Self::carry`] carries.
    pub(super) fn new(seed: u64, weather: Weather) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                seed,
                began: Instant::now(),
                began_at: whole_second(SystemTime::now()),
                weather,
                bound: BTreeMap::new(),
                next_port: BTreeMap::new(),
                carried: BTreeMap::new(),
                coming: BTreeMap::new(),
                trace: Trace::default(),
            }),
            sent: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of all hosts: it goes as the run's time does, so that certificates run out in a run that lasts for hours.
    pub(super) fn clock(&self) -> Clock {
        let (began, began_at) = {
            let inner = self.lock();
            (inner.began, inner.began_at)
        };
        Clock::given(move || began_at + Instant::now().saturating_duration_since(began))
    }

    /// Changes the weather.
    pub(super) fn turn(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.lock().weather);
    }

    /// Looks at what was sent so far.
    pub(super) fn trace<T>(&self, look: impl FnOnce(&Trace) -> T) -> T {
        look(&self.lock().trace)
    }

    /// Binds `address`; port 0 takes any.
    pub(super) fn bind(&self, mut address: SocketAddr) -> io::Result<(SocketAddr, Arc<Mailbox>)> {
        let mut inner = self.lock();
        if address.port() == 0 {
            let next = inner.next_port.entry(address.ip()).or_insert(FIRST_PORT);
            address.set_port(*next);
            *next += 1;
        }
        if inner.bound.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let mailbox = Arc::new(Mailbox::default());
        inner.bound.insert(address, Arc::clone(&mailbox));
        Ok((address, mailbox))
    }

    /// Lets go of an address, if it is still this mailbox's.
    pub(super) fn release(&self, address: SocketAddr, mailbox: &Arc<Mailbox>) {
        let mut inner = self.lock();
        if inner.bound.get(&address).is_some_and(|bound| Arc::ptr_eq(bound, mailbox)) {
            inner.bound.remove(&address);
        }
    }

    /// Lets go of all addresses of a host whose process is dead.
    pub(super) fn bury(&self, host: IpAddr) {
        self.lock().bound.retain(|address, _| address.ip() != host);
    }

    /// Sends a datagram; from the dead it goes nowhere.
    pub(super) fn send(&self, alive: bool, from: SocketAddr, to: SocketAddr, ecn: Option<EcnCodepoint>, bytes: &[u8]) {
        let mut inner = self.lock();
        let now = Instant::now();
        let place = inner.carried.entry((from, to)).or_insert(0);
        *place += 1;
        let place = *place;
        let fate = if alive {
            inner.fate(from, to, place, bytes.len())
        } else {
            Fate::FromTheDead
        };
        let at = now.saturating_duration_since(inner.began);
        inner.trace.note(Datagram {
            at,
            from,
            to,
            bytes: bytes.len(),
            fate,
        });
        let letter = || Letter {
            from,
            ecn,
            bytes: bytes.into(),
        };
        match fate {
            Fate::Arrives(delay) => {
                inner.coming.insert((now + delay, from, to, place, 0), letter());
            }
            Fate::Twice(first, second) => {
                inner.coming.insert((now + first, from, to, place, 0), letter());
                inner.coming.insert((now + second, from, to, place, 1), letter());
            }
            Fate::Lost | Fate::CutOff | Fate::TooLarge | Fate::FromTheDead => return,
        }
        drop(inner);
        self.sent.notify_one();
    }

    /// Carries datagrams to where they are bound for. Never returns.
    pub(super) async fn carry(self: Arc<Self>) {
        loop {
            let next = self.lock().coming.first_key_value().map(|((due, ..), _)| *due);
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.sent.notified() => {}
                () = due => self.deliver(),
            }
        }
    }

    fn deliver(&self) {
        let now = Instant::now();
        while let Some((mailbox, letter)) = self.next_due(now) {
            if !mailbox.put(letter) {
                self.lock().trace.traffic.overflowed += 1;
            }
        }
    }

    fn next_due(&self, now: Instant) -> Option<(Arc<Mailbox>, Letter)> {
        let mut inner = self.lock();
        loop {
            let entry = inner.coming.first_entry().filter(|entry| entry.key().0 <= now)?;
            let to = entry.key().2;
            let letter = entry.remove();
            match inner.bound.get(&to) {
                Some(mailbox) => return Some((Arc::clone(mailbox), letter)),
                None => inner.trace.traffic.nobody += 1,
            }
        }
    }
}

impl Inner {
    fn fate(&self, from: SocketAddr, to: SocketAddr, place: u64, bytes: usize) -> Fate {
        let link = mix(number(from)) ^ mix(number(to)).rotate_left(17);
        let mut dice = Dice::new(mix(self.seed ^ link) ^ mix(place));
        self.weather.fate(&mut dice, (from.ip(), to.ip()), bytes)
    }
}

fn number(address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => ip.to_bits() as u64,
    };
    ip << 16 | u64::from(address.port())
}

/// How long since the run began.
pub(super) fn since(air: &Air) -> Duration {
    Instant::now().saturating_duration_since(air.lock().began)
}

/// A clock that begins within a second would decide by that when a certificate runs out.
fn whole_second(time: SystemTime) -> SystemTime {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since_1970.as_secs())
}
