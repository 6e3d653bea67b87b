//! Shares that are written to depots, and checkpoints that are loaded.

use super::*;
use crate::checkpoint::{DepotAddress, DepotId, ManifestId, ManifestKey, PieceHash};
use crate::limits::SAVED_PIECES;
use crate::member::SavedShare;
use crate::messages::{Joiners, Last, Peer, Restore, Save, Serve, Shares};
use crate::state::StateSize;

fn depots() -> Vec<DepotAddress> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
    vec![DepotAddress {
        depot: DepotId::new(7),
        certified: 1,
        address,
    }]
}

fn order(snapshot: SnapshotId, attempt: u32) -> Save {
    Save {
        snapshot,
        attempt,
        shares: vec![0],
        depots: depots(),
        replicas: 1,
    }
}

fn save(worker: &mut Member, save: &Save) -> Vec<Command> {
    worker.handle(Event::Ordered(CoordinatorMessage::Save(Box::new(save.clone()))))
}

/// A worker of two that holds its shares of the state at s1.
fn holder() -> Member {
    let mut worker = seated(0);
    steps(&mut worker, 0, 0, Trailer::Snapshot);
    worker
}

fn saved(pieces: usize) -> SavedShare {
    SavedShare {
        snapshot: snapshot(1, 1),
        attempt: 1,
        share: 0,
        bytes: 8,
        description: vec![],
        state: StateSize { pieces: 1, bytes: 8 },
        pieces: (0..pieces).map(|piece| PieceHash::of(&piece.to_le_bytes())).collect(),
    }
}

/// A generation of two that starts from the checkpoint of s5.
fn restored() -> Form {
    let key = ManifestKey {
        step: s(5),
        id: ManifestId::of(b"test"),
    };
    let peer = |rank| Peer {
        rank: Rank::new(rank),
        member: member(rank),
    };
    let restore = Restore {
        key,
        depots: depots(),
        members: [0, 1].map(peer).to_vec(),
        readers: [0, 1].map(Rank::new).to_vec(),
    };
    Form {
        catch_up: CatchUp::Checkpoint,
        restore: Some(Box::new(restore)),
        ..pair(1, 0, 5)
    }
}

#[test]
fn shares_that_are_held_are_written_and_kept_until_it_is_over() {
    let mut worker = holder();
    let order = order(snapshot(1, 1), 1);
    assert_eq!(save(&mut worker, &order), [Command::Save(Box::new(order.clone()))]);
    // Joiners do not need it any more, which says nothing of the checkpoint.
    let serve = Event::Ordered(CoordinatorMessage::Serve(Serve {
        joiners: Joiners::Only(vec![]),
        snapshot: Some(snapshot(1, 1)),
        shares: Shares::Drop,
        sums_from: Step::ZERO,
    }));
    assert_eq!(worker.handle(serve).len(), 2, "it is let go");
    let again = Save { attempt: 2, ..order };
    assert_eq!(save(&mut worker, &again), [Command::Save(Box::new(again.clone()))]);
    let mut over = |snapshot| worker.handle(Event::Ordered(CoordinatorMessage::SaveOver { snapshot }));
    assert_eq!(over(snapshot(1, 0)), []);
    assert_eq!(over(snapshot(1, 1)), [Command::Network(NetworkCommand::EndSave)]);
    assert_eq!(over(snapshot(1, 1)), []);
}

#[test]
fn a_snapshot_that_is_not_held_cannot_be_written() {
    let mut worker = holder();
    let found = save(&mut worker, &order(snapshot(1, 9), 3));
    let [
        Command::Send(WorkerMessage::NotSaved {
            snapshot: told,
            attempt: 3,
            depot: None,
            ..
        }),
    ] = &found[..]
    else {
        panic!("expected NotSaved, found {found:?}");
    };
    assert_eq!(*told, snapshot(1, 9));
}

#[test]
fn a_share_of_many_pieces_is_told_in_parts() {
    let mut worker = holder();
    save(&mut worker, &order(snapshot(1, 1), 1));
    let whole = saved(SAVED_PIECES * 2 + 5);
    let mut told = Vec::new();
    let mut ends = Vec::new();
    for command in worker.handle(Event::Saved(Box::new(whole.clone()))) {
        let Command::Send(WorkerMessage::Saved {
            start, pieces, is_last, ..
        }) = command
        else {
            panic!("expected Saved, found {command:?}");
        };
        assert_eq!(start, told.len() as u64);
        assert!(pieces.len() <= SAVED_PIECES);
        told.extend(pieces);
        ends.push(is_last);
    }
    assert_eq!(told, whole.pieces);
    assert_eq!(ends, [false, false, true]);
    assert_eq!(
        worker.handle(Event::Saved(Box::new(saved(0)))).len(),
        1,
        "an empty share is told as well"
    );
}

#[test]
fn what_was_written_without_an_order_is_not_told() {
    let mut worker = holder();
    assert_eq!(worker.handle(Event::Saved(Box::new(saved(1)))), []);
}

#[test]
fn another_life_of_the_coordinator_knows_of_no_checkpoint_under_way() {
    let mut worker = holder();
    save(&mut worker, &order(snapshot(1, 1), 1));
    let found = worker.handle(Event::Welcomed {
        incarnation: Incarnation::new(2),
        report_from: Step::ZERO,
    });
    assert!(found.contains(&Command::Network(NetworkCommand::EndSave)), "{found:?}");
}

#[test]
fn the_last_state_is_a_snapshot_if_it_is_to_be_kept() {
    for (last, expected) in [(Last::Snapshot, 1), (Last::Forgotten, 0)] {
        let stops = Form {
            last,
            stop_at: Some(Step::ZERO),
            ..pair(1, 0, 0)
        };
        let found = form(&mut worker(), stops);
        let is_snapshot = |command: &&Command| matches!(command, Command::Snapshot { .. });
        assert_eq!(found.iter().filter(is_snapshot).count(), expected, "{found:?}");
    }
}

#[test]
fn a_checkpoint_is_loaded_and_the_worker_goes_on_from_there() {
    let mut worker = worker();
    let found = form(&mut worker, restored());
    let asks = |command: &Command| matches!(command, Command::Network(NetworkCommand::Restore { rank: Rank::ZERO, .. }));
    assert!(found.iter().any(asks), "{found:?}");
    fetched(&mut worker, 1, 5);
    assert_eq!(worker.next_work(), Work::Load { step: s(5) });
    let begins = worker.handle(Event::Loaded);
    assert!(begins.contains(&Command::Begin { step: s(5) }), "{begins:?}");
    assert_eq!(worker.step(), s(5));
    assert!(matches!(worker.next_work(), Work::Gradient { .. }));
}

#[test]
fn a_checkpoint_that_cannot_be_loaded_is_told_until_all_halt() {
    let mut worker = worker();
    form(&mut worker, restored());
    let told = |found: &[Command]| said(found).contains(&"not restored g1.1".to_owned());
    let (generation, reason) = (g(1), "gone".to_owned());
    assert!(told(&worker.handle(Event::NotRestored { generation, reason })));
    assert!(told(&beat(&mut worker, Heartbeat::Due(None))));
    halt(&mut worker, 2);
    assert!(!told(&beat(&mut worker, Heartbeat::Due(None))));
}
