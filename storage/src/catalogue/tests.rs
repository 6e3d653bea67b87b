//! A catalogue, used as it should be. What happens when it is hurt is tested from outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::limits::{BATCH_BYTES, BATCH_CHANGES, KEY_BYTES, VALUE_BYTES};
use super::*;
use crate::private::{Existing, PrivateError, write_private};

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("catalogue");
    (place, path)
}

/// A catalogue with one record.
fn put_one(path: &Path) {
    let catalogue = Catalogue::open(path).unwrap().catalogue;
    catalogue.table("t").unwrap().put(b"k", b"v").unwrap();
}

#[test]
fn what_is_put_is_there_after_reopening() {
    let (_place, path) = place();
    let opened = Catalogue::open(&path).unwrap();
    assert_eq!(opened.found, Found::Fresh);
    let jobs = opened.catalogue.table("jobs").unwrap();
    jobs.put(b"a", b"1").unwrap();
    jobs.put(b"b", b"").unwrap();
    jobs.put(b"a", b"2").unwrap();
    jobs.put(b"c", b"3").unwrap();
    jobs.remove(b"c").unwrap();
    jobs.remove(b"never there").unwrap();
    let since = opened.catalogue.since();
    drop((jobs, opened));
    let opened = Catalogue::open(&path).unwrap();
    assert_eq!(opened.found, Found::Used);
    assert_eq!((opened.catalogue.commits(), opened.catalogue.since()), (6, since));
    let jobs = opened.catalogue.table("jobs").unwrap();
    assert_eq!(jobs.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(jobs.get(b"b").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(jobs.get(b"c").unwrap(), None);
    assert_eq!(jobs.len(), 2);
}

#[test]
fn a_batch_changes_several_tables_and_its_last_change_to_a_key_counts() {
    let (_place, path) = place();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let batch = Batch::new()
        .put("a", b"k", b"1")
        .put("b", b"k", b"2")
        .put("a", b"gone", b"3")
        .remove("a", b"gone")
        .put("b", b"k", b"4");
    assert_eq!(catalogue.commit(&batch).unwrap(), 1);
    assert_eq!(catalogue.commit(&Batch::new()).unwrap(), 1, "nothing to do");
    let (a, b) = (catalogue.table("a").unwrap(), catalogue.table("b").unwrap());
    assert_eq!(a.scan(b"", 9).unwrap(), [(b"k".to_vec(), b"1".to_vec())]);
    assert_eq!(b.scan(b"", 9).unwrap(), [(b"k".to_vec(), b"4".to_vec())]);
    assert_eq!(b.scan(b"l", 9).unwrap(), []);
    assert_eq!((a.len(), b.len(), catalogue.table("c").unwrap().is_empty()), (1, 1, true));
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let (_place, path) = place();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let table = catalogue.table("t").unwrap();
    for (what, key, value) in [("key", KEY_BYTES + 1, 0), ("value", 1, VALUE_BYTES + 1)] {
        let error = table.put(&vec![1; key], &vec![1; value]).unwrap_err();
        assert!(
            matches!(error, CatalogueError::TooLarge { what: found, .. } if found == what),
            "{error}"
        );
        assert!(error.to_string().contains("keep what is larger in a file"), "{error}");
    }
    let many = (0..=BATCH_CHANGES).fold(Batch::new(), |batch, n| batch.put("t", &n.to_le_bytes(), b""));
    assert!(matches!(catalogue.commit(&many), Err(CatalogueError::TooMany { .. })));
    let values = BATCH_BYTES / VALUE_BYTES + 1;
    let large = (0..values).fold(Batch::new(), |batch, n| {
        batch.put("t", &n.to_le_bytes(), &vec![1; VALUE_BYTES])
    });
    assert!(matches!(
        catalogue.commit(&large),
        Err(CatalogueError::TooLarge { what: "batch", .. })
    ));
    for name in ["", "Jobs", "a b", "ä", &"x".repeat(33), "a\0"] {
        assert!(matches!(catalogue.table(name), Err(CatalogueError::Name(_))), "{name}");
        let batch = Batch::new().put(name, b"k", b"v");
        assert!(matches!(catalogue.commit(&batch), Err(CatalogueError::Name(_))), "{name}");
    }
    assert_eq!((catalogue.commits(), table.len()), (0, 0));
    table.put(&[1; KEY_BYTES], &[2; VALUE_BYTES]).unwrap();
    assert_eq!(table.get(&[1; KEY_BYTES]).unwrap(), Some(vec![2; VALUE_BYTES]));
}

/// sled syncs nothing that it puts into files of its own there.
#[test]
fn sled_makes_no_file_that_it_does_not_sync() {
    let (_place, path) = place();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let key = |n: u32| [&n.to_be_bytes()[..], &[7; KEY_BYTES - 4]].concat();
    for round in 0..3_u8 {
        for first in (0..96).step_by(4) {
            let batch =
                (first..first + 4).fold(Batch::new(), |batch, n| batch.put("long", &key(n), &vec![round; VALUE_BYTES]));
            catalogue.commit(&batch).unwrap();
        }
        let small = (0..1_000).fold(Batch::new(), |batch, n| batch.put("small", &key(n)[..200], &[round; 50]));
        catalogue.commit(&small).unwrap();
        let inline = (0..60).fold(Batch::new(), |batch, n| {
            batch.put("inline", &key(n), &vec![round; limits::CHUNK_BYTES])
        });
        catalogue.commit(&inline).unwrap();
        let blobs: Vec<_> = fs::read_dir(path.join(STORE_FOLDER).join("blobs")).unwrap().collect();
        assert_eq!(blobs.len(), 0, "{blobs:?}");
    }
    drop(catalogue);
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let long = catalogue.table("long").unwrap();
    assert_eq!((long.len(), long.get(&key(95)).unwrap()), (96, Some(vec![2; VALUE_BYTES])));
}

#[test]
fn a_second_one_is_refused_by_the_firsts_number() {
    let (_place, path) = place();
    let first = Catalogue::open(&path).unwrap();
    for error in [Catalogue::open(&path).map(drop), Catalogue::set_aside(&path).map(drop)] {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains(&format!("in use by process {}", std::process::id())),
            "{error}"
        );
    }
    drop(first);
    Catalogue::open(&path).unwrap();
}

#[test]
fn half_a_marker_is_enough_and_is_made_whole() {
    let (_place, path) = place();
    put_one(&path);
    let mut bytes = fs::read(path.join(MARKER_FILE)).unwrap();
    bytes[30] ^= 1;
    fs::write(path.join(MARKER_FILE), bytes).unwrap();
    for found in [Found::Repaired(vec![Repair::Marker]), Found::Used] {
        let opened = Catalogue::open(&path).unwrap();
        assert_eq!((opened.found, opened.catalogue.commits()), (found, 1));
    }
}

/// sled's own lock, taken by a program that does not know of ours.
#[test]
fn sleds_data_in_use_by_another_program_is_not_taken_for_damage() {
    let (_place, path) = place();
    put_one(&path);
    let other = fs::File::open(path.join("store/db")).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let error = Catalogue::open(&path).unwrap_err();
    assert!(matches!(error, CatalogueError::Disk { .. }), "{error}");
    assert!(error.to_string().contains("has it locked"), "{error}");
    rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(Catalogue::open(&path).unwrap().found, Found::Used);
}

#[test]
fn a_caller_that_cannot_wait_is_told_and_the_catalogue_is_free_again_later() {
    let (_place, path) = place();
    let error = Catalogue::open_within(&path, Duration::ZERO).unwrap_err();
    assert!(matches!(error, CatalogueError::Stuck { .. }), "{error}");
    let opened = loop {
        match Catalogue::open(&path) {
            // The thread that was given up on has it until it has closed it again.
            Err(CatalogueError::Locked { .. }) => std::thread::yield_now(),
            opened => break opened,
        }
    };
    assert_eq!(opened.unwrap().found, Found::Fresh);
}

#[test]
fn what_others_could_have_changed_is_refused() {
    let (_place, path) = place();
    drop(Catalogue::open(&path).unwrap());
    for name in [LOCK_FILE, MARKER_FILE, "store", "store/db", "store/conf"] {
        let file = path.join(name);
        let mode = fs::metadata(&file).unwrap().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode | 0o040)).unwrap();
        let error = Catalogue::open(&path).unwrap_err();
        assert!(
            matches!(error, CatalogueError::Private(PrivateError::Open { .. })),
            "{name}: {error}"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    for entry in fs::read_dir(path.join(STORE_FOLDER)).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        assert!(metadata.is_dir() || metadata.mode() & 0o077 == 0, "{:?}", entry.path());
    }
    drop(Catalogue::open(&path).unwrap());
}

