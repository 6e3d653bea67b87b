//! Files that are not what was written. Each checkpoint is whole, or what is wrong with it is said; what is not hurt stays, and what is
//! can be healed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sardana_storage::store::{CollectError, PieceHash, Problem, Recorded};

use crate::acting::{Acting, FOLDER, PIECES, With, piece};
use crate::crashes::used;
use crate::memory::{Image, MemoryDisk};
use crate::random::{Random, rounds};
use crate::wound::Wound;

/// How the files of a store end.
const KINDS: [&str; 4] = ["seg", "manifest", "deleted", "format"];

#[derive(Debug)]
struct Injury {
    path: PathBuf,
    wound: Wound,
}

fn inflict(image: &mut Image, random: &mut Random) -> Injury {
    // All kinds of files, most often segments, of which there are many.
    let [segment, manifest, deleted, format] = KINDS;
    let ending = [segment, segment, segment, manifest, manifest, deleted, format][random.below(7) as usize];
    let kind: Vec<_> = image
        .keys()
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .cloned()
        .collect();
    let all: Vec<_> = if kind.is_empty() {
        image.keys().cloned().collect()
    } else {
        kind
    };
    let path = all[random.below(all.len() as u64) as usize].clone();
    let bytes = image.get_mut(&path).unwrap();
    let len = bytes.len() as u64;
    let wound = match random.below(10) {
        _ if len == 0 => Wound::Longer(random.within(1..300)),
        0..4 => Wound::Bits((0..=random.below(3)).map(|_| random.below(len * 8)).collect()),
        4 => Wound::Cut(random.below(len)),
        5 => Wound::Zeroed(random.below(len), random.within(1..600)),
        6 => Wound::Zeroed(random.below(len), random.within(1..len + 1)),
        7 => Wound::Noise(random.below(len), random.within(1..3_000)),
        8 => Wound::Longer(random.within(1..3_000)),
        _ => Wound::Deleted,
    };
    match wound.leaves(bytes.clone(), random) {
        Some(left) => *bytes = left,
        None => drop(image.remove(&path)),
    }
    Injury { path, wound }
}

/// Pieces that must be there, and cannot be read.
fn unreadable(acting: &Acting, numbers: &BTreeSet<u64>) -> BTreeSet<PieceHash> {
    let hurt = |number: &u64| {
        let bytes = piece(*number);
        let hash = PieceHash::of(&bytes);
        match acting.store().read(hash) {
            Ok(found) => {
                assert!(found == bytes, "other bytes than were put (CKPT-2)");
                None
            }
            Err(error) => {
                assert!(error.to_string().contains(&hash.to_string()), "{error}");
                Some(hash)
            }
        }
    };
    numbers.iter().filter_map(hurt).collect()
}

/// Requires that each checkpoint is whole, or that it is said exactly what is wrong with it: what each lacks.
fn judge(acting: &Acting, again: &str) -> BTreeSet<PieceHash> {
    let verified = acting.store().verify(&mut |_| ());
    let harmed: BTreeSet<_> = verified
        .harmed
        .iter()
        .filter(|harm| !harm.readable)
        .map(|harm| harm.piece)
        .collect();
    let listed: BTreeMap<_, _> = acting
        .store()
        .list()
        .into_iter()
        .map(|listed| (listed.key, listed.problem))
        .collect();
    let mut all = BTreeSet::new();
    for (key, (_, numbers)) in &acting.model.manifests {
        let hurt = unreadable(acting, numbers);
        match listed.get(key) {
            None => panic!("{key} is not there any more; {again}"),
            Some(None) => assert!(hurt.is_empty(), "{key} is not whole; {again}"),
            Some(Some(Problem::Incomplete { missing, count })) => {
                assert!(
                    *count == hurt.len() && missing.iter().all(|piece| hurt.contains(piece)),
                    "{again}"
                );
            }
            Some(Some(Problem::Missing | Problem::Damaged(_))) => assert!(acting.store().show(*key).is_err()),
        }
        all.extend(hurt);
    }
    let held: BTreeSet<_> = (0..PIECES).map(|number| PieceHash::of(&piece(number))).collect();
    assert!(harmed.is_subset(&held), "{again}");
    all
}

