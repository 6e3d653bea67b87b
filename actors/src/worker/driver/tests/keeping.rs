//! What the step driver keeps for others: shares of a snapshot, sums, and the tasks that wait for one.

use sardana_protocol::lineage::{Lineage, WantedSum};
use sardana_protocol::member::{Command, NetworkCommand};

use super::*;

const SNAPSHOT: SnapshotId = SnapshotId {
    generation: Generation::new(Incarnation::new(1), 1),
    step: Step::new(1),
};

/// A worker that trains alone.
fn alone() -> (Arc<StepDriver>, Outbox) {
    let (driver, outbox) = driver(100, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    (driver, outbox)
}

/// Computes the step under way, up to its update.
fn update(driver: &StepDriver) -> Task {
    for _ in 0..SHARDS {
        compute(driver, driver.next());
    }
    driver.next()
}

fn train(driver: &StepDriver) -> KeptSum {
    let update = update(driver);
    apply(driver, update)
}

fn let_go(driver: &StepDriver, shares: bool, sums_before: Option<u64>) {
    let sums_before = sums_before.map(Step::new);
    driver.execute(Command::LetGo { shares, sums_before });
}

fn kept(driver: &StepDriver) -> Vec<u64> {
    driver.lock().keeping.kept().into_iter().map(Step::get).collect()
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

fn snapshot(driver: &StepDriver, step: u64) -> SnapshotId {
    let snapshot = SnapshotId {
        step: Step::new(step),
        ..SNAPSHOT
    };
    let shares = shares();
    driver.execute(Command::Snapshot { snapshot, shares });
    snapshot
}

#[tokio::test]
async fn shares_are_copied_before_the_update_and_hashed_elsewhere() {
    let (driver, mut outbox) = alone();
    train(&driver);
    while outbox.commands.try_recv().is_ok() {}
    let snapshot = snapshot(&driver, 1);
    let Task::Copy {
        shares: wanted, reply, ..
    } = update(&driver)
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
    reply.send(vec![Bytes::from_static(b"2"), Bytes::from_static(b"0")]);
    assert_eq!(copies.await.unwrap(), ["2", "0"]);
    // Only now is the thread free again, and nothing is there for others before it is hashed.
    assert!(matches!(driver.next(), Task::Apply { .. }));
    assert!(driver.share_of(Step::new(1), shares()[0]).is_none());
    driver.snapshotted(snapshot, held());
    for share in held() {
        let found = driver.share_of(Step::new(1), share.share).unwrap();
        assert_eq!((found.bytes, found.hash), (share.bytes, share.hash));
    }
    assert!(driver.share_of(Step::new(1), Share { index: 1, of: 3 }).is_none());
    assert!(driver.share_of(Step::new(1), Share { index: 0, of: 2 }).is_none());
    assert!(driver.share_of(Step::new(2), shares()[0]).is_none());
}

#[test]
fn a_snapshot_that_is_not_wanted_any_more_is_not_held() {
    let (driver, _outbox) = alone();
    train(&driver);
    let first = snapshot(&driver, 1);
    train_past_copies(&driver);
    let second = snapshot(&driver, 2);
    driver.snapshotted(first, held());
    assert!(
        driver.share_of(Step::new(1), shares()[0]).is_none(),
        "another one is wanted by now"
    );
    driver.snapshotted(second, held());
    assert!(driver.share_of(Step::new(2), shares()[0]).is_some());
    let_go(&driver, false, None);
    assert!(driver.share_of(Step::new(2), shares()[0]).is_some());
    let_go(&driver, true, None);
    assert!(driver.share_of(Step::new(2), shares()[0]).is_none());
    // Let go of while it was hashed.
    driver.snapshotted(second, held());
    assert!(driver.share_of(Step::new(2), shares()[0]).is_none());
}

fn train_past_copies(driver: &StepDriver) {
    let Task::Copy { reply, .. } = update(driver) else {
        panic!("the copy goes between gradients and update");
    };
    drop(reply);
    drop(apply(driver, driver.next()));
}

#[test]
fn a_copy_that_another_thread_makes_begins_at_once() {
    let (driver, _outbox) = alone();
    driver.copies_beside();
    train(&driver);
    snapshot(&driver, 1);
    assert!(matches!(driver.next(), Task::Copy { .. }));
    train(&driver);
}

fn make_room(driver: &StepDriver, shares: Vec<Share>) {
    driver.execute(Command::Network(NetworkCommand::MakeRoom { shares }));
}

/// Trains until the copy of a snapshot, and says how much room was made for it.
fn room_of_snapshot(driver: &StepDriver, step: u64) -> Option<usize> {
    train(driver);
    snapshot(driver, step);
    let Task::Copy { room, .. } = update(driver) else {
        panic!("the copy goes between gradients and update");
    };
    drop(apply(driver, driver.next()));
    room.map(|room| room.as_ref().len())
}

#[test]
fn shares_are_copied_into_the_room_that_was_made_for_them() {
    let (driver, mut outbox) = alone();
    while outbox.commands.try_recv().is_ok() {}
    driver.room_made(driver.reserve().room(7));
    assert_eq!(room_of_snapshot(&driver, 1), None, "it was not wanted");
    while outbox.commands.try_recv().is_ok() {}
    while outbox.messages.try_recv().is_ok() {}
    make_room(&driver, shares());
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::MakeRoom { shares: wanted })) if wanted == shares())
    );
    driver.room_made(driver.reserve().room(7));
    assert!(matches!(outbox.messages.try_recv(), Ok(WorkerMessage::RoomMade { .. })));
    assert_eq!(room_of_snapshot(&driver, 3), Some(7));
    assert_eq!(room_of_snapshot(&driver, 5), None, "it is used once");
    make_room(&driver, shares());
    driver.room_made(driver.reserve().room(7));
    make_room(&driver, vec![]);
    assert_eq!(room_of_snapshot(&driver, 7), None, "the snapshot was not to come");
}

