//! The power is cut after any operation: for each, images of what a disk may have then are opened and compared with what was
//! acknowledged by then.

use std::collections::BTreeMap;

use sardana_storage::store::{Manifest, ManifestKey, PieceHash, Recorded};

use crate::acting::{Acting, Model, PIECES, With, piece, random_act};
use crate::cutting::{Unsynced, cut};
use crate::memory::{Image, MemoryDisk, Op, Said};
use crate::random::{Random, rounds};

/// What was acknowledged at the end of a log, and what the index said then and sometime before.
pub(crate) struct Then {
    pub(crate) said: Said,
    pub(crate) index: Recorded,
    pub(crate) older: Recorded,
}

pub(crate) fn then(log: &[Op], random: &mut Random) -> Then {
    let said = log.iter().rev().find_map(|op| {
        if let Op::Said(said) = op {
            Some(Said::clone(said))
        } else {
            None
        }
    });
    let indices = log
        .iter()
        .filter_map(|op| if let Op::Index(recorded) = op { Some(recorded) } else { None });
    let indices: Vec<_> = indices.collect();
    let older = indices.get(random.below(indices.len() as u64) as usize);
    Then {
        said: said.unwrap_or_default(),
        index: indices.last().map(|recorded| Recorded::clone(recorded)).unwrap_or_default(),
        older: older.map(|recorded| Recorded::clone(recorded)).unwrap_or_default(),
    }
}

/// All manifests that were ever made, by key.
pub(crate) type Known = BTreeMap<ManifestKey, Manifest>;

/// Remembers what `model` has.
pub(crate) fn learn(known: &mut Known, model: &Model) {
    let all = model.manifests.iter().chain(&model.unclear);
    known.extend(all.map(|(key, (manifest, _))| (*key, manifest.clone())));
}

fn numbers() -> BTreeMap<PieceHash, u64> {
    (0..PIECES).map(|number| (PieceHash::of(&piece(number)), number)).collect()
}

/// What must be there after a cut, as a model to go on from.
pub(crate) fn model(said: &Said, known: &Known) -> Model {
    let numbers = numbers();
    let of = |manifest: &Manifest| manifest.pieces().iter().map(|hash| numbers[hash]).collect();
    let with_pieces = |key: &ManifestKey| (*key, (known[key].clone(), of(&known[key])));
    let clear = |key: &&ManifestKey| !said.committed.contains(key) && !said.deleted.contains(key);
    Model {
        held: said.pieces.iter().map(|hash| numbers[hash]).collect(),
        manifests: said.committed.iter().map(with_pieces).collect(),
        deleted: said.deleted.clone(),
        // What was being committed or deleted in that moment.
        unclear: known.keys().filter(clear).map(with_pieces).collect(),
        ..Model::default()
    }
}

/// With which index an image is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexState {
    Newest,
    Older,
    Nothing,
}

pub(crate) const INDEX_STATES: [IndexState; 3] = [IndexState::Newest, IndexState::Older, IndexState::Nothing];
const UNSYNCED: [Unsynced; 3] = [Unsynced::Kept, Unsynced::Dropped, Unsynced::Any];

pub(crate) fn opened(image: &Image, then: &Then, index: IndexState, model: Model) -> Acting {
    let recorded = match index {
        IndexState::Newest => then.index.clone(),
        IndexState::Older => then.older.clone(),
        IndexState::Nothing => Recorded::default(),
    };
    let mut acting = Acting::on(MemoryDisk::with(image), recorded, model);
    let with = if matches!(index, IndexState::Nothing) {
        With::Nothing
    } else {
        With::Index
    };
    acting.open(with).unwrap();
    acting.check();
    acting
}

/// A run of a store, from its making on.
fn history(seed: u64, acts: u64) -> (Vec<Op>, Known) {
    let (acting, known) = used(seed, acts);
    (acting.disk.log(), known)
}

/// A store that has done something, and all manifests that it ever had.
pub(crate) fn used(seed: u64, acts: u64) -> (Acting, Known) {
    let mut random = Random::new(seed);
    let mut acting = Acting::new();
    let mut known = Known::new();
    for _ in 0..acts {
        let act = random_act(&mut random);
        assert!(acting.act(&act), "{act:?}");
        learn(&mut known, &acting.model);
        acting.check();
    }
    (acting, known)
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_after_any_operation() {
    let first = rounds("SARDANA_STORE_SEED", 0);
    let (mut images, mut nested) = (0_u64, 0_u64);
    for seed in first..first + rounds("SARDANA_STORE_CRASHES", 8) {
        let (log, known) = history(seed, 60);
        let mut random = Random::new(seed ^ 0xC0FFEE);
        for end in 0..=log.len() {
            let log = &log[..end];
            let unsynced = UNSYNCED[random.below(3) as usize];
            let told = INDEX_STATES[random.below(3) as usize];
            for (unsynced, told) in [(Unsynced::Any, told), (unsynced, IndexState::Newest)] {
                let then = then(log, &mut random);
                let image = cut(&Image::new(), log, unsynced, &mut random);
                let acting = opened(&image, &then, told, model(&then.said, &known));
                images += 1;
                if random.below(8) == 0 {
                    again(acting, &image, &then, &known, &mut random);
                    nested += 1;
                }
            }
        }
    }
    println!("power cuts: {images}, of which {nested} were followed by work and another one");
    assert!(nested > 0);
}

/// The power is cut once more, in the middle of the opening or shortly after.
fn again(mut acting: Acting, base: &Image, before: &Then, known: &Known, random: &mut Random) {
    let mut known = known.clone();
    let beginning = acting.disk.log().len() as u64;
    for _ in 0..random.below(8) {
        let act = random_act(random);
        assert!(acting.act(&act), "{act:?}");
        learn(&mut known, &acting.model);
        acting.check();
    }
    let log = acting.disk.log();
    let within = if random.below(2) == 0 { beginning } else { log.len() as u64 };
    let log = &log[..random.below(within + 1) as usize];
    let mut then = then(log, random);
    if !log.iter().any(|op| matches!(op, Op::Said(_))) {
        then.said = before.said.clone();
    }
    if !log.iter().any(|op| matches!(op, Op::Index(_))) {
        then.index = before.index.clone();
        then.older = before.older.clone();
    }
    let image = cut(base, log, Unsynced::Any, random);
    opened(&image, &then, IndexState::Nothing, model(&then.said, &known));
    opened(&image, &then, IndexState::Newest, model(&then.said, &known));
}
