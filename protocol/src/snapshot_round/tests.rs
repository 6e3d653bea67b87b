//! The machine alone: what it is told, and what it wants done.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Command, Facts, SnapshotRound};
use crate::job::Order;
use crate::limits::{
    CATCH_UP_PATIENCE, COPY_STILL, LAG_GRACE, LAST_SNAPSHOT_PATIENCE, MAX_COPY_ATTEMPTS, RESEND, SNAPSHOT_PATIENCE,
};
use crate::messages::{CoordinatorMessage, Joiners, MemberAddress, Shares};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Step, WorkerId};

const JOINER: u64 = 3;

fn worker(number: u64) -> WorkerId {
    WorkerId::new(number)
}

fn generation() -> Generation {
    Generation::new(Incarnation::new(1), 1)
}

/// Two members train, and may take in joiners.
fn facts(now: Duration) -> Facts {
    let member = |number| MemberAddress {
        worker: worker(number),
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
    };
    Facts {
        now,
        formed: generation(),
        holders: [1, 2].map(member).to_vec(),
        absent: BTreeSet::new(),
        closer: Some(worker(2)),
        reached: Step::new(5),
        seats: 2,
        trains_on: true,
        takes_in: true,
        save_due: false,
        is_last: false,
        last_to_save: false,
        resend_patience: RESEND,
        catch_up_patience: CATCH_UP_PATIENCE,
        switching: BTreeSet::new(),
        leaving: BTreeSet::new(),
        cooling: BTreeSet::new(),
    }
}

/// What is to be done, in short.
fn commands(round: &mut SnapshotRound) -> Vec<String> {
    let say = |command: Command| match command {
        Command::Send { worker, message } => format!("{} to w{}", message_name(&message), worker.get()),
        Command::SendToAll(serve) => {
            assert_eq!((serve.joiners, serve.shares), (Joiners::Only(vec![]), Shares::Drop));
            "drop it, all".to_owned()
        }
        Command::Whole(taken) => format!("whole at {}", taken.id.step),
        Command::Disagree { step, found } => format!("disagree about share {} at {step}", found.share),
        Command::CaughtUp { worker, step } => format!("w{} caught up at {step}", worker.get()),
        Command::JoinsAnew { worker, .. } => format!("w{} joins anew", worker.get()),
        Command::Unplan { worker } => format!("unplan w{}", worker.get()),
        Command::Hold { worker } => format!("hold w{}", worker.get()),
    };
    round.take_commands().into_iter().map(say).collect()
}

fn message_name(message: &CoordinatorMessage) -> &'static str {
    message.into()
}

/// A machine that a worker has come to as a joiner.
fn joined() -> SnapshotRound {
    let mut round = SnapshotRound::new(false);
    round.joins(worker(JOINER), Step::ZERO);
    round
}

fn snapshot(step: u64) -> SnapshotId {
    SnapshotId {
        generation: generation(),
        step: Step::new(step),
    }
}

/// A worker joins, and the snapshot at `step` is taken for it.
fn serving(round: &mut SnapshotRound, step: u64, now: Duration) -> (SnapshotId, Vec<String>) {
    let facts = facts(now);
    round.look(&facts);
    assert_eq!(commands(round), ["Serve to w1", "Serve to w2"]);
    assert!(!round.room_made(worker(1), generation(), generation()));
    assert!(round.room_made(worker(2), generation(), generation()));
    round.ask(&facts);
    assert_eq!(commands(round), ["CloseWith to w2"]);
    let id = snapshot(step);
    round.snapshotted(worker(1), id, shares(), &facts);
    assert_eq!(commands(round), [""; 0], "the other holder is awaited");
    round.snapshotted(worker(2), id, shares(), &facts);
    (id, commands(round))
}

