//! Snapshots and the sums after them: taken at the boundary, kept in turn, let go of.

use super::*;
use crate::messages::{Joiners, Serve, Shares};
use crate::snapshot::Share;

/// A member at `rank` of two that took a snapshot at s1.
fn holder(rank: u32) -> Member {
    let mut worker = seated(rank);
    let _ = steps(&mut worker, rank, 0, Trailer::Snapshot);
    worker
}

fn workers(ids: &[u64]) -> Vec<WorkerId> {
    ids.iter().copied().map(WorkerId::new).collect()
}

fn serve(worker: &mut Member, joiners: &[u64], snapshot: Option<SnapshotId>, shares: Shares, from: u64) -> Vec<Command> {
    worker.handle(Event::Ordered(CoordinatorMessage::Serve(Serve {
        joiners: Joiners::Only(workers(joiners)),
        snapshot,
        shares,
        sums_from: s(from),
    })))
}

fn admit(joiners: &[u64]) -> Command {
    let joiners = workers(joiners);
    Command::Network(NetworkCommand::Admit { joiners })
}

const ALL: Command = Command::LetGo {
    shares: true,
    sums_before: None,
};

#[test]
fn a_trailer_that_asks_for_a_snapshot_has_shares_copied_before_the_next_step() {
    for rank in [0, 1] {
        let mut worker = seated(rank);
        let commands = steps(&mut worker, rank, 0, Trailer::Snapshot);
        // Its own share and the next rank's, so that each has two holders.
        let shares = [rank, 1 - rank].map(|index| Share { index, of: 2 }).to_vec();
        let at = |wanted: &Command| commands.iter().position(|command| command == wanted);
        let copied = at(&Command::Snapshot {
            snapshot: snapshot(1, 1),
            shares,
        });
        assert!(
            copied.is_some() && copied < at(&Command::Begin { step: s(1) }),
            "{commands:?}"
        );
    }
}

#[test]
fn the_only_member_copies_the_whole_state() {
    let mut worker = worker();
    form(&mut worker, single(1, 0));
    let _ = close_with(&mut worker, 1, Trailer::Snapshot);
    assert!(steps_alone(&mut worker, 0).contains(&Command::Snapshot {
        snapshot: snapshot(1, 1),
        shares: vec![Share::WHOLE],
    }));
    let once = |command: &Command| matches!(command, Command::Snapshot { .. });
    assert!(!steps_alone(&mut worker, 1).iter().any(once), "it is asked for once");
}

#[test]
fn a_holder_says_what_it_has_copied() {
    let mut worker = holder(1);
    let shares = vec![(1, hash(1)), (0, hash(0))];
    let told = |snapshot| Event::Snapshotted {
        snapshot,
        shares: shares.clone(),
    };
    assert_eq!(said(&worker.handle(told(snapshot(1, 1)))), ["snapshotted g1.1@s1 [1, 0]"]);
    assert_eq!(worker.handle(told(snapshot(1, 0))), [], "an older one is dropped");
}

#[test]
fn sums_after_a_snapshot_are_kept_in_turn() {
    // Two members: each sum has two keepers, so both keep all.
    let mut worker = holder(0);
    assert!(steps(&mut worker, 0, 1, Trailer::Continue).contains(&Command::KeepSum { step: s(1) }));
    // Four members: the one at place 1 keeps its own turn, and that of the one farthest from it.
    let mut worker = seated(1);
    let quarters = [(0, shards(0, 1)), (1, shards(1, 2)), (2, shards(2, 3)), (3, shards(3, 4))];
    let four = seat_of(2, 1, 0, [&quarters; 2]);
    halt(&mut worker, 2);
    form(&mut worker, four);
    let mut kept = Vec::new();
    for step in 0..8 {
        compute(&mut worker, 1);
        let trailer = if step == 0 { Trailer::Snapshot } else { Trailer::Continue };
        let _ = summed(&mut worker, 2, step, trailer);
        if apply(&mut worker, step).contains(&Command::KeepSum { step: s(step) }) {
            kept.push(step);
        }
    }
    assert_eq!(kept, [1, 3, 5], "a fourth is one too many");
}

#[test]
fn a_holder_without_room_for_another_sum_drops_everything_and_says_so() {
    let mut worker = holder(0);
    let _ = serve(&mut worker, &[7], Some(snapshot(1, 1)), Shares::Keep, 1);
    for step in 1..=u64::from(KEEPS) {
        assert!(steps(&mut worker, 0, step, Trailer::Continue).contains(&Command::KeepSum { step: s(step) }));
    }
    let commands = steps(&mut worker, 0, u64::from(KEEPS) + 1, Trailer::Continue);
    assert!(commands.contains(&ALL), "{commands:?}");
    assert!(said(&commands).contains(&"dropped g1.1@s1".to_owned()));
    let commands = steps(&mut worker, 0, u64::from(KEEPS) + 2, Trailer::Continue);
    assert!(!commands.contains(&ALL), "it is said once");
}

