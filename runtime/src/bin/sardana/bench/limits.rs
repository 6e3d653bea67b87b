//! What this machine could do at most: copies within memory, between two threads through a small ring of shared memory, and over a TCP connection to
//! itself. Measured right beside what is compared with it, as machines differ from minute to minute.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that pass between two threads at once.
const CHUNK: usize = 128 << 10;

/// Places for them.
const SLOTS: usize = 8;

/// Fewer bytes are not measured.
const LEAST_BYTES: usize = 1 << 20;

/// For how long each is measured, at least.
const LEAST: Duration = Duration::from_millis(150);

/// Bytes a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// A copy within memory, by one thread.
    pub(super) memory: f64,
    /// From one thread to another, through a megabyte that both have.
    pub(super) shared: f64,
    /// Over a TCP connection of this host with itself, without encryption.
    pub(super) tcp: f64,
}

impl Limits {
    /// For buffers of so many bytes, but no less than a megabyte: with less it is the hand-over that takes the time.
    ///
    /// # Errors
    /// When this host has no loopback.
    pub(super) fn measure(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(LEAST_BYTES);
        Ok(Self {
            memory: copied(bytes),
            shared: shared(bytes),
            tcp: tcp(bytes)?,
        })
    }
}

/// Repeats what moves so many bytes, and says how many a second are moved.
fn rate(bytes: usize, mut round: impl FnMut()) -> f64 {
    round();
    let (began, mut rounds) = (Instant::now(), 0_u32);
    while rounds == 0 || began.elapsed() < LEAST {
        round();
        rounds += 1;
    }
    bytes as f64 * f64::from(rounds) / began.elapsed().as_secs_f64()
}

fn copied(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    rate(bytes, || {
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
    })
}

/// Slots that one thread fills and another empties; each has its count.
struct Ring {
    slots: Vec<Mutex<Vec<u8>>>,
    filled: AtomicUsize,
    emptied: AtomicUsize,
}

impl Ring {
    /// Waits until so many are counted, and takes the slot of `number`.
    fn with(&self, number: usize, count: &AtomicUsize, least: usize, with: impl FnOnce(&mut Vec<u8>)) {
        let mut looks = 0_u32;
        while count.load(Ordering::Acquire) < least {
            looks += 1;
            if looks.is_multiple_of(100) {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
        with(&mut self.slots[number % SLOTS].lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn shared(bytes: usize) -> f64 {
    let chunk = CHUNK.min(bytes);
    let chunks = bytes.div_ceil(chunk);
    let ring = Arc::new(Ring {
        slots: (0..SLOTS).map(|_| Mutex::new(vec![0; chunk])).collect(),
        filled: AtomicUsize::new(0),
        emptied: AtomicUsize::new(0),
    });
    let (go, goes) = std::sync::mpsc::sync_channel::<usize>(1);
    let emptying = {
        let ring = Arc::clone(&ring);
        let mut to = vec![0_u8; bytes];
        thread::spawn(move || {
            let mut done = 0;
            while goes.recv().is_ok() {
                for place in to.chunks_mut(chunk) {
                    ring.with(done, &ring.filled, done + 1, |slot| {
                        place.copy_from_slice(&slot[..place.len()])
                    });
                    done += 1;
                    ring.emptied.store(done, Ordering::Release);
                }
            }
        })
    };
    let from = vec![1_u8; bytes];
    let mut done = 0;
    let rate = rate(bytes, || {
        // The thread ends only once its channel has.
        let _ = go.send(chunks);
        for part in from.chunks(chunk) {
            ring.with(done, &ring.emptied, (done + 1).saturating_sub(SLOTS), |slot| {
                slot[..part.len()].copy_from_slice(part);
            });
            done += 1;
            ring.filled.store(done, Ordering::Release);
        }
        while ring.emptied.load(Ordering::Acquire) < done {
            std::hint::spin_loop();
        }
    });
    drop(go);
    // It has nothing left to do.
    let _ = emptying.join();
    rate
}

fn tcp(bytes: usize) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let receiving = thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut to = vec![0_u8; bytes];
        while stream.read_exact(&mut to).is_ok() {
            stream.write_all(&[1])?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let from = vec![1_u8; bytes];
    let mut failed = Ok(());
    let rate = rate(bytes, || {
        let round = stream.write_all(&from).and_then(|()| stream.read_exact(&mut [0]));
        if round.is_err() {
            failed = round;
        }
    });
    drop(stream);
    // It ends with the connection.
    let _ = receiving.join();
    failed.map(|()| rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_measured_for_small_and_odd_sizes() {
        for bytes in [1, (8 * CHUNK) + 1, 3 << 20] {
            let Limits { memory, shared, tcp } = Limits::measure(bytes).unwrap();
            assert!(memory > 0.0 && shared > 0.0 && tcp > 0.0, "{bytes}: {memory} {shared} {tcp}");
        }
    }
}
