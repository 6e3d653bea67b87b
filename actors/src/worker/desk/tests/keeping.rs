//! What the desk keeps for others: shares of a snapshot, sums, and who waits for one.

use sardana_protocol::member::{Command, NetworkCommand};

use super::*;

const SNAPSHOT: SnapshotId = SnapshotId {
    generation: Generation::new(Incarnation::new(1), 1),
    step: Step::new(1),
};

/// A worker that trains alone.
fn alone() -> (Arc<Desk>, Outbox) {
    let (desk, outbox) = desk(100, Order::Exact);
    desk.handle(form(1, 0, &[SHARDS], 0));
    (desk, outbox)
}

/// Computes the step under way, up to its update.
fn update(desk: &Desk) -> Task {
    for _ in 0..SHARDS {
        compute(desk, desk.next());
    }
    desk.next()
}

fn train(desk: &Desk) -> Arc<Sum> {
    let update = update(desk);
    apply(desk, update)
}

fn execute(desk: &Desk, command: Command) {
    desk.execute(command);
}

fn let_go(desk: &Desk, shares: bool, sums_before: Option<u64>) {
    let sums_before = sums_before.map(Step::new);
    execute(desk, Command::LetGo { shares, sums_before });
}

fn kept(desk: &Desk) -> Vec<u64> {
    desk.lock().keeping.kept().into_iter().map(Step::get).collect()
}

fn shares() -> Vec<Share> {
    [2, 0].map(|index| Share { index, of: 3 }).to_vec()
}

fn held() -> Vec<HeldShare> {
    let hold = |share: Share| HeldShare {
        share,
        bytes: Bytes::from(vec![share.index as u8; 4]),
        pieces: Arc::default(),
        hash: StateHash::new([share.index as u8; 32]),
    };
    shares().into_iter().map(hold).collect()
}

fn snapshot(desk: &Desk, step: u64) -> SnapshotId {
    let snapshot = SnapshotId {
        step: Step::new(step),
        ..SNAPSHOT
    };
    let shares = shares();
    execute(desk, Command::Snapshot { snapshot, shares });
    snapshot
}

#[tokio::test]
async fn shares_are_copied_before_the_update_and_hashed_elsewhere() {
    let (desk, mut outbox) = alone();
    train(&desk);
    while outbox.commands.try_recv().is_ok() {}
    let snapshot = snapshot(&desk, 1);
    let Task::Copy {
        shares: wanted, reply, ..
    } = update(&desk)
    else {
        panic!("the copy goes between gradients and update");
    };
    assert_eq!(wanted, shares());
    let Ok(ActorCommand::Snapshot {
        snapshot: asked,
        shares: asked_shares,
        copies,
    }) = outbox.commands.try_recv()
    else {
        panic!("somebody must hash it");
    };
    assert_eq!((asked, asked_shares), (snapshot, shares()));
    reply.send(vec![Bytes::from_static(b"2"), Bytes::from_static(b"0")]).unwrap();
    assert_eq!(copies.await.unwrap(), ["2", "0"]);
    // Only now is the thread free again, and nothing is there for others before it is hashed.
    assert!(matches!(desk.next(), Task::Apply { .. }));
    assert!(desk.share_of(Step::new(1), shares()[0]).is_none());
    desk.snapshotted(snapshot, held());
    for share in held() {
        let found = desk.share_of(Step::new(1), share.share).unwrap();
        assert_eq!((found.bytes, found.hash), (share.bytes, share.hash));
    }
    assert!(desk.share_of(Step::new(1), Share { index: 1, of: 3 }).is_none());
    assert!(desk.share_of(Step::new(1), Share { index: 0, of: 2 }).is_none());
    assert!(desk.share_of(Step::new(2), shares()[0]).is_none());
}

#[test]
fn a_snapshot_that_is_not_wanted_any_more_is_not_held() {
    let (desk, _outbox) = alone();
    train(&desk);
    let first = snapshot(&desk, 1);
    train_past_copies(&desk);
    let second = snapshot(&desk, 2);
    desk.snapshotted(first, held());
    assert!(
        desk.share_of(Step::new(1), shares()[0]).is_none(),
        "another one is wanted by now"
    );
    desk.snapshotted(second, held());
    assert!(desk.share_of(Step::new(2), shares()[0]).is_some());
    let_go(&desk, false, None);
    assert!(desk.share_of(Step::new(2), shares()[0]).is_some());
    let_go(&desk, true, None);
    assert!(desk.share_of(Step::new(2), shares()[0]).is_none());
    // Let go of while it was hashed.
    desk.snapshotted(second, held());
    assert!(desk.share_of(Step::new(2), shares()[0]).is_none());
}

