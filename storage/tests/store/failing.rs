//! Disks without room for another byte or another file, and a store that goes on when there is some again.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sardana_storage::store::{CollectError, CommitError, Options, PieceHash, PinId, Store, WriteError};

use crate::child::{Making, Said};
use crate::disk::Mounted;
use crate::history::{self, Ended, key, make, manifest};

const OPTIONS: Options = Options {
    segment_bytes: 256 << 10,
};

/// Whatever has no room by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

fn is_full(ended: &Ended) -> bool {
    match ended {
        Ended::Write(error) | Ended::Commit(CommitError::Write(error)) | Ended::Collect(CollectError::Write(error)) => {
            matches!(error, WriteError::Full(_))
        }
        Ended::Commit(_) | Ended::Delete(_) | Ended::Collect(_) => false,
    }
}

/// Fills the disk with checkpoints until there is no room for another one.
fn fill(store: &Store) -> u64 {
    for number in 0.. {
        let bytes = history::pieces(number * 5);
        let slices: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        let pin = PinId::new(number);
        let put = store.put(pin, &slices).and_then(|_| store.sync());
        let made = put
            .map_err(Ended::from)
            .and_then(|()| Ok(store.commit(&manifest(number * 5))?));
        store.unpin(pin);
        if let Err(ended) = made {
            let words = ended.to_string();
            assert!(is_full(&ended), "{words}");
            assert!(
                words.contains("No space left") && words.contains("delete old checkpoints and collect"),
                "{words}"
            );
            return number;
        }
    }
    unreachable!("a disk of a few MiB has no room for so many");
}

/// A child that another test is just starting holds copies of all files until it is another program, also of those that are deleted: their
/// room is there a moment later.
fn once_there_is_room(make: impl Fn() -> Result<(), Ended>) {
    let began = Instant::now();
    loop {
        match make() {
            Err(ended) if is_full(&ended) && began.elapsed() < PATIENCE => thread::yield_now(),
            made => return made.unwrap(),
        }
    }
}

fn goes_on(at: &Path) -> u64 {
    let folder = at.join("store");
    let store = Store::open_with(&folder, OPTIONS).unwrap().store;
    let made = fill(&store);
    assert!(made > 2);
    let all = |store: &Store| (0..made).for_each(|number| history::read(store, number * 5).unwrap());
    all(&store);
    // The same store, with the same words, as often as one likes.
    let nothing = store.put(PinId::new(1_000), &[&[7; 200_000]]);
    assert!(matches!(nothing, Err(WriteError::Full(_))) || store.sync().is_ok());
    all(&store);
    // Also a store that is opened on a full disk, where there is no room for an index either.
    drop(store);
    let opened = Store::open_with(&folder, OPTIONS).unwrap();
    let store = opened.store;
    all(&store);
    for number in 0..made - 1 {
        store.delete(key(number * 5)).unwrap();
    }
    store.unpin(PinId::new(1_000));
    let before = store.usage().segment_bytes;
    once_there_is_room(|| Ok(store.collect().map(drop)?));
    let after = store.usage().segment_bytes;
    assert!(after < before - before / 3, "{after} of {before}");
    history::read(&store, (made - 1) * 5).unwrap();
    once_there_is_room(|| make(&store, 1_000, |_, _| ()));
    drop(store);
    let store = Store::open_with(&folder, OPTIONS).unwrap().store;
    history::read(&store, 1_000).unwrap();
    assert!((0..made - 1).all(|number| store.is_deleted(key(number * 5))));
    made
}

#[test]
fn a_disk_without_room_is_told_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let mounted = match Mounted::memory(&at, 6 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    println!("a disk of 6 MiB has room for {} checkpoints", goes_on(&at));
    mounted.unmount();
}

#[test]
fn a_disk_without_room_for_another_file_is_told_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let options = "size=64m,nr_inodes=40,mode=0700";
    let mounted = match Mounted::new(&at, &["-t", "tmpfs", "-o", options, "sardana-test"]) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    println!("a disk of 40 files has room for {} checkpoints", goes_on(&at));
    mounted.unmount();
}

/// A process that fills the disk ends with a reason, and what it had said holds.
#[test]
fn a_process_that_fills_the_disk_has_said_nothing_wrong() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let mounted = match Mounted::memory(&at, 3 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let folder = at.join("store");
    let mut said = Making::start(&folder, Said::default()).hear_out();
    let failed = said.failed.take().unwrap();
    assert!(failed.contains("No space left"), "{failed}");
    said.require(&folder);
    mounted.remount("size=64m");
    said.require(&folder);
    mounted.unmount();
}

/// What was put while there was no room is held as soon as there is some.
#[test]
fn what_did_not_fit_can_be_put_again() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let mounted = match Mounted::memory(&at, 2 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let store = Store::open_with(&at.join("store"), OPTIONS).unwrap().store;
    let pieces: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![number; 100_000]).collect();
    let slices: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
    let pin = PinId::new(1);
    let error = store.put(pin, &slices).unwrap_err();
    assert!(matches!(error, WriteError::Full(_)), "{error}");
    mounted.remount("size=64m");
    let hashes = store.put(pin, &slices).unwrap();
    store.sync().unwrap();
    assert!(store.pin(pin, &hashes).is_empty());
    for (hash, bytes) in hashes.iter().zip(&pieces) {
        assert_eq!(*hash, PieceHash::of(bytes));
        assert_eq!(&store.read(*hash).unwrap(), bytes);
    }
    drop(store);
    mounted.unmount();
}
