//! A piece that was damaged and put again survives a power cut, also if the index still says that it is where it was.

use sardana_storage::store::{PieceHash, Recorded};

use crate::acting::{Act, Acting, With, piece, random_act};
use crate::crashes::{INDEX_STATES, Known, learn, model, opened, then, used};
use crate::cutting::{Unsynced, cut};
use crate::memory::{Image, MemoryDisk, Op};
use crate::random::{Random, rounds};

/// Hurts every copy of a piece.
fn hurt(image: &mut Image, bytes: &[u8]) {
    let mut hurt = 0;
    for (path, file) in image {
        let segment = path.to_str().unwrap().ends_with(".seg");
        let at: Vec<usize> = file
            .windows(bytes.len())
            .enumerate()
            .filter(|(_, part)| segment && *part == bytes)
            .map(|(at, _)| at)
            .collect();
        hurt += at.len();
        at.into_iter().for_each(|at| file[at + bytes.len() / 2] ^= 1);
    }
    assert!(hurt > 0);
}

/// A store that holds pieces, on a disk that has hurt one of them since: which.
fn damaged(seed: u64, random: &mut Random) -> Option<(Acting, Known, Image, u64)> {
    let (mut before, known) = used(seed, 50);
    // So that the index knows all.
    before.open(With::Index).unwrap();
    let long: Vec<u64> = before
        .model
        .held
        .iter()
        .copied()
        .filter(|number| piece(*number).len() >= 64)
        .collect();
    let number = *long.get(random.below(long.len().max(1) as u64) as usize)?;
    let mut image = before.disk.image();
    hurt(&mut image, &piece(number));
    let mut acting = Acting::on(MemoryDisk::with(&image), before.index.recorded(), before.model.clone());
    acting.open(With::Index).unwrap();
    assert!(acting.store().read(PieceHash::of(&piece(number))).is_err());
    acting.model.held.remove(&number);
    Some((acting, known, image, number))
}

#[test]
fn what_was_damaged_and_put_again_survives_a_power_cut_after_any_operation() {
    let first = rounds("SARDANA_STORE_SEED", 0);
    let mut images = 0_u64;
    for seed in first..first + rounds("SARDANA_STORE_CRASHES", 12) {
        let mut random = Random::new(seed ^ 0xDA4A6E);
        let Some((mut acting, mut known, base, number)) = damaged(seed, &mut random) else {
            continue;
        };
        let recorded = acting.index.recorded();
        let pieces = vec![number];
        let anew = if random.below(3) == 0 {
            vec![Act::Heal(number)]
        } else {
            vec![Act::Put { pin: 0, pieces }, Act::Sync]
        };
        for act in anew {
            assert!(acting.act(&act), "{act:?}");
        }
        acting.check();
        // Whatever comes next.
        let acknowledged = acting.disk.log().len();
        for _ in 0..random.below(6) {
            let act = random_act(&mut random);
            assert!(acting.act(&act), "{act:?}");
            learn(&mut known, &acting.model);
            acting.check();
        }
        let log = acting.disk.log();
        for end in acknowledged..=log.len() {
            let log = &log[..end];
            for unsynced in [Unsynced::Dropped, Unsynced::Kept, Unsynced::Any] {
                images += 1;
                let image = cut(&base, log, unsynced, &mut random);
                for told in INDEX_STATES {
                    let mut then = then(log, &mut random);
                    if !log.iter().any(|op| matches!(op, Op::Index(_))) {
                        then.index = Recorded::clone(&recorded);
                        then.older = Recorded::clone(&recorded);
                    }
                    opened(&image, &then, told, model(&then.said, &known));
                }
            }
        }
    }
    println!("power cuts after a damaged piece was put again: {images}");
    assert!(images > 50);
}