/// The kind of file that was hurt, whether it did harm, and to how many pieces.
fn injured(base: &Acting, seed: u64) -> (&'static str, &'static str, usize) {
    let mut random = Random::new(seed);
    let mut image = base.disk.image();
    let injury = inflict(&mut image, &mut random);
    let told = random.below(3) > 0;
    let again =
        format!("{injury:?}, index: {told}; to replay: SARDANA_STORE_SEED={seed} SARDANA_STORE_INJURIES=1 cargo test");
    let recorded = if told { base.index.recorded() } else { Recorded::default() };
    let mut acting = Acting::on(MemoryDisk::with(&image), recorded, base.model.clone());
    acting.open(if told { With::Index } else { With::Nothing }).unwrap();
    let after = acting.disk.image();
    for (path, bytes) in image.iter().filter(|(path, _)| is_kept(path)) {
        assert!(
            after.get(path).is_some_and(|after| after.starts_with(bytes)),
            "{path:?} was touched; {again}"
        );
    }
    let manifest = injury.path.extension().is_some_and(|ending| ending == "manifest");
    if manifest && matches!(injury.wound, Wound::Deleted) && !told {
        // It cannot be known.
        acting
            .model
            .manifests
            .retain(|key, _| !injury.path.to_str().unwrap().contains(&key.id.to_string()));
    }
    let lost = judge(&acting, &again);
    if let Wound::Bits(bits) = &injury.wound {
        assert!(lost.len() <= bits.len(), "{} pieces are lost; {again}", lost.len());
    }
    for key in &acting.model.deleted {
        let known = told || !matches!(injury.wound, Wound::Deleted);
        assert!(acting.store().is_deleted(*key) || !known, "{again}");
    }
    // What is good stays good, whatever is collected beside it.
    match acting.store().collect() {
        Ok(_) => {}
        Err(CollectError::Unreadable { .. }) => assert!(manifest, "{again}"),
        Err(error @ CollectError::Write(_)) => panic!("{error}; {again}"),
    }
    assert_eq!(judge(&acting, &again), lost, "{again}");
    heal(&mut acting);
    let of_kind = |kind: &&str| injury.path.to_str().unwrap().ends_with(kind);
    let kind = KINDS.into_iter().find(of_kind).expect("there are no other kinds");
    (kind, if lost.is_empty() && !manifest { "whole" } else { "hurt" }, lost.len())
}

fn is_kept(path: &Path) -> bool {
    path.starts_with(Path::new(FOLDER).join("segments"))
}

/// Brings all back from elsewhere.
fn heal(acting: &mut Acting) {
    let manifests: Vec<_> = acting.model.manifests.values().cloned().collect();
    // Those as well that can be read only as long as there is an index.
    for harm in acting.store().verify(&mut |_| ()).harmed.iter().filter(|harm| harm.readable) {
        let bytes = acting.store().read(harm.piece).unwrap();
        acting.store().heal(harm.piece, &bytes).unwrap();
    }
    for (manifest, numbers) in &manifests {
        for number in numbers {
            let bytes = piece(*number);
            let hash = PieceHash::of(&bytes);
            if acting.store().read(hash).is_err() {
                acting.store().heal(hash, &bytes).unwrap();
            }
        }
        acting.store().commit(manifest).unwrap();
    }
    // What no manifest names was not healed.
    acting.model.held = manifests.into_iter().flat_map(|(_, numbers)| numbers).collect();
    acting
        .model
        .deleted
        .retain(|key| acting.store.as_ref().unwrap().is_deleted(*key));
    acting.check();
    for with in [With::Index, With::Nothing] {
        acting.open(with).unwrap();
        acting.check();
    }
}

#[test]
fn every_injury_is_told_and_can_be_healed() {
    // With an index that knows all.
    let base = |seed| {
        let (mut acting, _known) = used(seed, 70);
        acting.open(With::Index).unwrap();
        acting
    };
    let bases: Vec<_> = (0..6).map(base).collect();
    let first = rounds("SARDANA_STORE_SEED", 0);
    let mut ends = BTreeMap::<(&str, &str), (u64, usize)>::new();
    let injuries = rounds("SARDANA_STORE_INJURIES", 900);
    for seed in first..first + injuries {
        let (kind, end, lost) = injured(&bases[(seed % 6) as usize], seed);
        let (count, pieces) = ends.entry((kind, end)).or_default();
        *count += 1;
        *pieces += lost;
    }
    println!("injuries, and pieces lost by them: {ends:?}");
    let of = |kind: &str| -> u64 {
        let ends = ends.iter().filter(|((of, _), _)| *of == kind);
        ends.map(|(_, (count, _))| count).sum()
    };
    // Run again with one seed, it looks at one injury.
    let enough = |kind: &&str| of(kind) >= injuries / 15;
    assert!(
        injuries < 900 || KINDS.iter().all(enough),
        "each kind of file is hurt: {ends:?}"
    );
}
