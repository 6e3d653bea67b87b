//! What is remembered of checkpoints that were deleted.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use sardana_protocol::words::Step;
use sardana_storage::store::limits::{KEPT_TOMBSTONES, MOST_TOMBSTONES};
use sardana_storage::store::{Manifest, ManifestKey, Options, PinId, Store};

use crate::memory::{Image, MemoryDisk};

fn opened(disk: &MemoryDisk) -> Store {
    let opened = Store::open_on(Arc::new(disk.clone()), Path::new("/store"), None, Options::default()).unwrap();
    assert!(opened.findings.is_empty(), "{:?}", opened.findings);
    opened.store
}

fn of(step: u64, bytes: &[u8]) -> Manifest {
    Manifest::new(Step::new(step), Vec::new(), bytes.to_vec())
}

fn comes_and_goes(store: &Store, manifest: &Manifest) -> ManifestKey {
    let key = store.commit(manifest).unwrap();
    store.delete(key).unwrap();
    assert!(store.is_deleted(key));
    key
}

#[test]
fn of_too_many_the_oldest_are_forgotten_and_the_last_one_never_is() {
    let disk = MemoryDisk::with(&Image::new());
    let store = opened(&disk);
    let steps = 1..=MOST_TOMBSTONES as u64;
    let keys: Vec<ManifestKey> = steps.map(|step| comes_and_goes(&store, &of(step, b"x"))).collect();
    assert_eq!(store.deleted(), keys);
    // A job that began anew: its steps are lower.
    let last = comes_and_goes(&store, &of(0, b"y"));
    let newest = keys[MOST_TOMBSTONES - KEPT_TOMBSTONES + 1..].iter();
    let expected: Vec<ManifestKey> = std::iter::once(&last).chain(newest).copied().collect();
    assert_eq!(store.deleted(), expected);
    assert_eq!(disk.image().keys().filter(|path| is_tombstone(path)).count(), expected.len());
    drop(store);
    let store = opened(&disk);
    assert_eq!(store.deleted(), expected, "also for the next life");
    // What was forgotten may be there again, behind what is newer.
    let again = store.commit(&of(1, b"x")).unwrap();
    let newer = store.commit(&of(5_000, b"x")).unwrap();
    assert_eq!((again, store.newest().key), (keys[0], Some(newer)));
    assert!(
        store.commit(&of(MOST_TOMBSTONES as u64, b"x")).is_err(),
        "this one was not forgotten"
    );
}

fn is_tombstone(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "deleted")
}

#[test]
fn a_store_is_as_large_after_thousands_of_checkpoints_as_after_hundreds() {
    /// As a job keeps them that takes one each step: the last few, and collecting now and then.
    const KEPT: u64 = 3;
    const COLLECTED_EVERY: u64 = 20;
    let disk = MemoryDisk::with(&Image::new());
    let store = opened(&disk);
    let mut keys = VecDeque::new();
    let mut bytes_after = |steps: RangeInclusive<u64>| {
        for step in steps {
            let own = step.to_le_bytes().repeat(512);
            let pin = PinId::new(step);
            let pieces = store.put(pin, &[&own, b"what no step changes"]).unwrap();
            store.sync().unwrap();
            keys.push_back(store.commit(&Manifest::new(Step::new(step), pieces, b"x".to_vec())).unwrap());
            store.unpin(pin);
            if keys.len() as u64 > KEPT {
                store.delete(keys.pop_front().unwrap()).unwrap();
            }
            if step % COLLECTED_EVERY == 0 {
                let _ = store.collect().unwrap();
            }
        }
        disk.image().values().map(Vec::len).sum::<usize>()
    };
    let (few, many) = (bytes_after(1..=1_000), bytes_after(1_001..=4_000));
    assert!(many <= few + few / 10, "{few} bytes, then {many}");
}