#[test]
fn a_copy_of_a_state_that_has_moved_is_not_made() {
    let (driver, _outbox) = alone();
    let update = update(&driver);
    snapshot(&driver, 0);
    apply(&driver, update);
    assert!(matches!(driver.next(), Task::Gradient { .. }));
}

#[test]
fn sums_that_others_are_to_have_do_not_stay_where_another_worker_has_them() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    let mut begun = move || match inbox.try_recv() {
        Ok(RingInput::Begin { into, .. }) => into.may_borrow(),
        other => panic!("expected that a step begins, found {other:?}"),
    };
    assert!(begun());
    let begin = |step| {
        driver.execute(Command::Begin { step: Step::new(step) });
    };
    snapshot(&driver, 0);
    begin(1);
    assert!(!begun());
    let_go(&driver, true, None);
    begin(2);
    assert!(begun());
}

#[test]
fn sums_are_kept_until_they_are_let_go_of() {
    let (driver, _outbox) = alone();
    for step in 0..6 {
        let sum = train(&driver);
        assert!(
            std::ptr::eq(driver.sum_of(testing::sum(step)).unwrap().sum(), sum.sum()),
            "the newest is there"
        );
        // The first step after one whose sum was not kept has its memory, and must not have its hash.
        assert_eq!(sum.hash(), StateHash::of(&sum.bytes()));
        if step != 3 {
            driver.execute(Command::KeepSum { step: Step::new(step) });
        }
        // Only the newest can be kept.
        driver.execute(Command::KeepSum { step: Step::new(1) });
    }
    assert_eq!(kept(&driver), [0, 1, 2, 4, 5]);
    for (step, here) in [(0, true), (2, true), (3, false), (5, true), (6, false)] {
        let found = driver.sum_of(testing::sum(step));
        assert_eq!(found.is_some(), here, "{step}");
        if let Some(found) = found {
            assert_eq!(found.sum().step(), Step::new(step));
            assert_eq!(found.hash(), StateHash::of(&found.bytes()));
            assert_eq!(&found.bytes()[..], found.sum().bytes());
        }
    }
    let_go(&driver, false, Some(2));
    assert_eq!(kept(&driver), [2, 4, 5]);
    // A newer snapshot needs none of them.
    snapshot(&driver, 6);
    assert_eq!(kept(&driver), Vec::<u64>::new());
    train_past_copies(&driver);
    driver.execute(Command::KeepSum { step: Step::new(6) });
    let_go(&driver, false, None);
    assert_eq!(kept(&driver), Vec::<u64>::new());
    assert!(
        driver.sum_of(testing::sum(6)).is_some(),
        "the newest stays, for members that are behind"
    );
}

#[test]
fn a_kept_sum_is_not_rewritten_and_its_buffer_comes_back() {
    let (driver, _outbox) = alone();
    train(&driver);
    driver.execute(Command::KeepSum { step: Step::ZERO });
    let kept = driver.sum_of(testing::sum(0)).unwrap();
    let (place, bytes) = (kept.bytes().as_ptr(), kept.bytes().to_vec());
    for _ in 0..4 {
        train(&driver);
    }
    assert_eq!(kept.bytes(), bytes);
    drop(kept);
    driver.lock().buffers.free.clear();
    let_go(&driver, false, None);
    assert_eq!(driver.lock().buffers.free[0].1.bytes().as_ptr(), place);
}

