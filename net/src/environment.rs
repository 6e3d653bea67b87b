//! What the actors of a process stand on: UDP sockets, TLS's algorithms, a clock, and threads beside the network's. In production always the
//! host's own; a simulation gives another, on which nothing happens but by its seed. Must not know what is done on it.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use quinn::AsyncUdpSocket;
use quinn::congestion::ControllerFactory;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use tokio::sync::oneshot;

use crate::trust::{Clock, ends_evenly};

/// Makes what decides how fast a connection sends.
pub type Congestion = Arc<dyn ControllerFactory + Send + Sync>;

/// What a process stands on.
#[derive(Debug, Clone, Default)]
pub enum Environment {
    /// The host: its kernel's sockets, its randomness, its threads.
    #[default]
    Host,
    /// What a simulation gives. Time is the tokio runtime's, which may be paused.
    Simulated(Arc<dyn SimulatedHost>),
}

/// What a simulation gives a process instead of its host.
pub trait SimulatedHost: Debug + Send + Sync {
    /// A socket at `address`; port 0 takes any, and an unspecified address is the process's own.
    ///
    /// # Errors
    /// When the address cannot be had.
    fn socket(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>>;

    /// What the random choices of the next endpoint follow from.
    fn seed(&self) -> [u8; 32];

    /// TLS's algorithms.
    fn cryptography(&self) -> Arc<CryptoProvider>;

    /// By which clock certificates begin and run out.
    fn clock(&self) -> Clock;

    /// What decides how fast connections send, to compare it with what suits the path, which is taken by default.
    fn congestion(&self) -> Option<Congestion> {
        None
    }
}

impl Environment {
    /// Computes beside the network's thread, which others' steps wait for; in a simulation at once, since two threads do not take
    /// turns by a seed. None only when this process ends.
    pub async fn blocking<T: Send + 'static>(&self, compute: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self {
            Self::Host => tokio::task::spawn_blocking(compute).await.ok(),
            Self::Simulated(_) => Some(compute()),
        }
    }

    /// Asks the host's disks something, on a thread of its own: a call that hangs keeps nothing else from ending. None if there is no
    /// thread, or it panics.
    pub async fn own_thread<T: Send + 'static>(&self, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self {
            Self::Host => {
                let (sender, answered) = oneshot::channel();
                let thread = thread::Builder::new().name("disk".to_owned());
                // Its receiver is gone only when it was given up.
                thread.spawn(move || drop(sender.send(ask()))).ok()?;
                answered.await.ok()
            }
            Self::Simulated(_) => Some(ask()),
        }
    }

    /// Computes on a thread that gives way to the others of this host. Where all processors are busy it takes long: the task that waits may give
    /// it up after a while. In a simulation at once. None only when this process ends.
    pub async fn low_priority<T: Send + 'static>(&self, compute: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self {
            Self::Host => {
                let (sender, computed) = oneshot::channel();
                let task = Arc::new(Mutex::new(Some(compute)));
                let again = Arc::clone(&task);
                let thread = thread::Builder::new().name("behind".to_owned()).spawn(move || {
                    give_way();
                    let compute = task.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // Its receiver is gone only when the process ends.
                    let _ = compute.map(|compute| sender.send(compute()));
                });
                match thread {
                    Ok(_) => computed.await.ok(),
                    // No thread can be had. Others do it then, as well as they can.
                    Err(_) => {
                        let compute = again.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                        self.blocking(compute).await
                    }
                }
            }
            Self::Simulated(_) => Some(compute()),
        }
    }

    /// What `sign` signs. In a simulation `sign` is called until the signature has the one length that simulations take.
    pub(crate) fn signed<E>(&self, sign: impl Fn() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        loop {
            let signed = sign()?;
            match self {
                Self::Simulated(_) if !ends_evenly(&signed) => {}
                Self::Simulated(_) | Self::Host => return Ok(signed),
            }
        }
    }

    /// By which clock certificates begin and run out.
    #[must_use]
    pub fn clock(&self) -> Clock {
        match self {
            Self::Host => Clock::Host,
            Self::Simulated(given) => given.clock(),
        }
    }

    /// What time it is, for certificates.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.clock().now()
    }

    /// What decides how fast connections send. None where it is what suits the path.
    pub(crate) fn congestion(&self) -> Option<Congestion> {
        match self {
            Self::Host => None,
            Self::Simulated(given) => given.congestion(),
        }
    }

    /// TLS's algorithms. Chosen here and not for the process, so that a program that embeds us may choose others for itself.
    pub(crate) fn cryptography(&self) -> Arc<CryptoProvider> {
        match self {
            Self::Host => Arc::new(cryptography()),
            Self::Simulated(given) => given.cryptography(),
        }
    }
}

/// TLS's algorithms on a host: with the feature `aws-lc` those of AWS-LC, and else those of ring, the fastest cipher first. With AES-256, which they have first, a
/// byte takes a third longer to encrypt, and 2^128 keys are more than can be tried.
///
/// AWS-LC encrypts packets of 6,540 bytes 1.8 times and decrypts them 2.3 times as fast as ring, where the processor has wide vectors for AES: an
/// all-reduce over QUIC takes a tenth less processor time within a host, where packets are large. It takes two minutes of a core to build, where ring takes ten seconds.
#[must_use]
pub fn cryptography() -> CryptoProvider {
    #[cfg(feature = "aws-lc")]
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc"))]
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// How nice the calling thread is from now on: a tenth of what others get, where all want to run. It gets that at least: a thread that
/// only ran where no other wants to would keep its process from ending when it is killed, and, killed within the kernel, the threads that
/// wait for its end from going on, as long as the host is busy (seen for minutes).
const NICE: i32 = 10;

/// The calling thread leaves most of a busy processor to others from now on.
pub fn give_way() {
    // Linux keeps this for each thread; elsewhere it is the whole process's. Where it is forbidden all goes on as before.
    if cfg!(target_os = "linux") {
        let _ = rustix::process::nice(NICE);
    }
}