fn train_past_copies(desk: &Desk) {
    let Task::Copy { reply, .. } = update(desk) else {
        panic!("the copy goes between gradients and update");
    };
    drop(reply);
    drop(apply(desk, desk.next()));
}

#[test]
fn a_copy_that_another_thread_makes_begins_at_once() {
    let (desk, _outbox) = alone();
    desk.copies_beside();
    train(&desk);
    snapshot(&desk, 1);
    assert!(matches!(desk.next(), Task::Copy { .. }));
    train(&desk);
}

fn make_room(desk: &Desk, shares: Vec<Share>) {
    execute(desk, Command::Network(NetworkCommand::MakeRoom { shares }));
}

/// Trains until the copy of a snapshot, and says into how many buffers it goes.
fn room_of_snapshot(desk: &Desk, step: u64) -> usize {
    train(desk);
    snapshot(desk, step);
    let Task::Copy { room, .. } = update(desk) else {
        panic!("the copy goes between gradients and update");
    };
    drop(apply(desk, desk.next()));
    room.len()
}

#[test]
fn shares_are_copied_into_the_room_that_was_made_for_them() {
    let (desk, mut outbox) = alone();
    while outbox.commands.try_recv().is_ok() {}
    desk.room_made(vec![vec![], vec![]]);
    assert_eq!(room_of_snapshot(&desk, 1), 0, "it was not wanted");
    while outbox.commands.try_recv().is_ok() {}
    while outbox.messages.try_recv().is_ok() {}
    make_room(&desk, shares());
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::MakeRoom { shares: wanted })) if wanted == shares())
    );
    desk.room_made(vec![vec![], vec![]]);
    assert!(matches!(outbox.messages.try_recv(), Ok(WorkerMessage::RoomMade { .. })));
    assert_eq!(room_of_snapshot(&desk, 3), 2);
    assert_eq!(room_of_snapshot(&desk, 5), 0, "it is used once");
    make_room(&desk, shares());
    desk.room_made(vec![vec![], vec![]]);
    make_room(&desk, vec![]);
    assert_eq!(room_of_snapshot(&desk, 7), 0, "the snapshot was not to come");
}

#[test]
fn a_copy_of_a_state_that_has_moved_is_not_made() {
    let (desk, _outbox) = alone();
    let update = update(&desk);
    snapshot(&desk, 0);
    apply(&desk, update);
    assert!(matches!(desk.next(), Task::Gradient { .. }));
}

#[test]
fn sums_are_kept_until_they_are_let_go_of() {
    let (desk, _outbox) = alone();
    for step in 0..6 {
        let sum = train(&desk);
        assert!(
            Arc::ptr_eq(desk.sum_of(Step::new(step)).unwrap().sum(), &sum),
            "the newest is there"
        );
        if step != 3 {
            execute(&desk, Command::KeepSum { step: Step::new(step) });
        }
        // Only the newest can be kept.
        execute(&desk, Command::KeepSum { step: Step::new(1) });
    }
    assert_eq!(kept(&desk), [0, 1, 2, 4, 5]);
    for (step, here) in [(0, true), (2, true), (3, false), (5, true), (6, false)] {
        let found = desk.sum_of(Step::new(step));
        assert_eq!(found.is_some(), here, "{step}");
        if let Some(found) = found {
            assert_eq!(found.sum().step(), Step::new(step));
            assert_eq!(found.hash(), StateHash::of(&found.bytes()));
            assert_eq!(&found.bytes()[..], found.sum().bytes());
        }
    }
    let_go(&desk, false, Some(2));
    assert_eq!(kept(&desk), [2, 4, 5]);
    // A newer snapshot needs none of them.
    snapshot(&desk, 6);
    assert_eq!(kept(&desk), Vec::<u64>::new());
    train_past_copies(&desk);
    execute(&desk, Command::KeepSum { step: Step::new(6) });
    let_go(&desk, false, None);
    assert_eq!(kept(&desk), Vec::<u64>::new());
    assert!(
        desk.sum_of(Step::new(6)).is_some(),
        "the newest stays, for members that are behind"
    );
}