#[test]
fn a_joiner_is_served_follows_and_is_let_go() {
    let mut round = joined();
    let (id, told) = serving(&mut round, 5, Duration::ZERO);
    assert_eq!(told, ["whole at s5", "Serve to w1", "Serve to w2", "Copy to w3"]);
    round.caught_up(worker(JOINER), id, Step::new(7));
    assert_eq!(commands(&mut round), ["w3 caught up at s7"]);
    assert!(round.has_caught_up(worker(JOINER)));
    assert_eq!(round.counts().caught_up, 1);
    round.joins_no_more(worker(JOINER));
    assert_eq!(round.counts().caught_up, 0);
    assert!(round.is_to_be_looked_at(false));
    round.look(&facts(Duration::ZERO));
    assert_eq!(commands(&mut round), ["drop it, all"]);
    assert_eq!(round.stage(), "idle");
}

#[test]
fn an_order_that_is_not_answered_is_said_again() {
    let mut round = joined();
    let (id, _) = serving(&mut round, 5, Duration::ZERO);
    round.tend(&facts(RESEND - Duration::from_millis(1)));
    assert_eq!(commands(&mut round), [""; 0]);
    round.tend(&facts(RESEND));
    assert_eq!(commands(&mut round), ["Copy to w3"]);
    round.copy_answered(worker(JOINER), id);
    round.tend(&facts(RESEND * 2));
    assert_eq!(commands(&mut round), [""; 0]);
}

#[test]
fn a_joiner_that_moves_nothing_for_long_is_told_again_and_one_that_moves_or_has_the_state_is_not() {
    let mut round = joined();
    let (id, _) = serving(&mut round, 5, Duration::ZERO);
    round.copy_answered(worker(JOINER), id);
    round.tend(&facts(Duration::ZERO));
    commands(&mut round);
    let still = RESEND * COPY_STILL;
    round.stands_at(worker(JOINER), (Step::ZERO, 7), still / 2);
    for now in [still, still * 3 / 2 - Duration::from_millis(1)] {
        round.stands_at(worker(JOINER), (Step::ZERO, 7), now);
        round.tend(&facts(now));
        assert_eq!(commands(&mut round), [""; 0], "it has moved since");
    }
    round.tend(&facts(still * 3 / 2));
    assert_eq!(commands(&mut round), ["Copy to w3"]);
    round.copy_answered(worker(JOINER), id);
    round.tend(&facts(still * 2));
    assert_eq!(commands(&mut round), [""; 0], "it was told a moment ago");
    round.stands_at(worker(JOINER), (Step::new(5), 7), still * 2);
    round.tend(&facts(still * 2));
    commands(&mut round);
    round.tend(&facts(still * 9));
    assert_eq!(commands(&mut round), [""; 0], "it has the state");
}

#[test]
fn a_joiner_that_lags_for_long_is_waited_for_and_one_that_waits_for_a_long_step_is_not() {
    let mut round = joined();
    let (id, _) = serving(&mut round, 5, Duration::ZERO);
    round.copy_answered(worker(JOINER), id);
    assert!(round.stands_at(worker(JOINER), (Step::new(5), 0), Duration::ZERO));
    round.tend(&facts(Duration::ZERO));
    assert_eq!(commands(&mut round), ["Serve to w1", "Serve to w2"]);
    round.tend(&facts(CATCH_UP_PATIENCE * 9));
    assert_eq!(commands(&mut round), [""; 0], "the members have not come further either");
    let reached = |now| Facts {
        reached: Step::new(6),
        ..facts(now)
    };
    round.tend(&reached(CATCH_UP_PATIENCE - Duration::from_millis(1)));
    assert_eq!(commands(&mut round), [""; 0]);
    round.tend(&reached(CATCH_UP_PATIENCE));
    assert_eq!(commands(&mut round), ["hold w3"]);
}

