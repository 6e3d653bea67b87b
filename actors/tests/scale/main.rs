//! What a coordinator says, and is told, grows with the number of workers and no faster: counted over its machine, among workers that are
//! their own machines and answer at once.

#[path = "../../benches/scale/crowd.rs"]
mod crowd;
#[path = "../../benches/scale/phases.rs"]
mod phases;
#[path = "../../benches/scale/worker.rs"]
mod worker;

use phases::Phase;

/// Most messages for each worker in a phase, both ways together, heartbeats not counted.
const MESSAGES: u64 = 8;

/// In a storm a restore, a join, a checkpoint and a halt come together; those who come one after the other come in two generations, and each
/// tick that some of them come in is told to those who hold the snapshot.
const STORM_MESSAGES: u64 = 3 * MESSAGES;

fn linear(phase: Phase, most: u64) {
    let measure = |workers| {
        phase
            .measure(workers)
            .unwrap_or_else(|error| panic!("{workers} workers: {error}"))
    };
    let (few, many) = (measure(200), measure(1_000));
    for (workers, cost) in [(200, &few), (1_000, &many)] {
        assert!(cost.messages > 0, "nothing was said");
        assert!(
            cost.messages <= most * workers,
            "{} messages with {workers} workers: expected at most {most} each",
            cost.messages
        );
    }
    assert!(
        many.bytes <= 5 * few.bytes * 3 / 2,
        "{} bytes with 200 workers, {} with 1,000: expected no more than five times as many, but for a half",
        few.bytes,
        many.bytes
    );
}

#[test]
fn a_join_of_many() {
    linear(Phase::Join, MESSAGES);
}

#[test]
fn a_join_of_many_who_come_while_others_copy() {
    linear(Phase::Trickle, STORM_MESSAGES);
}

#[test]
fn a_restore_by_many() {
    linear(Phase::Restore, MESSAGES);
}

#[test]
fn a_checkpoint_of_many() {
    linear(Phase::Commit, MESSAGES);
}

#[test]
fn all_of_them_at_once() {
    linear(Phase::Storm, STORM_MESSAGES);
}

#[test]
fn heartbeats_alone_are_not_answered() {
    let cost = Phase::Idle.measure(200).unwrap_or_else(|error| panic!("{error}"));
    assert!(cost.events > 200, "nobody has beaten");
    assert_eq!(cost.messages, 0);
}