#[test]
fn a_kept_sum_is_not_rewritten_and_its_buffer_comes_back() {
    let (desk, _outbox) = alone();
    train(&desk);
    execute(&desk, Command::KeepSum { step: Step::ZERO });
    let kept = desk.sum_of(Step::ZERO).unwrap();
    let (place, bytes) = (kept.bytes().as_ptr(), kept.bytes().to_vec());
    for _ in 0..4 {
        train(&desk);
    }
    assert_eq!(kept.bytes(), bytes);
    drop(kept);
    desk.lock().buffers.free.clear();
    let_go(&desk, false, None);
    assert_eq!(desk.lock().buffers.free[0].bytes().as_ptr(), place);
}

#[test]
fn who_only_follows_does_not_pile_up_buffers() {
    let (desk, _outbox) = desk(100, Order::Exact);
    for step in 0..50 {
        let sum = Sum::from_buffer(Step::new(step), GradientBuffer::zeros(desk.layout()));
        let old = desk.lock().keeping.renew(KeptSum::new(Arc::new(sum), Trailer::Continue));
        old.into_iter().for_each(|old| desk.lock().buffers.recycle(old));
    }
    assert!(desk.lock().buffers.free.len() <= 2);
}

/// Asks for the sum of a step, and waits until that is known.
async fn asked(desk: &Arc<Desk>, step: u64) -> tokio::task::JoinHandle<Option<KeptSum>> {
    let (asking, before) = (Arc::clone(desk), desk.waiting());
    let task = tokio::spawn(async move { asking.coming_sum(Step::new(step)).await });
    while desk.waiting() == before {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn who_waits_for_a_sum_gets_it_when_it_is_about_to_be_applied() {
    let (desk, _outbox) = alone();
    let (first, second) = (asked(&desk, 0).await, asked(&desk, 0).await);
    let later = asked(&desk, 1).await;
    let update = update(&desk);
    for waiting in [first, second] {
        assert_eq!(waiting.await.unwrap().unwrap().sum().step(), Step::ZERO);
    }
    assert_eq!(desk.waiting(), 1);
    apply(&desk, update);
    train(&desk);
    assert_eq!(later.await.unwrap().unwrap().sum().step(), Step::new(1));
    // One that is past and not kept does not come any more.
    assert!(desk.coming_sum(Step::ZERO).await.is_none());
    assert!(desk.coming_sum(Step::new(1)).await.is_some());
}

#[tokio::test]
async fn who_waits_in_vain_is_told() {
    let (desk, _outbox) = alone();
    let (first, second) = (asked(&desk, 0).await, asked(&desk, 1).await);
    let_go(&desk, false, Some(1));
    assert!(first.await.unwrap().is_none());
    assert_eq!(desk.waiting(), 1);
    let_go(&desk, false, None);
    assert!(second.await.unwrap().is_none());
    let third = asked(&desk, 0).await;
    desk.end();
    assert!(third.await.unwrap().is_none());
    assert!(desk.coming_sum(Step::ZERO).await.is_none());

    // The state comes from another worker, beyond the sum.
    let (desk, _outbox) = self::desk(100, Order::Exact);
    let (past, coming) = (asked(&desk, 6).await, asked(&desk, 7).await);
    let Event::Ordered(CoordinatorMessage::Form(mut behind)) = form(1, 1, &[1, SHARDS], 7) else {
        panic!("it is a form");
    };
    behind.catch_up = CatchUp::State { from: Rank::ZERO };
    desk.handle(Event::Ordered(CoordinatorMessage::Form(behind)));
    let (generation, step) = (generation(1), Step::new(7));
    let state = SavedState {
        bytes: Bytes::from_static(b"state"),
        shares: vec![StateHash::new([1; 32])],
    };
    desk.arrived(Arrival::FetchedState { generation, step, state });
    let Task::Load { step, state, shares } = desk.next() else {
        panic!("the state is there");
    };
    assert_eq!(
        (step, &state[..], shares),
        (Step::new(7), &b"state"[..], vec![StateHash::new([1; 32])])
    );
    desk.loaded();
    assert!(past.await.unwrap().is_none());
    assert_eq!(desk.waiting(), 1);
    coming.abort();
}