#[test]
fn what_is_set_aside_is_kept_and_the_next_one_is_new() {
    let (_place, path) = place();
    let missing = Catalogue::set_aside(&path).unwrap_err();
    assert!(
        matches!(missing, CatalogueError::Private(PrivateError::Missing { .. })),
        "{missing}"
    );
    for (number, found) in [(1, "aside-1"), (2, "aside-2")] {
        let opened = Catalogue::open(&path).unwrap();
        assert_eq!(opened.found, Found::Fresh, "{number}");
        opened.catalogue.table("t").unwrap().put(b"k", b"v").unwrap();
        drop(opened);
        let aside = Catalogue::set_aside(&path).unwrap();
        assert_eq!(aside, path.join(found));
        assert!(fs::metadata(aside.join("store/db")).unwrap().len() > 0);
    }
    // And brought back.
    for name in [STORE_FOLDER, MARKER_FILE] {
        fs::rename(path.join("aside-1").join(name), path.join(name)).unwrap();
    }
    assert_eq!(Catalogue::open(&path).unwrap().catalogue.table("t").unwrap().len(), 1);
}

#[test]
fn a_store_of_another_catalogue_and_of_a_later_release_are_told() {
    let (_place, path) = place();
    let (_other_place, other) = place();
    put_one(&path);
    put_one(&other);
    fs::copy(other.join(MARKER_FILE), path.join(MARKER_FILE)).unwrap();
    let error = Catalogue::open(&path).unwrap_err();
    assert!(matches!(error, CatalogueError::Foreign { .. }), "{error}");
    let text = "sardana-catalogue 2 what only a later release knows";
    let line = format!("{text} check={}\n", blake3::hash(text.as_bytes()));
    write_private(&path.join(MARKER_FILE), line.as_bytes(), Existing::Replace).unwrap();
    let error = Catalogue::open(&path).unwrap_err();
    assert!(matches!(error, CatalogueError::Newer { found: 2, .. }), "{error}");
}

