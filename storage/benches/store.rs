//! What the store of checkpoints costs beside what the disk itself takes: writing so that it survives a power cut, against a plain file
//! that is written and synced; reading with every piece compared with its hash, against a plain read; and the room that checkpoints take of
//! which a tenth changes each time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use sardana_protocol::words::Step;
use sardana_storage::store::limits::PIECE_BYTES;
use sardana_storage::store::{Manifest, PieceHash, PinId, Store};

/// Bytes that are put and written at once, in both kinds.
const CALL_BYTES: usize = 32 << 20;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    // Only to run it at all: `cargo test --benches` passes no `--bench`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let place = tempfile::tempdir_in(".")?;
    let sizes: &[(usize, u32)] = if measuring { &[(64, 15), (1_024, 5)] } else { &[(4, 1)] };
    for &(mebibytes, rounds) in sizes {
        bandwidth(place.path(), mebibytes << 20, rounds)?;
    }
    space(&place.path().join("space"), if measuring { 256 } else { 8 })
}

/// Bytes that are the same nowhere.
fn fresh(bytes: &mut [u8], seed: u64) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(bytes);
}

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
        let begun = Instant::now();
        let done = work()?;
        self.0.push(begun.elapsed());
        Ok(done)
    }

    fn median(&self) -> f64 {
        let mut times = self.0.clone();
        times.sort();
        times[times.len() / 2].as_secs_f64()
    }

    fn least(&self) -> f64 {
        self.0.iter().min().map_or(0.0, Duration::as_secs_f64)
    }

    fn report(&self, name: &str, bytes: usize, plain: &Self) {
        let rate = bytes as f64 / self.median() / 1e9;
        let (ratio, best) = (plain.median() / self.median(), plain.least() / self.least());
        let size = bytes >> 20;
        println!("store/{name}/{size}MiB: {rate:.2} GB/s, {ratio:.2} of plain; the fastest of each: {best:.2}");
    }
}

/// The kinds take turns, since a disk's speed changes with what others do to it.
fn bandwidth(place: &Path, bytes: usize, rounds: u32) -> Result<(), Failed> {
    let mut state = vec![0; bytes];
    let kinds: [Times; 7] = Default::default();
    let [
        mut plain_write,
        mut write,
        mut commit,
        mut plain_cold,
        mut cold,
        mut plain_warm,
        mut warm,
    ] = kinds;
    for round in 0..rounds {
        fresh(&mut state, u64::from(round));
        let (file, folder) = (place.join("plain"), place.join("store"));
        plain_write.time(|| plain(&file, &state))?;
        let store = Store::open(&folder)?.store;
        let hashes = write.time(|| durable(&store, &state))?;
        commit.time(|| Ok(store.commit(&Manifest::new(Step::new(1), hashes.clone(), vec![7; 100]))?))?;
        forget(&file)?;
        plain_cold.time(|| read_plain(&file, bytes))?;
        plain_warm.time(|| read_plain(&file, bytes))?;
        for entry in std::fs::read_dir(folder.join("segments"))? {
            forget(&entry?.path())?;
        }
        cold.time(|| read_verified(&store, &hashes))?;
        warm.time(|| read_verified(&store, &hashes))?;
        drop(store);
        std::fs::remove_file(&file)?;
        std::fs::remove_dir_all(&folder)?;
    }
    write.report("put+sync", bytes, &plain_write);
    println!("store/commit/{}MiB: {:.1} ms", bytes >> 20, commit.median() * 1e3);
    cold.report("read-verified-cold", bytes, &plain_cold);
    warm.report("read-verified-warm", bytes, &plain_warm);
    plain_write.report("plain-write+fsync", bytes, &plain_write);
    plain_cold.report("plain-read-cold", bytes, &plain_cold);
    plain_warm.report("plain-read-warm", bytes, &plain_warm);
    Ok(())
}

fn plain(path: &Path, state: &[u8]) -> Result<(), Failed> {
    let mut file = File::create_new(path)?;
    for part in state.chunks(CALL_BYTES) {
        file.write_all(part)?;
    }
    file.sync_all()?;
    Ok(())
}

fn durable(store: &Store, state: &[u8]) -> Result<Vec<PieceHash>, Failed> {
    let pin = PinId::new(1);
    let mut hashes = Vec::new();
    for part in state.chunks(CALL_BYTES) {
        hashes.append(&mut store.put(pin, &part.chunks(PIECE_BYTES).collect::<Vec<_>>())?);
    }
    store.sync()?;
    Ok(hashes)
}

/// What of a file is in memory is dropped.
fn forget(path: &Path) -> io::Result<()> {
    Ok(fadvise(File::open(path)?, 0, None::<NonZeroU64>, Advice::DontNeed)?)
}

fn read_plain(path: &Path, bytes: usize) -> Result<(), Failed> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut read = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            more => read += more,
        }
    }
    (read == bytes)
        .then_some(())
        .ok_or_else(|| "the plain file is too short".into())
}

fn read_verified(store: &Store, hashes: &[PieceHash]) -> Result<(), Failed> {
    let whole = std::sync::atomic::AtomicUsize::new(0);
    store.read_many(hashes, |_, read| {
        whole.fetch_add(usize::from(read.is_ok()), std::sync::atomic::Ordering::Relaxed);
    });
    (whole.into_inner() == hashes.len())
        .then_some(())
        .ok_or_else(|| "pieces are damaged".into())
}

/// Five checkpoints of which a tenth changes; then all but the newest are deleted.
fn space(path: &Path, mebibytes: usize) -> Result<(), Failed> {
    let store = Store::open(path)?.store;
    let mut state = vec![0; mebibytes << 20];
    fresh(&mut state, 100);
    let mut keys = Vec::new();
    let report = |what: &str| -> Result<(), Failed> {
        let mut disk = 0;
        for folder in ["segments", "manifests", "catalogue/store"] {
            for entry in std::fs::read_dir(path.join(folder))? {
                disk += entry?.metadata()?.len();
            }
        }
        let ratio = disk as f64 / (mebibytes << 20) as f64;
        println!("store/space/{mebibytes}MiB: {what}: {ratio:.2} times one checkpoint");
        Ok(())
    };
    for step in 0..5_u64 {
        if step > 0 {
            // Every tenth piece, others each time.
            for (number, piece) in state.chunks_mut(PIECE_BYTES).enumerate() {
                if (number as u64 + step).is_multiple_of(10) {
                    fresh(piece, 1_000 * step + number as u64);
                }
            }
        }
        let pin = PinId::new(step);
        let hashes = store.put(pin, &state.chunks(PIECE_BYTES).collect::<Vec<_>>())?;
        store.sync()?;
        keys.push(store.commit(&Manifest::new(Step::new(step), hashes, step.to_le_bytes().to_vec()))?);
        store.unpin(pin);
    }
    report("5 checkpoints, a tenth changed each time")?;
    keys.pop();
    for key in keys {
        store.delete(key)?;
    }
    let begun = Instant::now();
    let collected = store.collect()?;
    println!("store/collect/{mebibytes}MiB: {:.0?}, {collected:?}", begun.elapsed());
    report("the newest alone, collected")
}
