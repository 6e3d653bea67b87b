//! What a coordinator says, and is told, grows with the number of workers and no faster: counted over its machine, among workers that are
//! their own machines and answer at once.

#[path = "../../benches/scale/crowd.rs"]
mod crowd;
#[path = "../../benches/scale/job.rs"]
mod job;
#[path = "../../benches/scale/phases.rs"]
mod phases;
#[path = "../../benches/scale/worker.rs"]
mod worker;

use phases::Phase;

/// Most messages for each worker in a phase, both ways together, heartbeats not counted: what they are, and one or two more.
const LOSE: u64 = 5;
const JOIN: u64 = 8;
const RESTORE: u64 = 3;
const COMMIT: u64 = 5;

/// In a storm a restore, a join, a checkpoint and a halt come together; workers that come one after the other come in two generations, and
/// each tick at which some come in is told to the holders of the snapshot, which are as many of 200 workers as of 1,000. Of the holders a tenth end, too: no share is lost with
/// them, and who copies hears of each.
const STORM_OF_FEW: u64 = 23;
const STORM: u64 = 20;

fn linear(phase: Phase, of_few: u64, of_many: u64) {
    let measure = |workers| {
        phase
            .measure(workers)
            .unwrap_or_else(|error| panic!("{workers} workers: {error}"))
    };
    let (few, many) = (measure(200), measure(1_000));
    for (workers, cost, most) in [(200, &few, of_few), (1_000, &many, of_many)] {
        assert!(cost.messages > 0, "nothing was said");
        println!("{} messages with {workers} workers", cost.messages);
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
fn a_loss_of_one_of_many() {
    linear(Phase::Lose, LOSE, LOSE);
}

#[test]
fn a_join_of_many() {
    linear(Phase::Join, JOIN, JOIN);
}

#[test]
fn a_join_of_many_who_come_while_others_copy() {
    linear(Phase::Trickle, STORM_OF_FEW, STORM);
}

#[test]
fn a_restore_by_many() {
    linear(Phase::Restore, RESTORE, RESTORE);
}

#[test]
fn a_checkpoint_of_many() {
    linear(Phase::Commit, COMMIT, COMMIT);
}

#[test]
fn all_of_them_at_once() {
    linear(Phase::Storm, STORM_OF_FEW, STORM);
}

#[test]
fn heartbeats_alone_are_not_answered() {
    let cost = Phase::Idle.measure(200).unwrap_or_else(|error| panic!("{error}"));
    assert!(cost.events > 200, "nobody has beaten");
    assert_eq!(cost.messages, 0);
}
