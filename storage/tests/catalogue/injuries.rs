//! Files that are not what was written. Each injury ends in all that was acknowledged, or in an error that says what to do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sardana_storage::catalogue::{Catalogue, CatalogueError, Found, Repair};

use crate::child::judged;
use crate::disk::copy;
use crate::history;
use crate::injury::{Injury, Part};
use crate::random::rounds;

const COMMITS: u64 = 120;

/// A catalogue that has had [`COMMITS`] commits, closed now and then. sled sums it up when it is opened: after the last of
/// them if `summed_up`, or long before.
fn healthy(folder: &Path, summed_up: bool) {
    for last in [COMMITS / 3, COMMITS / 2, COMMITS] {
        let catalogue = Catalogue::open(folder).unwrap().catalogue;
        history::go_on(&catalogue, last, |_| ()).unwrap();
    }
    if summed_up {
        drop(Catalogue::open(folder).unwrap());
    }
}

#[test]
fn every_injury_ends_in_the_right_data_or_a_clear_error() {
    let place = tempfile::tempdir().unwrap();
    let kinds = [false, true].map(|summed_up| {
        let folder = place.path().join(summed_up.to_string());
        healthy(&folder, summed_up);
        folder
    });
    let first = rounds("SARDANA_CATALOGUE_SEED", 0);
    let mut ends = BTreeMap::<(Part, &str), u64>::new();
    for seed in first..first + rounds("SARDANA_CATALOGUE_INJURIES", 150) {
        let folder = place.path().join(format!("injured-{seed}"));
        copy(if seed.is_multiple_of(2) { &kinds[0] } else { &kinds[1] }, &folder);
        let injury = Injury::inflict(&folder, seed);
        let said = judged(&folder);
        let again = format!(
            "{:?}: {:?}; to replay: SARDANA_CATALOGUE_SEED={seed} SARDANA_CATALOGUE_INJURIES=1 cargo test",
            injury.part, injury.wound
        );
        let word = if said.starts_with(&format!("whole {COMMITS} ")) {
            "whole"
        } else {
            assert!(said.starts_with("refused "), "{said}; {again}");
            assert!(
                said.contains(folder.to_str().unwrap()) && said.contains("; "),
                "{said}; {again}"
            );
            assert!(!said.contains("took more than") && !injury.heals(), "{said}; {again}");
            "refused"
        };
        *ends.entry((injury.part, word)).or_default() += 1;
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("injuries: {ends:?}");
}

fn injured(hurt: impl Fn(&Path)) -> (tempfile::TempDir, Result<Found, CatalogueError>) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("catalogue");
    healthy(&folder, true);
    hurt(&folder);
    let opened = Catalogue::open(&folder).map(|opened| {
        assert!(history::read(&opened.catalogue).unwrap() == history::after(COMMITS));
        opened.found
    });
    (place, opened)
}

#[test]
fn a_store_that_is_gone_is_not_new() {
    for name in ["store", "store/db"] {
        let (_place, opened) = injured(|folder| {
            let path = folder.join(name);
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            removed.unwrap();
        });
        let error = opened.unwrap_err();
        assert!(matches!(error, CatalogueError::Emptied { commits: COMMITS, .. }), "{error}");
        assert!(error.to_string().contains("not taken for a new one"), "{error}");
    }
}

#[test]
fn a_marker_that_is_gone_is_missed() {
    let (_place, opened) = injured(|folder| fs::remove_file(folder.join("marker")).unwrap());
    assert!(matches!(opened, Err(CatalogueError::MarkerLost(_))), "{opened:?}");
}

#[test]
fn a_snapshot_that_was_never_finished_is_removed() {
    let (place, opened) = injured(|folder| {
        let torn = folder.join("store/snap.00000000000000FF.generating");
        fs::write(&torn, b"torn").unwrap();
    });
    assert_eq!(opened.unwrap(), Found::Used);
    assert!(!place.path().join("catalogue/store/snap.00000000000000FF.generating").exists());
}

#[test]
fn a_torn_snapshot_is_moved_aside_and_told() {
    let (place, opened) = injured(|folder| {
        for entry in fs::read_dir(folder.join("store")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("snap.") {
                fs::write(path, b"torn").unwrap();
            }
        }
    });
    let aside = place.path().join("catalogue/aside-1");
    assert_eq!(opened.unwrap(), Found::Repaired(vec![Repair::Summaries(aside.clone())]));
    assert!(fs::read_dir(aside).unwrap().count() > 0);
}

/// An older copy of sled's file is whole in itself: only the marker tells.
#[test]
fn lost_commits_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("catalogue");
    let catalogue = Catalogue::open(&folder).unwrap().catalogue;
    history::go_on(&catalogue, 5, |_| ()).unwrap();
    drop(catalogue);
    copy(&folder.join("store"), &place.path().join("older"));
    let catalogue = Catalogue::open(&folder).unwrap().catalogue;
    history::go_on(&catalogue, 9, |_| ()).unwrap();
    drop(catalogue);
    fs::remove_dir_all(folder.join("store")).unwrap();
    copy(&place.path().join("older"), &folder.join("store"));
    let error = Catalogue::open(&folder).unwrap_err();
    assert!(
        matches!(
            error,
            CatalogueError::Behind {
                expected: 9,
                found: 5,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("the last 4 are lost"), "{error}");
}
