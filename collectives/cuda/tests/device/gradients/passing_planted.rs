//! Faults of streams and copies where a running sum passes a device, planted one at a time, are found; and so is what is added wrongly, since its bits are others.
//! A device that is gone there never leaves a rank waiting.

use std::thread;

use sardana_twins::{Count, Planted, Session};

use super::super::twin::driver;
use super::ranks::{End, Ranks};

/// Whether a fault shows where one rank has a device, so that calls come in one order.
fn is_found(session: &Session<'_>, rank: usize) -> bool {
    let ranks = Ranks {
        with_devices: Some(rank),
        joined: false,
        ..Ranks::small(1)
    };
    let expected = ranks.expected();
    let ends = thread::spawn(move || ranks.run()).join();
    let is_right = |end: &End| matches!(end, Ok((sum, _)) if *sum == expected);
    !ends.is_ok_and(|ends| ends.iter().all(is_right)) || session.fault().is_some()
}

#[test]
fn faults_of_streams_and_copies_are_found_where_a_sum_passes() {
    let Some(driver) = driver() else { return };
    // Of several shards only the last is waited for: the stream of computing comes to it last. And where a sum has come up it is waited for before its memory
    // on the host is, which is waited for as well. That the host waits is not planted here: what has landed in a ring's slot is waited for by what carries it, and
    // again by the ring that reads it (what carries parts and waits for none is found by tests of rings in which several parts follow one another).
    for (what, count, covered) in [
        (Planted::ForgetStreamWait, Count::StreamWaits, [1, 3, 1]),
        (Planted::LaunchElsewhere, Count::Launches, [0; 3]),
        (Planted::CopyElsewhere, Count::Copies, [0; 3]),
        (Planted::CopyBeside, Count::Copies, [0; 3]),
    ] {
        let mut found_by_any = 0;
        for (rank, covered) in covered.into_iter().enumerate() {
            let session = driver.begin(1);
            assert!(!is_found(&session, rank), "nothing is found where nothing is planted");
            let calls = session.count(count);
            drop(session);
            let finds = |&call: &u64| {
                (0..10).any(|seed| {
                    let session = driver.begin(seed);
                    session.plant(what, call);
                    is_found(&session, rank)
                })
            };
            let found: Vec<u64> = (0..calls).filter(finds).collect();
            println!("{what:?} {rank} {found:?} of {calls}");
            found_by_any += found.len();
            assert_eq!(
                found.len() + covered,
                calls as usize,
                "{what:?} at rank {rank}: found at {found:?}"
            );
        }
        assert!(found_by_any > 0, "{what:?} is found nowhere");
    }
}

#[test]
fn a_device_that_is_gone_while_a_sum_passes_ends_its_rank_and_its_neighbours_never_hang() {
    let Some(driver) = driver() else { return };
    let ranks = Ranks::small(1);
    let calls = {
        let session = driver.begin(1);
        ranks.check();
        session.count(Count::Calls)
    };
    let expected = ranks.expected();
    let mut failed = 0;
    for call in (30..calls - 60).step_by(7) {
        let session = driver.begin(call);
        session.plant(Planted::DeviceGone, call);
        let ends = thread::spawn({
            let ranks = ranks.clone();
            move || ranks.run()
        });
        let ends = ends.join().expect("a rank says that its device is gone");
        for (sum, _) in ends.iter().flatten() {
            assert!(*sum == expected, "call {call}");
        }
        failed += u64::from(ends.iter().any(Result::is_err));
        drop(session);
    }
    assert!(failed > 5, "{failed}");
}

/// What is done wrongly to the gradients of all shards.
type Alter = fn(&mut Vec<Vec<u8>>);

#[test]
fn what_is_added_wrongly_has_other_bits() {
    let ranks = Ranks {
        tensors: vec![(2_000, false)],
        joined: false,
        ..Ranks::small(1)
    };
    let (gradients, expected) = (ranks.gradients(), ranks.expected());
    let wrong: [(&str, Alter); 6] = [
        ("a shard is added twice", |all| all.insert(2, all[1].clone())),
        ("a shard is forgotten", |all| drop(all.remove(3))),
        ("shards are added in another order", |all| all.swap(0, 4)),
        ("neighbours change places", |all| all.swap(2, 3)),
        ("a shard is taken from another place", |all| all[2].rotate_left(4)),
        ("a part of the sum is that of another step", |all| {
            let other = all[1].clone();
            all[5][..16].copy_from_slice(&other[..16]);
        }),
    ];
    for (what, alter) in wrong {
        let mut altered = gradients.clone();
        alter(&mut altered);
        assert!(ranks.sum_of(&altered) != expected, "{what}");
    }
}
