//! Folders that cannot be a store's, or not this one's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sardana_storage::private::PrivateError;
use sardana_storage::store::{CommitError, Finding, OpenError, Opened, Problem, ReadError, Store};

use crate::disk::Mounted;
use crate::history::{self, key, make};

/// A store with two checkpoints.
fn used() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let Opened { store, findings } = Store::open(&folder).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    for number in 0..2 {
        make(&store, number, |_, _| ()).unwrap();
    }
    drop(store);
    (place, folder)
}

fn whole(folder: &Path) -> Vec<Finding> {
    let Opened { store, findings } = Store::open(folder).unwrap();
    (0..2).for_each(|number| history::read(&store, number).unwrap());
    assert_eq!(store.newest().key, Some(key(1)));
    findings
}

#[test]
fn a_second_one_is_told_who_has_it() {
    let (_place, folder) = used();
    let first = Store::open(&folder).unwrap();
    let error = Store::open(&folder).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
    drop(first);
    whole(&folder);
}

#[test]
fn a_newer_version_is_named() {
    let (_place, folder) = used();
    let text = "sardana-store 2";
    let line = format!("{text} check={}\n", blake3::hash(text.as_bytes()));
    fs::write(folder.join("format"), line).unwrap();
    let error = Store::open(&folder).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 2, .. }), "{error:?}");
    let words = error.to_string();
    assert!(
        words.contains("expected at most format 1, found 2") && words.contains("use the release"),
        "{words}"
    );
    // A flipped bit is no newer version.
    fs::write(folder.join("format"), "sardana-store 2").unwrap();
    let findings = whole(&folder);
    assert!(matches!(findings[..], [Finding::Format(_)]), "{findings:?}");
    assert_eq!(whole(&folder), []);
}

#[test]
fn a_segment_of_a_newer_version_is_named() {
    let (_place, folder) = used();
    let path = folder.join("segments/00000000.seg");
    let mut bytes = fs::read(&path).unwrap();
    // The format of the first record, whose check is over its number and offset as well, which are zero.
    bytes[8] = 3;
    let check = blake3::hash(&[&bytes[..48], &[0; 16]].concat());
    bytes[48..64].copy_from_slice(&check.as_bytes()[..16]);
    fs::write(&path, &bytes).unwrap();
    let error = Store::open(&folder).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("00000000.seg"), "{error}");
}

#[test]
fn a_deleted_checkpoint_does_not_come_back() {
    let (_place, folder) = used();
    let path = folder.join(format!("manifests/{:020}-{}.manifest", 1, key(1).id));
    let copy = fs::read(&path).unwrap();
    let store = Store::open(&folder).unwrap().store;
    store.delete(key(1)).unwrap();
    assert!(store.is_deleted(key(1)) && store.newest().key == Some(key(0)));
    let error = store.commit(&history::manifest(1)).unwrap_err();
    assert!(matches!(error, CommitError::Deleted(_)), "{error}");
    assert!(error.to_string().contains("was deleted here"), "{error}");
    drop(store);
    // A copy is brought back behind its back.
    let tombstone = path.with_extension("deleted");
    for without in [None, Some(&tombstone)] {
        fs::write(&path, &copy).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        without.map_or(Ok(()), fs::remove_file).unwrap();
        let Opened { store, findings } = Store::open(&folder).unwrap();
        assert_eq!(findings, [Finding::Returned(key(1))]);
        assert!(store.is_deleted(key(1)) && store.newest().key == Some(key(0)));
        assert!(!path.exists() && tombstone.exists());
    }
    let Opened { store, findings } = Store::open(&folder).unwrap();
    assert_eq!((findings, store.deleted()), (vec![], vec![key(1)]));
    assert_eq!(store.forget(key(1).step).unwrap(), 0);
    assert_eq!(store.forget(key(1).step.next()).unwrap(), 1);
    assert!(store.deleted().is_empty() && !tombstone.exists());
    make(&store, 1, |_, _| ()).unwrap();
    drop(store);
    assert_eq!(whole(&folder), []);
}

