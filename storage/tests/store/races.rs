//! Everything at once, from several threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use sardana_protocol::words::Step;
use sardana_storage::store::{Manifest, Options, PieceHash, PinId, ReadError, Store};

use crate::memory::MemoryDisk;
use crate::random::Random;

const OPTIONS: Options = Options { segment_bytes: 64 << 10 };

fn bytes(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    (0..random.within(100..4_000))
        .map(|_| random.next().to_le_bytes()[0])
        .collect()
}

/// What is put again at the moment in which it is collected is held afterwards, and what is read meanwhile is what was put.
#[test]
fn what_is_put_while_it_is_collected_survives() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(&place.path().join("store"), OPTIONS).unwrap().store;
    let ended = AtomicBool::new(false);
    let (collected, moved) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let makers: Vec<_> = (0..2_u64)
            .map(|maker| {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..60_u64 {
                        let pin = PinId::new(maker);
                        // The same pieces come and go, of both.
                        let numbers: Vec<u64> = (0..20).map(|slot| slot * 7 + (round + slot * maker) % 5).collect();
                        let pieces: Vec<_> = numbers.iter().map(|number| bytes(*number)).collect();
                        let slices: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
                        let hashes = store.put(pin, &slices).unwrap();
                        store.sync().unwrap();
                        let manifest =
                            Manifest::new(Step::new(round), hashes.clone(), format!("{maker} {round}").into_bytes());
                        let key = store.commit(&manifest).unwrap();
                        store.unpin(pin);
                        for (hash, piece) in hashes.iter().zip(&pieces) {
                            assert_eq!(&store.read(*hash).unwrap(), piece);
                        }
                        store.delete(key).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let found = store.collect().unwrap();
                assert!(found.damaged.is_empty());
                collected.fetch_add(found.pieces, Ordering::Relaxed);
                moved.fetch_add(found.copied_bytes, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut random = Random::new(5);
            while !ended.load(Ordering::Relaxed) {
                let piece = bytes(random.below(140));
                match store.read(PieceHash::of(&piece)) {
                    Ok(found) => assert_eq!(found, piece),
                    Err(ReadError::NotHeld { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let ends: Vec<_> = makers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    let collected = collected.into_inner();
    let moved = moved.into_inner();
    println!("{collected} pieces were collected meanwhile, {moved} bytes moved");
    assert!(collected > 0 && moved > 0, "{collected} {moved}");
    store.collect().unwrap();
    assert_eq!(store.usage().pieces, 0, "nothing is named any more");
}

/// A segment that a put has just filled is no waste, though nothing in it is held yet.
#[test]
fn what_is_put_over_many_segments_while_it_is_collected_survives() {
    // Each piece fills one.
    let options = Options { segment_bytes: 1 << 10 };
    let disk = Arc::new(MemoryDisk::default());
    let store = Store::open_on(disk, Path::new("/store"), None, options).unwrap().store;
    let ended = AtomicBool::new(false);
    let collections = thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for round in 0..400_u64 {
                let pin = PinId::new(round);
                let pieces: Vec<Vec<u8>> = (0..12_u64).map(|slot| [round, slot].map(u64::to_le_bytes).concat()).collect();
                let pieces: Vec<Vec<u8>> = pieces.iter().map(|name| name.repeat(50)).collect();
                let slices: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
                let hashes = store.put(pin, &slices).unwrap();
                store.sync().unwrap();
                for (hash, piece) in hashes.iter().zip(&pieces) {
                    assert_eq!(store.read(*hash).as_ref().ok(), Some(piece), "in round {round}");
                }
                store.unpin(pin);
            }
        });
        let collector = scope.spawn(|| {
            let mut collections = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                store.collect().unwrap();
                collections += 1;
            }
            collections
        });
        let made = maker.join();
        ended.store(true, Ordering::Relaxed);
        made.unwrap();
        collector.join().unwrap()
    });
    println!("{collections} collections meanwhile");
    assert!(collections > 0);
}

#[test]
fn many_pieces_are_read_by_several_threads() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(&place.path().join("store"), OPTIONS).unwrap().store;
    let pieces: Vec<_> = (0..200).map(bytes).collect();
    let slices: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
    let mut hashes = store.put(PinId::new(0), &slices).unwrap();
    store.sync().unwrap();
    hashes.push(PieceHash::of(b"never put"));
    let seen = AtomicU64::new(0);
    store.read_many(&hashes, |number, read| {
        match read {
            Ok(found) => assert_eq!(found, pieces[number]),
            Err(error) => assert!(number == 200 && matches!(error, ReadError::NotHeld { .. }), "{error}"),
        }
        seen.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(seen.into_inner(), 201);
}