#[test]
fn a_joiner_that_copies_in_vain_time_and_again_is_waited_for() {
    let mut round = joined();
    for attempt in 1..=MAX_COPY_ATTEMPTS {
        serving(&mut round, u64::from(attempt), Duration::ZERO);
        let now = facts(Duration::ZERO);
        round.gone(worker(1), &now);
        assert_eq!(commands(&mut round), ["Copy to w3"], "the other holder has every share");
        round.gone(worker(2), &now);
        let mut expected = vec!["unplan w3", "w3 joins anew"];
        expected.extend((attempt == MAX_COPY_ATTEMPTS).then_some("hold w3"));
        expected.push("drop it, all");
        assert_eq!(commands(&mut round), expected);
    }
}

fn shares() -> Vec<(u32, StateHash)> {
    vec![(0, StateHash::of(&[0])), (1, StateHash::of(&[1]))]
}

/// Two holders: one has told all that the other has as well, and the other tells nothing.
fn one_has_told(round: &mut SnapshotRound, now: Duration) -> SnapshotId {
    let id = snapshot(5);
    one_has_told_of(round, id, &facts(now));
    id
}

fn one_has_told_of(round: &mut SnapshotRound, id: SnapshotId, facts: &Facts) {
    round.snapshotted(worker(1), id, shares(), facts);
    assert_eq!(commands(round), [""; 0]);
}

#[test]
fn a_holder_that_never_tells_what_it_has_copied_is_done_without_after_it_was_asked_again() {
    let mut round = SnapshotRound::new(true);
    one_has_told(&mut round, Duration::ZERO);
    round.tend(&facts(SNAPSHOT_PATIENCE));
    assert_eq!(
        commands(&mut round),
        ["Serve to w1", "Serve to w2"],
        "all are asked once more"
    );
    one_has_told(&mut round, SNAPSHOT_PATIENCE);
    let late = SNAPSHOT_PATIENCE * 3;
    round.tend(&facts(late - Duration::from_millis(1)));
    assert_eq!(commands(&mut round), [""; 0]);
    round.tend(&facts(late));
    assert_eq!(commands(&mut round)[0], "whole at s5");
}

#[test]
fn a_holder_that_says_for_ever_that_it_hashes_is_done_without() {
    let mut round = SnapshotRound::new(true);
    let id = one_has_told(&mut round, Duration::ZERO);
    let mut now = Duration::ZERO;
    while now < LAG_GRACE {
        round.tend(&facts(now));
        assert_eq!(commands(&mut round), [""; 0], "at {now:?}");
        round.hashing(worker(2), id, &facts(now));
        now += SNAPSHOT_PATIENCE / 2;
    }
    round.tend(&facts(now));
    assert_eq!(commands(&mut round)[0], "whole at s5");
    // What a holder says that has told all it has says nothing of the other.
    let mut round = SnapshotRound::new(true);
    let id = one_has_told(&mut round, Duration::ZERO);
    round.hashing(worker(1), id, &facts(SNAPSHOT_PATIENCE / 2));
    round.snapshotted(worker(1), id, shares(), &facts(SNAPSHOT_PATIENCE / 2));
    round.tend(&facts(SNAPSHOT_PATIENCE));
    assert_eq!(commands(&mut round), ["Serve to w1", "Serve to w2"], "it is late");
}

#[test]
fn at_the_end_of_a_job_a_holder_that_tells_nothing_does_not_keep_the_last_state_from_being_saved() {
    let mut round = SnapshotRound::new(true);
    one_has_told(&mut round, Duration::ZERO);
    let last = |now| Facts {
        trains_on: false,
        is_last: true,
        last_to_save: true,
        ..facts(now)
    };
    round.tend(&last(LAST_SNAPSHOT_PATIENCE - Duration::from_millis(1)));
    assert_eq!(commands(&mut round), [""; 0]);
    round.tend(&last(LAST_SNAPSHOT_PATIENCE));
    assert_eq!(commands(&mut round)[0], "whole at s5");
    // What no other holder has told is waited for: without it there is no state.
    let mut round = SnapshotRound::new(true);
    round.snapshotted(worker(1), snapshot(5), vec![(0, StateHash::of(&[0]))], &facts(Duration::ZERO));
    round.tend(&last(LAST_SNAPSHOT_PATIENCE));
    assert_eq!(commands(&mut round), [""; 0]);
}

