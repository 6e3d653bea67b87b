//! Injuries of a store on a real disk, with its index: each in a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sardana_storage::store::Store;

use crate::child::judged;
use crate::disk::copy;
use crate::history::{KEPT, make};
use crate::random::{Random, rounds};
use crate::wound::Wound;

const CHECKPOINTS: u64 = 7;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found)
        } else {
            found.push(path)
        }
    }
}

/// Hurts one file: which, and how.
fn inflict(folder: &Path, random: &mut Random) -> (PathBuf, Wound) {
    let mut all = Vec::new();
    files(folder, &mut all);
    let path = all[random.below(all.len() as u64) as usize].clone();
    let len = fs::metadata(&path).unwrap().len();
    let at = random.below(len);
    let wound = match random.below(6) {
        _ if len == 0 => Wound::Deleted,
        0 | 1 => Wound::Bits(vec![at * 8 + random.below(8)]),
        2 => Wound::Cut(at),
        3 => Wound::Zeroed(at, 1 + len / 3),
        4 => Wound::Noise(at, 700),
        _ => Wound::Deleted,
    };
    wound.inflict(&path, random);
    (path.strip_prefix(folder).unwrap().to_owned(), wound)
}

#[test]
fn every_injury_of_files_on_a_disk_is_told() {
    let place = tempfile::tempdir().unwrap();
    let healthy = place.path().join("healthy");
    let store = Store::open(&healthy).unwrap().store;
    (0..CHECKPOINTS).for_each(|number| make(&store, number, |_, _| ()).unwrap());
    drop(store);
    let mut ends = BTreeMap::<(String, &str), u64>::new();
    let first = rounds("SARDANA_STORE_SEED", 0);
    for seed in first..first + rounds("SARDANA_STORE_INJURIES", 60) {
        let folder = place.path().join(format!("injured-{seed}"));
        copy(&healthy, &folder);
        let (path, wound) = inflict(&folder, &mut Random::new(seed));
        let again = format!("{path:?}: {wound:?}; to replay: SARDANA_STORE_SEED={seed} SARDANA_STORE_INJURIES=1 cargo test");
        let judgement = judged(&folder);
        let kind = path.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        assert_eq!(judgement.refused, None, "{again}");
        let expected: Vec<_> = (CHECKPOINTS - KEPT..CHECKPOINTS).collect();
        let found: Vec<_> = judgement.found.keys().copied().collect();
        assert_eq!(found, expected, "{judgement:?}; {again}");
        assert!(
            judgement.deleted.iter().copied().eq(0..CHECKPOINTS - KEPT),
            "{judgement:?}; {again}"
        );
        let broken = judgement.found.values().flatten().count();
        // What holds no checkpoint loses none.
        assert!(
            broken == 0 || kind == "segments" || kind == "manifests",
            "{judgement:?}; {again}"
        );
        assert!(
            broken == 0 || !judgement.findings.is_empty() || kind == "segments",
            "{judgement:?}; {again}"
        );
        *ends.entry((kind, if broken == 0 { "whole" } else { "told" })).or_default() += 1;
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("injuries: {ends:?}");
}
