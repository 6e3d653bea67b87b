//! Ways for bytes from one thread to another that every program of this host has: a megabyte that both have, a Unix socket, TCP over
//! loopback. What a link could do at most, or should beat. Nothing of it is ours, and nothing is encrypted.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::times::quantile;

/// Bytes that pass between two threads at once.
const CHUNK: usize = 128 << 10;

/// Places for them.
const SLOTS: usize = 8;

/// Fewer bytes are not timed: short messages go one after the other.
const LEAST_BYTES: usize = 1 << 20;

/// For how long each is measured, at least.
const LEAST: Duration = Duration::from_millis(150);

/// Repetitions, at most.
const MOST_ROUNDS: usize = 10_000;

/// One of the ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// A megabyte that both threads have.
    Memory,
    /// A Unix socket.
    Unix,
    /// A TCP connection over loopback.
    Tcp,
}

/// What a wire does with messages of some size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    /// Seconds there and back, the median.
    pub(super) round_trip: f64,
    /// Bytes a second, one way.
    pub(super) one_way: f64,
    /// Bytes a second of each way, both at once.
    pub(super) both_ways: f64,
}

impl Ways {
    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "round_trip_seconds": self.round_trip,
            "one_way_bytes_per_second": self.one_way,
            "each_way_bytes_per_second": self.both_ways,
        })
    }
}

/// One end of a wire.
struct End {
    out: Box<dyn Write + Send>,
    into: Box<dyn Read + Send>,
}

impl Wire {
    fn ends(self) -> io::Result<[End; 2]> {
        Ok(match self {
            Self::Memory => {
                let [(near_out, far_in), (far_out, near_in)] = [ring(), ring()];
                [
                    End {
                        out: Box::new(near_out),
                        into: Box::new(near_in),
                    },
                    End {
                        out: Box::new(far_out),
                        into: Box::new(far_in),
                    },
                ]
            }
            Self::Unix => {
                let (near, far) = UnixStream::pair()?;
                [
                    End {
                        out: Box::new(near.try_clone()?),
                        into: Box::new(near),
                    },
                    End {
                        out: Box::new(far.try_clone()?),
                        into: Box::new(far),
                    },
                ]
            }
            Self::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let near = TcpStream::connect(listener.local_addr()?)?;
                let (far, _) = listener.accept()?;
                near.set_nodelay(true)?;
                far.set_nodelay(true)?;
                [
                    End {
                        out: Box::new(near.try_clone()?),
                        into: Box::new(near),
                    },
                    End {
                        out: Box::new(far.try_clone()?),
                        into: Box::new(far),
                    },
                ]
            }
        })
    }

    /// All three, of messages of so many bytes.
    ///
    /// # Errors
    /// When this host has no loopback, or no Unix sockets.
    pub(super) fn measure(self, bytes: usize) -> io::Result<Ways> {
        Ok(Ways {
            round_trip: self.round_trip(bytes)?,
            one_way: self.one_way(bytes)?,
            both_ways: self.both_ways(bytes)?,
        })
    }

    /// Bytes a second of so many that pass once, as a state is sent and received: from memory into memory that is there, of which no cache has much.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub(super) fn whole(self, bytes: usize) -> io::Result<f64> {
        let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
        let [mut near, mut far] = self.ends()?;
        let seconds = together(|| near.out.write_all(&from), || far.into.read_exact(&mut to))?;
        if to == from {
            Ok(bytes as f64 / seconds)
        } else {
            Err(io::Error::other("other bytes have come than were sent"))
        }
    }

    /// Bytes a second from one thread to the other.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub(super) fn one_way(self, bytes: usize) -> io::Result<f64> {
        let messages = LEAST_BYTES.div_ceil(bytes);
        let (from, mut to) = (vec![1_u8; bytes], vec![1_u8; bytes]);
        let seconds = repeated(|rounds| {
            let [mut near, mut far] = self.ends()?;
            let (from, to) = (&from, &mut to);
            let send = move || {
                repeat(rounds * messages, || near.out.write_all(from))?;
                near.into.read_exact(&mut [0])
            };
            let receive = move || {
                repeat(rounds * messages, || far.into.read_exact(to))?;
                far.out.write_all(&[1])
            };
            together(send, receive)
        })?;
        Ok((messages * bytes) as f64 / seconds)
    }

    fn both_ways(self, bytes: usize) -> io::Result<f64> {
        let messages = LEAST_BYTES.div_ceil(bytes);
        let from = vec![1_u8; bytes];
        let mut into = [vec![1_u8; bytes], vec![1_u8; bytes]];
        let seconds = repeated(|rounds| {
            let [near, far] = self.ends()?;
            let from = &from;
            let exchange = |End {
                                mut out,
                                into: mut arriving,
                            }: End,
                            into: &mut [u8]| {
                let send = move || repeat(rounds * messages, || out.write_all(from));
                let receive = move || repeat(rounds * messages, || arriving.read_exact(into));
                together(send, receive).map(drop)
            };
            let [near_into, far_into] = &mut into;
            together(move || exchange(near, near_into), move || exchange(far, far_into))
        })?;
        Ok((messages * bytes) as f64 / seconds)
    }

    fn round_trip(self, bytes: usize) -> io::Result<f64> {
        let (from, mut near_to, mut far_to) = (vec![1_u8; bytes], vec![1_u8; bytes], vec![1_u8; bytes]);
        let mut times = Vec::new();
        repeated(|rounds| {
            times.clear();
            let [mut near, mut far] = self.ends()?;
            let (from, near_to, far_to, times) = (&from, &mut near_to, &mut far_to, &mut times);
            let send = move || {
                repeat(rounds, || {
                    let began = Instant::now();
                    near.out.write_all(from)?;
                    near.into.read_exact(near_to)?;
                    times.push(began.elapsed().as_secs_f64());
                    Ok(())
                })
            };
            let answer = move || {
                repeat(rounds, || {
                    far.into.read_exact(far_to)?;
                    far.out.write_all(far_to)
                })
            };
            together(send, answer)
        })?;
        Ok(quantile(&mut times, 0.5))
    }
}