#[test]
fn a_snapshot_that_is_still_hashed_outlives_its_sums_for_it_may_become_a_checkpoint() {
    let mut worker = holder(0);
    for step in 1..=u64::from(KEEPS) {
        let _ = steps(&mut worker, 0, step, Trailer::Continue);
    }
    let sums = Command::LetGo {
        shares: false,
        sums_before: Some(s(u64::from(KEEPS) + 2)),
    };
    let mut later = u64::from(KEEPS) + 1..;
    let mut next = |worker: &mut Member| steps(worker, 0, later.next().unwrap(), Trailer::Continue);
    let commands = next(&mut worker);
    assert!(commands.contains(&sums) && !commands.contains(&ALL), "{commands:?}");
    let kept = |commands: &[Command]| commands.iter().any(|command| matches!(command, Command::KeepSum { .. }));
    let commands = next(&mut worker);
    assert!(!commands.contains(&sums) && !kept(&commands), "{commands:?}");
    let hashed = Event::Snapshotted {
        snapshot: snapshot(1, 1),
        shares: vec![(0, StateHash::of(b"0"))],
    };
    assert_eq!(said(&worker.handle(hashed)).len(), 1);
    // Once others may copy it, they must be told that they could not follow.
    let _ = serve(&mut worker, &[7], Some(snapshot(1, 1)), Shares::Keep, 1);
    let commands = next(&mut worker);
    assert!(
        commands.contains(&ALL) && said(&commands).contains(&"dropped g1.1@s1".to_owned()),
        "{commands:?}"
    );
}

#[test]
fn what_no_joiner_needs_any_more_makes_room() {
    let mut worker = holder(0);
    for step in 1..=u64::from(KEEPS) {
        let _ = steps(&mut worker, 0, step, Trailer::Continue);
    }
    let trimmed = |shares| Command::LetGo {
        shares,
        sums_before: Some(s(3)),
    };
    let this = Some(snapshot(1, 1));
    assert_eq!(serve(&mut worker, &[7], this, Shares::Keep, 3), [admit(&[7]), trimmed(false)]);
    assert_eq!(serve(&mut worker, &[7], this, Shares::Drop, 3), [admit(&[7]), trimmed(true)]);
    let next = u64::from(KEEPS) + 1;
    assert!(steps(&mut worker, 0, next, Trailer::Continue).contains(&Command::KeepSum { step: s(next) }));
    // Before a newer one is taken, and by an order for an older one, nothing goes.
    assert_eq!(
        serve(&mut worker, &[7], None, Shares::Keep, 0),
        [admit(&[7]), make_room(&[0, 1])]
    );
    assert_eq!(serve(&mut worker, &[7], Some(snapshot(1, 0)), Shares::Drop, 9), [admit(&[7])]);
    assert_eq!(
        serve(&mut worker, &[7], Some(snapshot(1, 4)), Shares::Keep, 4),
        [admit(&[7]), ALL],
        "it missed that one"
    );
}

fn make_room(shares: &[u32]) -> Command {
    let share = |&index| Share { index, of: 2 };
    Command::Network(NetworkCommand::MakeRoom {
        shares: shares.iter().map(share).collect(),
    })
}

#[test]
fn room_is_made_for_a_snapshot_to_come() {
    let mut worker = seated(1);
    assert_eq!(
        serve(&mut worker, &[7], None, Shares::Keep, 0),
        [admit(&[7]), make_room(&[1, 0])]
    );
    assert_eq!(said(&worker.handle(Event::RoomMade)), ["room made g1.1"]);
    assert_eq!(serve(&mut worker, &[7], None, Shares::Drop, 0), [admit(&[7]), make_room(&[])]);
    // No worker joins: it is for a checkpoint.
    assert_eq!(
        serve(&mut worker, &[], None, Shares::Keep, 0),
        [admit(&[]), make_room(&[1, 0])]
    );
    // A worker that has no seat takes no snapshot.
    let mut outside = super::worker();
    assert_eq!(serve(&mut outside, &[7], None, Shares::Keep, 0), [admit(&[7])]);
    assert_eq!(outside.handle(Event::RoomMade), []);
}

#[test]
fn a_snapshot_that_no_worker_joins_with_is_dropped_without_a_word() {
    let mut worker = holder(0);
    assert_eq!(
        serve(&mut worker, &[], Some(snapshot(1, 1)), Shares::Drop, 0),
        [admit(&[]), ALL]
    );
    let commands = steps(&mut worker, 0, 1, Trailer::Continue);
    assert!(!commands.contains(&Command::KeepSum { step: s(1) }));
    // As long as a checkpoint may be made of it, it is kept.
    let mut worker = holder(0);
    let commands = serve(&mut worker, &[], Some(snapshot(1, 1)), Shares::Keep, 1);
    assert!(!commands.contains(&ALL), "{commands:?}");
}

#[test]
fn a_snapshot_outlives_its_generation_but_not_a_gap_in_the_sums() {
    let mut worker = holder(0);
    halt(&mut worker, 2);
    form(&mut worker, pair(2, 0, 1));
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 2, 1, Trailer::Continue);
    assert!(apply(&mut worker, 1).contains(&Command::KeepSum { step: s(1) }));
    // It loads a state: it misses the sums in between.
    halt(&mut worker, 3);
    form(&mut worker, lacks_state(pair(3, 0, 7), 1));
    let _ = fetched(&mut worker, 3, 7);
    assert_eq!(said(&load(&mut worker, 7)), ["dropped g1.1@s1"]);
}
