//! What this machine could do at most when a state is copied or read: a copy into memory that nobody had before, TCP over loopback, and files
//! that are read.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::bench::wires::Wire;

/// Bytes that are sent, written and read at once.
const AT_ONCE: usize = 8 << 20;

/// Bytes a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// A copy of as many bytes into memory that nobody had before, by one thread.
    pub(super) memory: f64,
    /// Over a TCP connection of this host with itself, without encryption, from and into a few megabytes.
    pub(super) tcp: f64,
    /// The same of as many bytes at once, from and into memory that is there.
    pub(super) tcp_whole: f64,
    /// Of a file of as many bytes, of which nothing is in memory, while as many threads as there are workers read it, each into memory of its own.
    pub(super) file: f64,
}

impl Limits {
    /// For a state of so many bytes that so many workers read from a disk at `folder`.
    ///
    /// # Errors
    /// When this host has no loopback, or the file cannot be written or read.
    pub(super) fn measure(bytes: usize, workers: u32, folder: &Path) -> io::Result<Self> {
        let path = folder.join("plain");
        write(&path, bytes)?;
        at_hand(bytes.saturating_mul(workers as usize));
        let file = read(&path, bytes, workers);
        std::fs::remove_file(&path)?;
        Ok(Self {
            memory: copied(bytes),
            tcp_whole: Wire::Tcp.whole(bytes)?,
            tcp: Wire::Tcp.one_way(bytes.min(AT_ONCE))?,
            file: file?,
        })
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "memory": self.memory, "tcp": self.tcp, "tcp_whole": self.tcp_whole, "file": self.file,
        })
    }
}

/// So much memory is free, and there. A virtual machine may have given to its host what nobody used, and then waits for each page of it, far
/// longer than a copy takes: what is compared should not depend on that.
pub(super) fn at_hand(bytes: usize) {
    black_box(vec![1_u8; bytes]);
}

/// What of a file is in memory is dropped.
pub(super) fn forget(path: &Path) -> io::Result<()> {
    Ok(fadvise(File::open(path)?, 0, None::<NonZeroU64>, Advice::DontNeed)?)
}

fn copied(bytes: usize) -> f64 {
    let from = vec![1_u8; bytes];
    at_hand(bytes);
    let began = Instant::now();
    black_box(from.clone());
    bytes as f64 / began.elapsed().as_secs_f64()
}

fn write(path: &Path, bytes: usize) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let part = vec![1; AT_ONCE.min(bytes)];
    let mut left = bytes;
    while left > 0 {
        let next = left.min(part.len());
        file.write_all(&part[..next])?;
        left -= next;
    }
    file.sync_all()?;
    forget(path)
}

fn read(path: &Path, bytes: usize, workers: u32) -> io::Result<f64> {
    let began = Instant::now();
    let read = || -> io::Result<usize> {
        let mut into = Vec::with_capacity(bytes);
        File::open(path)?.read_to_end(&mut into)?;
        Ok(black_box(into).len())
    };
    let found: io::Result<Vec<usize>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(read)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("a thread that reads panicked"))))
            .collect()
    });
    if found?.iter().any(|&found| found != bytes) {
        return Err(io::Error::other(format!("{} has changed while it was read", path.display())));
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_measured_and_no_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits::measure(AT_ONCE + 4, 2, folder.path()).unwrap();
        let measured = [limits.memory, limits.tcp, limits.tcp_whole, limits.file];
        assert!(measured.iter().all(|&measured| measured > 0.0), "{limits:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = Limits::measure(4, 1, &folder.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
