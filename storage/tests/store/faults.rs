//! The disk says no, at any call: nothing that was acknowledged is lost, then or at a power cut afterwards, and a full disk ends nothing.

use sardana_protocol::words::Step;
use sardana_storage::store::Finding;

use crate::acting::{Act, Acting, With, random_act};
use crate::crashes::{INDEX_STATES, Known, learn, model, opened, then};
use crate::cutting::{Unsynced, cut};
use crate::memory::{EIO, ENOSPC, Failure, Image};
use crate::random::{Random, rounds};

const FAILURES: [Failure; 8] = [
    Failure::Once(EIO),
    Failure::Once(ENOSPC),
    Failure::Forever(EIO),
    Failure::Forever(ENOSPC),
    Failure::Sync(EIO),
    Failure::Sync(ENOSPC),
    Failure::Short,
    Failure::Torn(ENOSPC),
];

const ACTS: u64 = 40;

/// Mends the disk, and opens the store anew, as its owner does.
fn mend(acting: &mut Acting) {
    acting.disk.mend();
    acting.open(With::Index).unwrap();
}

/// A run during which the disk fails once, or for some acts: whether it did.
fn run(seed: u64, at: u64, failure: Failure) -> bool {
    let again = format!("{failure:?} at call {at} of seed {seed}");
    let mut random = Random::new(seed);
    let mut acting = Acting::new();
    let mut known = Known::new();
    acting.disk.fail(at, failure);
    let mut mended = false;
    let mut failing = 0;
    for _ in 0..ACTS {
        let act = random_act(&mut random);
        let went = acting.act(&act);
        learn(&mut known, &acting.model);
        if mended || !acting.disk.failed() {
            assert!(went, "{act:?}; {again}");
            acting.check();
            continue;
        }
        let full = matches!(
            failure,
            Failure::Once(ENOSPC) | Failure::Forever(ENOSPC) | Failure::Torn(ENOSPC)
        );
        let harmless = full || failure == Failure::Short;
        let opening = matches!(act, Act::Reopen(_));
        assert!(went || !harmless || opening, "{act:?} ended the store; {again}");
        failing += 1;
        if went && failure == Failure::Forever(ENOSPC) && failing < 6 {
            acting.check();
            continue;
        }
        mended = true;
        if went && harmless {
            acting.disk.mend();
        } else {
            mend(&mut acting);
        }
        learn(&mut known, &acting.model);
        acting.check();
    }
    let failed = acting.disk.failed();
    if !mended {
        mend(&mut acting);
    }
    acting.check();
    acting.act(&Act::Sync);
    let log = acting.disk.log();
    for unsynced in [Unsynced::Dropped, Unsynced::Any] {
        let then = then(&log, &mut random);
        let image = cut(&Image::new(), &log, unsynced, &mut random);
        let told = INDEX_STATES[random.below(3) as usize];
        opened(&image, &then, told, model(&then.said, &known));
    }
    failed
}

#[test]
fn nothing_is_lost_when_the_disk_says_no_at_any_call() {
    let first = rounds("SARDANA_STORE_SEED", 0);
    let mut failed = 0;
    for seed in first..first + rounds("SARDANA_STORE_FAULTS", 3) {
        for failure in FAILURES {
            let mut at = 1;
            while run(seed, at, failure) {
                failed += 1;
                at += 1 + (at ^ seed) % 2;
            }
        }
    }
    println!("runs in which the disk failed: {failed}");
    assert!(failed > 1_000);
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_it_is_opened_anew() {
    for at in 1..4 {
        let mut acting = Acting::new();
        let put = Act::Put {
            pin: 0,
            pieces: (0..30).collect(),
        };
        assert!(acting.act(&put));
        acting.disk.fail(at, Failure::Sync(EIO));
        assert!(!acting.act(&Act::Sync));
        for act in [Act::Sync, put.clone(), Act::Heal(1), Act::Collect] {
            assert!(!acting.act(&act), "{act:?} went on");
        }
        let error = acting.store().sync().unwrap_err().to_string();
        assert!(
            error.contains("Input/output error") && error.contains("open the store anew"),
            "{error}"
        );
        assert_eq!(acting.store().usage().pieces, 0, "nothing was acknowledged");
        mend(&mut acting);
        assert!(acting.act(&put) && acting.act(&Act::Sync));
        acting.check();
    }
}

/// An index that failed in an earlier life is behind: what it says was committed may have been deleted and forgotten since.
#[test]
fn what_the_index_was_not_told_is_not_missed() {
    let mut acting = Acting::new();
    let pieces = vec![1, 2, 3];
    let commit = |step| Act::Commit {
        step,
        pieces: pieces.clone(),
    };
    let put = Act::Put {
        pin: 0,
        pieces: pieces.clone(),
    };
    for act in [
        put,
        Act::Sync,
        commit(1),
        commit(2),
        Act::Reopen(With::Failing(0)),
        Act::Delete(0),
    ] {
        assert!(acting.act(&act), "{act:?}");
    }
    assert_eq!(acting.store().forget(Step::new(9)).unwrap(), 1);
    acting.model.deleted.clear();
    for _ in 0..2 {
        acting.open(With::Index).unwrap();
        acting.check();
        let problems = acting
            .findings
            .iter()
            .filter(|finding| matches!(finding, Finding::Manifest { .. }));
        assert_eq!(problems.count(), 0, "{:?}", acting.findings);
    }
    assert_eq!(acting.findings, [], "the index is made anew once");
}