fn repeat(times: usize, mut what: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    (0..times).try_for_each(|_| what())
}

/// Seconds of one of as many rounds as take long enough; `rounds` does so many and says how long they took. There are four times as many each time: where other
/// programs run too, many rounds may take far longer than a few have promised.
fn repeated(mut rounds: impl FnMut(usize) -> io::Result<f64>) -> io::Result<f64> {
    let mut many = 1;
    loop {
        let took = rounds(many)?;
        if took >= LEAST.as_secs_f64() || many == MOST_ROUNDS {
            return Ok(took / many as f64);
        }
        many = MOST_ROUNDS.min(4 * many);
    }
}

/// Seconds until two threads have done their parts. One that fails lets go of its end, so that the other fails as well.
fn together(one: impl FnOnce() -> io::Result<()>, other: impl FnOnce() -> io::Result<()> + Send) -> io::Result<f64> {
    let began = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread of this bench panicked")));
        one.and(other)
    })?;
    Ok(began.elapsed().as_secs_f64())
}

/// Slots that one thread fills and another empties; each has its count.
struct Ring {
    slots: Vec<Mutex<Vec<u8>>>,
    filled: AtomicUsize,
    emptied: AtomicUsize,
    over: AtomicBool,
}

/// The end that fills.
struct Filling {
    ring: Arc<Ring>,
    filled: usize,
}

/// The end that empties; of the slot that is next, so many bytes are read.
struct Emptying {
    ring: Arc<Ring>,
    emptied: usize,
    read: usize,
}

fn ring() -> (Filling, Emptying) {
    let ring = Arc::new(Ring {
        slots: (0..SLOTS).map(|_| Mutex::new(Vec::with_capacity(CHUNK))).collect(),
        filled: AtomicUsize::new(0),
        emptied: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    let filling = Filling {
        ring: Arc::clone(&ring),
        filled: 0,
    };
    (
        filling,
        Emptying {
            ring,
            emptied: 0,
            read: 0,
        },
    )
}

impl Ring {
    /// Waits until so many are counted, and takes the slot of `number`. None if the other end is gone before.
    fn with<T>(&self, number: usize, count: &AtomicUsize, least: usize, with: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
        let mut looks = 0_u32;
        while count.load(Ordering::Acquire) < least {
            looks += 1;
            if looks.is_multiple_of(100) {
                // What was counted before the end counts.
                if self.over.load(Ordering::Acquire) && count.load(Ordering::Acquire) < least {
                    return None;
                }
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Some(with(
            &mut self.slots[number % SLOTS].lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK)];
        let fill = |slot: &mut Vec<u8>| {
            slot.clear();
            slot.extend_from_slice(part);
        };
        let room = (self.filled + 1).saturating_sub(SLOTS);
        self.ring
            .with(self.filled, &self.ring.emptied, room, fill)
            .ok_or(io::ErrorKind::BrokenPipe)?;
        self.filled += 1;
        self.ring.filled.store(self.filled, Ordering::Release);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Emptying {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let empty = |slot: &mut Vec<u8>| {
            let rest = &slot[self.read..];
            let bytes = rest.len().min(into.len());
            into[..bytes].copy_from_slice(&rest[..bytes]);
            (bytes, bytes == rest.len())
        };
        let Some((bytes, is_empty)) = self.ring.with(self.emptied, &self.ring.filled, self.emptied + 1, empty) else {
            return Ok(0);
        };
        self.read += bytes;
        if is_empty {
            self.read = 0;
            self.emptied += 1;
            self.ring.emptied.store(self.emptied, Ordering::Release);
        }
        Ok(bytes)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.ring.over.store(true, Ordering::Release);
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        self.ring.over.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_measured_for_small_and_odd_sizes() {
        for wire in [Wire::Memory, Wire::Unix, Wire::Tcp] {
            for bytes in [4, SLOTS * CHUNK + 1] {
                let ways = wire.measure(bytes).unwrap();
                assert!(
                    ways.round_trip > 0.0 && ways.one_way > 0.0 && ways.both_ways > 0.0,
                    "{wire:?} of {bytes}: {ways:?}"
                );
            }
        }
    }

    #[test]
    fn what_goes_in_at_one_end_comes_out_at_the_other_in_order() {
        let sent: Vec<u8> = (0..3 * SLOTS * CHUNK + 7).map(|index| (index / 3) as u8).collect();
        for wire in [Wire::Memory, Wire::Unix, Wire::Tcp] {
            let [near, mut far] = wire.ends().unwrap();
            let mut received = Vec::new();
            let (mut out, kept) = (near.out, near.into);
            let send = || {
                let sent = sent.chunks(100_003).try_for_each(|part| out.write_all(part));
                // The other end sees that this was all.
                drop((out, kept));
                sent
            };
            together(send, || far.into.read_to_end(&mut received).map(drop)).unwrap();
            assert!(received == sent, "{wire:?}");
            assert_eq!(far.into.read(&mut [0]).unwrap(), 0, "{wire:?}");
        }
    }
}