#[test]
fn many_threads_commit_at_once() {
    let (_place, path) = place();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let numbers = std::thread::scope(|scope| {
        let committing = (0..8_u8).map(|thread| {
            let table = catalogue.table("t").unwrap();
            let catalogue = catalogue.clone();
            scope.spawn(move || {
                (0..20_u8)
                    .map(|n| {
                        let number = catalogue.commit(&Batch::new().put("t", &[thread, n], &[n])).unwrap();
                        assert_eq!(table.get(&[thread, n]).unwrap(), Some(vec![n]));
                        number
                    })
                    .collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = committing.collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut numbers = numbers;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=160).collect::<Vec<_>>(), "each commit has its own number");
    drop(catalogue);
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    assert_eq!((catalogue.commits(), catalogue.table("t").unwrap().len()), (160, 160));
}

type Hurt<'a> = &'a dyn Fn(&store::Store);

/// A catalogue with a short and a long value, to which `tamper` does what only sled's own faults could do.
fn tampered(tamper: impl Fn(&store::Store)) -> (tempfile::TempDir, PathBuf, Catalogue) {
    let (place, path) = place();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    for value in [b"older", b"newer"] {
        let long = vec![value[0]; 3 * limits::CHUNK_BYTES];
        let batch = Batch::new().put("jobs", b"short", value).put("jobs", b"long", &long);
        catalogue.commit(&batch).unwrap();
    }
    let store = catalogue.0.store().unwrap();
    tamper(store);
    store.sync().unwrap();
    (place, path, catalogue)
}

fn write(store: &store::Store, key: Vec<u8>, value: Option<Vec<u8>>) {
    let mut batch = sled::Batch::default();
    match value {
        Some(value) => batch.insert(key, value),
        None => batch.remove(key),
    }
    store.apply(batch).unwrap();
}

#[test]
fn a_record_that_is_not_what_was_written_is_named_when_it_is_read_and_when_opening() {
    let short = || record::entry_key("jobs", b"short");
    let flipped = |store: &store::Store| {
        let mut bytes = store.get(&short()).unwrap().unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 4;
        write(store, short(), Some(bytes));
    };
    let cut = |store: &store::Store| write(store, record::chunk_key(1, 2), None);
    let hurts: [(&str, Hurt<'_>, &str); 2] = [("short", &flipped, "another one"), ("long", &cut, "is missing")];
    for (key, hurt, reason) in hurts {
        let (_place, path, catalogue) = tampered(hurt);
        let table = catalogue.table("jobs").unwrap();
        let read = table.get(key.as_bytes()).unwrap_err();
        let scanned = table.scan(b"", 9).unwrap_err();
        let replaced = table.put(key.as_bytes(), b"new").unwrap_err();
        drop((table, catalogue));
        let opened = Catalogue::open(&path).unwrap_err();
        for error in [read, scanned, replaced, opened] {
            let text = error.to_string();
            let named = format!("the record {key} of table jobs is damaged");
            assert!(
                text.contains(&named) && text.contains(reason) && text.contains("store/db"),
                "{text}"
            );
        }
    }
}

#[test]
fn records_that_are_whole_but_not_the_right_ones_are_noticed_when_opening() {
    let entry = |value: &[u8]| record::Heading::new("jobs", b"short", value, 0).encode(value);
    let older = |store: &store::Store| write(store, record::entry_key("jobs", b"short"), Some(entry(b"older")));
    let gone = |store: &store::Store| write(store, record::entry_key("jobs", b"short"), None);
    let headless = |store: &store::Store| write(store, record::HEAD_KEY.to_vec(), None);
    let stray = |store: &store::Store| write(store, record::chunk_key(9, 0), Some(vec![1]));
    let strange = |store: &store::Store| write(store, vec![7, 7], Some(vec![1]));
    let hurts: [(Hurt<'_>, &str); 5] = [
        (&older, "older than the others"),
        (&gone, "expected 2 records, found 1"),
        (&headless, "its head is missing"),
        (&stray, "expected 3 parts of long values, found 4"),
        (&strange, "strange key 0x0707"),
    ];
    for (hurt, reason) in hurts {
        let (_place, path, catalogue) = tampered(hurt);
        drop(catalogue);
        let error = Catalogue::open(&path).unwrap_err();
        assert!(matches!(error, CatalogueError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("set it aside"), "{text}");
    }
}