#[test]
fn what_a_member_has_copied_of_the_last_state_counts_before_all_members_are_ready() {
    let id = snapshot(5);
    let mut round = SnapshotRound::new(true);
    one_has_told(&mut round, Duration::ZERO);
    let facts = facts(Duration::ZERO);
    round.goes_on_after_a_halt(&facts);
    assert_eq!(commands(&mut round), [""; 0], "it is of the generation that begins");
    round.snapshotted(worker(2), id, shares(), &facts);
    assert_eq!(commands(&mut round)[0], "whole at s5");
    // Of the generation before it is never whole.
    one_has_told_of(&mut round, snapshot(6), &facts);
    let next = Facts {
        formed: generation().next(),
        ..facts
    };
    round.goes_on_after_a_halt(&next);
    assert_eq!(commands(&mut round), ["drop it, all"]);
}

#[test]
fn no_snapshot_is_taken_for_joiners_that_cannot_come() {
    let mut round = joined();
    let kept_out: [fn(&mut Facts); 3] = [
        |facts| facts.seats = 0,
        |facts| facts.leaving = [worker(JOINER)].into(),
        |facts| facts.cooling = [worker(JOINER)].into(),
    ];
    for keep_out in kept_out {
        let mut facts = facts(Duration::ZERO);
        keep_out(&mut facts);
        round.look(&facts);
        assert_eq!(commands(&mut round), [""; 0]);
        assert_eq!(round.stage(), "idle");
    }
}

#[test]
fn holders_that_have_different_bytes_are_named() {
    let mut round = SnapshotRound::new(true);
    let facts = facts(Duration::ZERO);
    for (holder, byte) in [(1, 0), (2, 9)] {
        round.snapshotted(worker(holder), snapshot(4), vec![(0, StateHash::of(&[byte]))], &facts);
    }
    assert_eq!(commands(&mut round), ["disagree about share 0 at s4"]);
}

#[test]
fn in_fast_order_a_state_that_a_joiner_had_before_is_not_what_it_copies() {
    let at = |order, steps: [u64; 3]| {
        let mut round = SnapshotRound::new(false).adding_in(order);
        round.joins(worker(JOINER), Step::new(steps[0]));
        serving(&mut round, 5, Duration::ZERO);
        steps.map(|step| {
            round.stands_at(worker(JOINER), (Step::new(step), 0), Duration::ZERO);
            round.has_loaded(worker(JOINER))
        })
    };
    assert_eq!(at(Order::Exact, [7, 7, 8]), [true; 3], "it has the job's state");
    assert_eq!(
        at(Order::Fast, [7, 7, 5]),
        [false, false, true],
        "until it has gone back to the snapshot's"
    );
    assert_eq!(
        at(Order::Fast, [5, 5, 6]),
        [false, false, true],
        "until it goes on from there"
    );
    assert_eq!(at(Order::Fast, [0, 0, 5]), [false, false, true]);
}

#[test]
fn what_a_joiner_says_of_an_earlier_snapshot_changes_no_plan() {
    let mut round = joined();
    let (id, _) = serving(&mut round, 5, Duration::ZERO);
    round.caught_up(worker(JOINER), id, Step::new(7));
    commands(&mut round);
    round.copy_failed(worker(JOINER), snapshot(4), String::new());
    assert_eq!(commands(&mut round), [""; 0]);
    assert!(round.has_caught_up(worker(JOINER)));
    round.copy_failed(worker(JOINER), id, String::new());
    assert_eq!(commands(&mut round), ["unplan w3", "w3 joins anew"]);
}