#[test]
fn what_others_could_have_changed_is_refused() {
    let (_place, folder) = used();
    let segment = folder.join("segments/00000000.seg");
    for (path, mode, good) in [
        (folder.clone(), 0o750, 0o700),
        (folder.join("segments"), 0o755, 0o700),
        (folder.join("manifests"), 0o770, 0o700),
        (folder.join("catalogue"), 0o755, 0o700),
        (segment, 0o644, 0o600),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Store::open(&folder).unwrap_err().to_string();
        let found = format!("found {mode:04o}");
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains(&found) && error.contains("chmod"),
            "{error}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(good)).unwrap();
    }
    assert_eq!(whole(&folder), []);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: giving a folder to another user needs root");
    }
    let (_place, folder) = used();
    std::os::unix::fs::chown(&folder, Some(12_345), None).unwrap();
    let error = Store::open(&folder).unwrap_err();
    assert!(
        matches!(error, OpenError::Private(PrivateError::Owner { found: 12_345, .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("expected the owner 0, found 12345"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_to_is_told() {
    let (place, folder) = used();
    let root = rustix::process::geteuid().is_root();
    let mounted = if root {
        // Permissions do not hold root.
        let bound = Mounted::new(&folder, &["--bind", folder.to_str().unwrap()]);
        match bound {
            Ok(mounted) => {
                mounted.remount("bind,ro");
                Some(mounted)
            }
            Err(reason) => return println!("skipped: {reason}"),
        }
    } else {
        fs::set_permissions(folder.join("lock"), fs::Permissions::from_mode(0o400)).unwrap();
        None
    };
    let error = Store::open(&folder).unwrap_err().to_string().to_lowercase();
    assert!(error.contains("read-only") || error.contains("permission denied"), "{error}");
    assert!(error.contains("can be written to"), "{error}");
    match mounted {
        Some(mounted) => mounted.unmount(),
        None => fs::set_permissions(folder.join("lock"), fs::Permissions::from_mode(0o600)).unwrap(),
    }
    assert_eq!(whole(&folder), []);
    drop(place);
}

#[test]
fn a_lost_index_is_made_anew() {
    let (_place, folder) = used();
    fs::remove_dir_all(folder.join("catalogue")).unwrap();
    let findings = whole(&folder);
    assert!(matches!(findings[..], [Finding::IndexRebuilt(_)]), "{findings:?}");
    assert_eq!(whole(&folder), []);
    fs::write(folder.join("catalogue/store/db"), b"nothing of sled's").unwrap();
    let findings = whole(&folder);
    assert!(matches!(findings[..], [Finding::IndexRebuilt(_)]), "{findings:?}");
    assert!(folder.join("catalogue/aside-1").exists());
    assert_eq!(whole(&folder), []);
    assert!(!folder.join("catalogue/aside-1").exists());
}

#[test]
fn what_is_not_ours_is_left_alone_and_told() {
    let (_place, folder) = used();
    let strays = [folder.join("segments/notes.txt"), folder.join("manifests/7.manifest")];
    for path in &strays {
        fs::write(path, b"mine").unwrap();
    }
    let findings = whole(&folder);
    let expected = strays.map(Finding::Stray);
    assert_eq!(findings, expected);
    assert!(expected.iter().all(|finding| finding.to_string().contains("left alone")));
}

#[test]
fn a_lost_manifest_is_missed_and_can_be_committed_again() {
    let (_place, folder) = used();
    let name = format!("manifests/{:020}-{}.manifest", 1, key(1).id);
    fs::remove_file(folder.join(name)).unwrap();
    let Opened { store, findings } = Store::open(&folder).unwrap();
    let problem = Problem::Missing;
    assert_eq!(
        findings,
        [Finding::Manifest {
            key: key(1),
            problem: problem.clone()
        }]
    );
    let newest = store.newest();
    assert_eq!((newest.key, newest.passed_over), (Some(key(0)), vec![(key(1), problem)]));
    let error = store.collect().unwrap_err().to_string();
    assert!(error.contains("nothing is removed"), "{error}");
    store.commit(&history::manifest(1)).unwrap();
    assert_eq!(store.newest().key, Some(key(1)));
    store.collect().unwrap();
    drop(store);
    assert_eq!(whole(&folder), []);
}

#[test]
fn a_segment_that_is_gone_is_missed_with_what_it_had() {
    let (_place, folder) = used();
    fs::remove_file(folder.join("segments/00000000.seg")).unwrap();
    let Opened { store, findings } = Store::open(&folder).unwrap();
    assert!(matches!(findings[0], Finding::SegmentMissing(_)), "{findings:?}");
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert_eq!(store.newest().key, None);
    let piece = history::manifest(0).pieces()[0];
    assert!(matches!(store.read(piece), Err(ReadError::NotHeld { .. })));
    make(&store, 0, |_, _| ()).unwrap();
    history::read(&store, 0).unwrap();
}

#[test]
fn a_damaged_piece_is_named_with_its_place_and_can_be_healed() {
    let (_place, folder) = used();
    let path = folder.join("segments/00000000.seg");
    let mut bytes = fs::read(&path).unwrap();
    let piece = history::pieces(0).remove(0);
    let at = bytes.windows(piece.len()).position(|window| window == piece).unwrap();
    bytes[at + 10] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let store = Store::open(&folder).unwrap().store;
    let hash = history::manifest(0).pieces()[0];
    let error = store.read(hash).unwrap_err();
    let words = error.to_string();
    let place = format!("{} at {}", path.display(), at - 64);
    assert!(words.contains(&place) && words.contains(&hash.to_string()), "{words}");
    assert!(
        words.contains("found bytes with the hash") && words.contains("heal this one"),
        "{words}"
    );
    assert_eq!(store.newest().key, None, "both need it");
    let other = store.heal(hash, b"others").unwrap_err().to_string();
    assert!(other.contains("expected the bytes of piece"), "{other}");
    store.heal(hash, &piece).unwrap();
    assert_eq!(store.newest().key, Some(key(1)));
    drop(store);
    assert_eq!(whole(&folder), []);
}

#[test]
fn a_file_in_place_of_a_folder_is_told() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    fs::write(&path, b"x").unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Private(PrivateError::Kind { .. })), "{error:?}");
    assert_eq!(
        fs::read(&path).map_err(|error| error.kind()),
        Ok::<_, ErrorKind>(b"x".to_vec())
    );
}