#[test]
fn who_only_follows_does_not_pile_up_buffers() {
    let (driver, _outbox) = driver(100, Order::Exact);
    for step in 0..50 {
        let sum = Sum::from_buffer(Step::new(step), GradientBuffer::zeros(driver.layout()));
        let closed = Closed {
            trailer: Trailer::Continue,
            lineage: Lineage::default(),
        };
        let (_, old) = driver.lock().keeping.renew(sum, closed);
        driver.lock().buffers.recycle(old);
        let (inner, task) = driver.task(driver.lock());
        assert!(task.is_none());
        drop(inner);
    }
    assert!(driver.lock().buffers.free.len() <= 2);
    assert!(driver.lock().buffers.gone().is_empty(), "what is not kept is dropped");
}

#[tokio::test]
async fn in_fast_order_a_sum_is_given_only_to_be_added_to_the_state_that_it_was_added_to() {
    let (driver, _outbox) = driver(100, Order::Fast);
    driver.handle(form_in(Order::Fast, 1, 0, &[SHARDS], 0));
    let after = |step, before| WantedSum {
        step: Step::new(step),
        before,
    };
    let (first, other) = (generation(1), generation(2));
    train(&driver);
    driver.execute(Command::KeepSum { step: Step::ZERO });
    let elsewhere = tokio::spawn({
        let driver = Arc::clone(&driver);
        async move { driver.coming_sum(after(1, other)).await.map(drop) }
    });
    while driver.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let update = update(&driver);
    assert!(
        elsewhere.await.unwrap().is_none(),
        "once it is known that its own is added to another state"
    );
    assert!(
        driver.coming_sum(after(1, other)).await.is_none(),
        "and who asks then is told at once"
    );
    let sum = driver.coming_sum(after(1, first)).await.expect("it is being applied");
    assert_eq!(sum.closed().lineage.last, first);
    apply(&driver, update);
    for (wanted, here) in [
        (after(0, Generation::NONE), true),
        (after(0, first), false),
        (after(1, first), true),
        (after(1, Generation::NONE), false),
    ] {
        assert_eq!(driver.sum_of(wanted).is_some(), here, "{wanted:?}");
    }
}

/// Asks for the sum of a step, and waits until that is known.
async fn asked(driver: &Arc<StepDriver>, step: u64) -> tokio::task::JoinHandle<Option<KeptSum>> {
    let (asking, before) = (Arc::clone(driver), driver.waiting());
    let task = tokio::spawn(async move { asking.coming_sum(testing::sum(step)).await });
    while driver.waiting() == before {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn who_waits_for_a_sum_gets_it_when_it_is_about_to_be_applied() {
    let (driver, _outbox) = alone();
    let (first, second) = (asked(&driver, 0).await, asked(&driver, 0).await);
    let later = asked(&driver, 1).await;
    let update = update(&driver);
    for waiting in [first, second] {
        assert_eq!(waiting.await.unwrap().unwrap().sum().step(), Step::ZERO);
    }
    assert_eq!(driver.waiting(), 1);
    apply(&driver, update);
    train(&driver);
    assert_eq!(later.await.unwrap().unwrap().sum().step(), Step::new(1));
    // A sum that is past and not kept does not come any more.
    assert!(driver.coming_sum(testing::sum(0)).await.is_none());
    assert!(driver.coming_sum(testing::sum(1)).await.is_some());
}

#[tokio::test]
async fn who_waits_in_vain_is_told() {
    let (driver, _outbox) = alone();
    let (first, second) = (asked(&driver, 0).await, asked(&driver, 1).await);
    let_go(&driver, false, Some(1));
    assert!(first.await.unwrap().is_none());
    assert_eq!(driver.waiting(), 1);
    let_go(&driver, false, None);
    assert!(second.await.unwrap().is_none());
    let third = asked(&driver, 0).await;
    driver.end();
    assert!(third.await.unwrap().is_none());
    assert!(driver.coming_sum(testing::sum(0)).await.is_none());

    // The state comes from another worker, beyond the sum.
    let (driver, _outbox) = self::driver(100, Order::Exact);
    let (past, coming) = (asked(&driver, 6).await, asked(&driver, 7).await);
    let Event::Ordered(CoordinatorMessage::Form(mut behind)) = form(1, 1, &[1, SHARDS], 7) else {
        panic!("it is a form");
    };
    behind.catch_up = CatchUp::State { from: Rank::ZERO };
    driver.handle(Event::Ordered(CoordinatorMessage::Form(behind)));
    let (generation, step) = (generation(1), Step::new(7));
    let state = SavedState {
        bytes: Bytes::from_static(b"state"),
        shares: vec![StateHash::new([1; 32])],
        compared_here: true,
    };
    driver.arrived(Arrival::FetchedState { generation, step, state });
    let Task::Load { step, state } = driver.next() else {
        panic!("the state is there");
    };
    assert_eq!(
        (step, &state.bytes[..], state.shares, state.compared_here),
        (Step::new(7), &b"state"[..], vec![StateHash::new([1; 32])], true)
    );
    driver.loaded();
    assert!(past.await.unwrap().is_none());
    assert_eq!(driver.waiting(), 1);
    coming.abort();
}
