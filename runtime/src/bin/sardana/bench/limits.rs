//! What this machine could do at most beside a sum of gradients: copies within memory, between two threads, and over TCP. Measured right beside
//! what is compared with it, as machines differ from minute to minute.

use std::io;
use std::time::{Duration, Instant};

use super::wires::Wire;

/// Fewer bytes are not measured.
const LEAST_BYTES: usize = 1 << 20;

/// For how long a copy is measured, at least.
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
            shared: Wire::Memory.one_way(bytes)?,
            tcp: Wire::Tcp.one_way(bytes)?,
        })
    }
}

/// Bytes a second of a copy from one buffer to another, again and again.
pub(super) fn copied(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1_u8; bytes], vec![1_u8; bytes]);
    let (began, mut rounds) = (Instant::now(), 0_u32);
    while rounds == 0 || began.elapsed() < LEAST {
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        rounds += 1;
    }
    bytes as f64 * f64::from(rounds) / began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_measured_for_small_and_odd_sizes() {
        for bytes in [1, (3 << 20) + 1] {
            let Limits { memory, shared, tcp } = Limits::measure(bytes).unwrap();
            assert!(memory > 0.0 && shared > 0.0 && tcp > 0.0, "{bytes}: {memory} {shared} {tcp}");
        }
    }
}
