//! Faults of streams and copies, planted one at a time, are found: by the twin driver, or by other bits than the ordered sum's. A check that finds none of them
//! would find nothing.

use sardana_cuda::staged::Place::{Device as Kept, Spilled};
use sardana_cuda::staged::{Place, Step};
use sardana_twins::{Count, Planted, Session};

use super::cases::{Case, Wrong};
use super::twin::driver;

/// Orders of streams in which each fault is looked for.
const SEEDS: u64 = 40;

fn case(ranks: &[&[Place]]) -> Case {
    Case {
        ranks: ranks.iter().map(|places| places.to_vec()).collect(),
        elements: 60,
        chunk: 25,
        slots: 2,
        seed: 7,
    }
}

/// Two ranks, each with a shard on the device and a spilled one.
fn two_ranks() -> Case {
    case(&[&[Kept, Spilled], &[Spilled, Kept]])
}

/// Whether a run with a fault gives itself away: the driver says so, or a rank has other bits.
fn is_found(session: &Session<'_>, case: &Case, alter: impl Fn(usize, &mut Vec<Step>)) -> bool {
    let shards = case.near();
    let expected = case.expected(&shards);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let given = case.run(&shards, alter);
    let differs = given.is_ok_and(|given| given.iter().any(|rank| bits(&rank.finished) != bits(&expected)));
    differs || session.fault().is_some()
}

/// Plants a fault at each call of its kind in turn. Returns at which of them a seed finds it, and how many there are.
fn found(case: &Case, what: Planted, count: Count) -> Option<(Vec<u64>, u64)> {
    let driver = driver()?;
    let session = driver.begin(1);
    assert!(
        !is_found(&session, case, |_, _| {}),
        "nothing is found where nothing is planted"
    );
    let calls = session.count(count);
    drop(session);
    let finds = |&call: &u64| {
        (0..SEEDS).any(|seed| {
            let session = driver.begin(seed);
            session.plant(what, call);
            is_found(&session, case, |_, _| {})
        })
    };
    Some(((0..calls).filter(finds).collect(), calls))
}

#[test]
fn a_stream_that_does_not_wait_for_the_other_is_found() {
    // The calls that nothing else makes up for: where a plan waits for what the host has waited for, or for what an earlier wait covers, it makes no difference.
    let cases: [(&[&[Place]], &[u64]); 2] = [
        // The first gradient; room for the finished sum, before it comes; the sum that came back, before it is used.
        (&[&[Kept], &[Kept]], &[0, 2, 6]),
        // A gradient before it is spilled, and before it is freed; gradients that were added, before they are freed.
        (&[&[Kept, Spilled]], &[0, 1, 4]),
    ];
    for (ranks, needed) in cases {
        let Some((found, calls)) = found(&case(ranks), Planted::ForgetStreamWait, Count::StreamWaits) else {
            return;
        };
        assert!(
            needed.iter().all(|call| found.contains(call)),
            "{ranks:?}: found at {found:?} of {calls}"
        );
    }
}

#[test]
fn memory_of_the_host_that_is_used_too_early_is_found() {
    let Some((found, calls)) = found(&two_ranks(), Planted::ForgetHostWait, Count::HostWaits) else {
        return;
    };
    assert!(calls >= 4 && found.len() as u64 == calls, "found at {found:?} of {calls}");
}

#[test]
fn a_kernel_on_the_wrong_stream_is_found() {
    let Some((found, calls)) = found(&two_ranks(), Planted::LaunchElsewhere, Count::Launches) else {
        return;
    };
    assert!(calls > 8 && found.len() as u64 == calls, "found at {found:?} of {calls}");
}

#[test]
fn a_copy_on_the_wrong_stream_is_found() {
    let Some((found, calls)) = found(&two_ranks(), Planted::CopyElsewhere, Count::Copies) else {
        return;
    };
    assert!(calls > 8 && found.len() as u64 == calls, "found at {found:?} of {calls}");
}

#[test]
fn memory_that_is_freed_before_its_use_is_found() {
    // What is freed once the host has the sum may be freed at once.
    let needed = [0, 1, 2, 4, 5, 6];
    let Some((found, calls)) = found(&two_ranks(), Planted::FreeEarly, Count::Frees) else {
        return;
    };
    assert!(
        needed.iter().all(|call| found.contains(call)),
        "found at {found:?} of {calls}"
    );
}

/// The place of the first step that is this one, among those of the last rank.
fn place(steps: &[Step], is: impl Fn(&Step) -> bool) -> usize {
    steps.iter().position(is).expect("the plan has such a step")
}

#[test]
fn plans_that_are_wrong_are_found() {
    let Some(driver) = driver() else { return };
    let wrong: [(&str, Wrong); 7] = [
        ("a shard is added twice", |steps| {
            let at = place(steps, |step| matches!(step, Step::Add { .. }));
            steps.insert(at, steps[at].clone());
        }),
        ("a spilled shard is added twice", |steps| {
            let at = place(steps, |step| matches!(step, Step::AddSpilled { .. }));
            steps.insert(at, steps[at].clone());
        }),
        ("shards are added in another order", |steps| {
            let at = place(steps, |step| matches!(step, Step::AddSpilled { .. }));
            let add = place(steps, |step| matches!(step, Step::Add { .. }));
            steps.swap(at, add);
        }),
        ("a chunk of a shard is taken from another place", |steps| {
            let at = place(steps, |step| matches!(step, Step::AddSpilled { .. }));
            if let Step::AddSpilled { range, .. } = &mut steps[at] {
                *range = range.start + 1..range.end + 1;
            }
        }),
        ("a chunk of the sum is put in another place", |steps| {
            let at = place(steps, |step| matches!(step, Step::Raise { .. }));
            if let Step::Raise { range, .. } = &mut steps[at] {
                *range = range.start + 1..range.end + 1;
            }
        }),
        ("a shard is forgotten", |steps| {
            let at = place(steps, |step| matches!(step, Step::Add { .. }));
            steps.remove(at);
        }),
        ("a slot is used again before what is in it is delivered", |steps| {
            let at = place(steps, |step| matches!(step, Step::Deliver { .. }));
            let after = at + place(&steps[at..], |step| matches!(step, Step::Lower { .. }));
            let deliver = steps.remove(at);
            steps.insert(after, deliver);
        }),
    ];
    let case = two_ranks();
    for (what, alter) in wrong {
        let session = driver.begin(11);
        let alter = |rank, steps: &mut Vec<Step>| {
            if rank == 1 {
                alter(steps)
            }
        };
        assert!(is_found(&session, &case, alter), "{what}");
    }
}
