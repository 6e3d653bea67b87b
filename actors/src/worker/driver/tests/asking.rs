//! Copies of the state for others that ask for all of it.

use tokio::task::JoinHandle;

use super::*;

/// Another worker asks for the state at the first step.
fn asked(driver: &Arc<StepDriver>) -> JoinHandle<Option<Bytes>> {
    let driver = Arc::clone(driver);
    tokio::spawn(async move { driver.state_at(Step::ZERO).await })
}

/// Workers that are formed together with the one that has the state all ask it for that.
#[tokio::test]
async fn all_that_want_the_state_before_it_is_copied_have_one_copy() {
    let (driver, _outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    let mut all = vec![asked(&driver), asked(&driver)];
    tokio::task::yield_now().await;
    let Task::Copy { reply, .. } = driver.next() else {
        panic!("a copy goes before gradients");
    };
    all.push(asked(&driver));
    tokio::task::yield_now().await;
    let task = driver.next();
    assert!(matches!(task, Task::Gradient { .. }), "that copy is under way: {task:?}");
    let copy = Bytes::from(b"state".to_vec());
    reply.send(vec![copy.clone()]);
    for asked in all {
        assert_eq!(asked.await.unwrap().unwrap().as_ptr(), copy.as_ptr());
    }
    // What was sent is not kept for others, which may come at any time.
    let late = asked(&driver);
    tokio::task::yield_now().await;
    let Task::Copy { reply, .. } = driver.next() else {
        panic!("it is copied again");
    };
    compute(&driver, task);
    for _ in 1..SHARDS {
        compute(&driver, driver.next());
    }
    let update = driver.next();
    let after = asked(&driver);
    tokio::task::yield_now().await;
    reply.send(vec![Bytes::from_static(b"before the update")]);
    drop(apply(&driver, update));
    assert_eq!(late.await.unwrap().unwrap(), "before the update");
    assert!(
        !matches!(driver.next(), Task::Copy { .. }) && after.await.unwrap().is_none(),
        "the state stands elsewhere by then"
    );
}

#[tokio::test]
async fn a_copy_of_the_state_before_it_was_replaced_is_not_for_those_that_ask_later() {
    let (driver, _outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    let before = asked(&driver);
    tokio::task::yield_now().await;
    let Task::Copy { reply: of_old, .. } = driver.next() else {
        panic!("a copy goes before gradients");
    };
    // As when another one of the same step is loaded.
    driver.lock().copies.state_changes();
    let after = asked(&driver);
    tokio::task::yield_now().await;
    let Task::Copy { reply: of_new, .. } = driver.next() else {
        panic!("it is copied anew");
    };
    of_old.send(vec![Bytes::from_static(b"old")]);
    of_new.send(vec![Bytes::from_static(b"new")]);
    assert_eq!(
        (before.await.unwrap().unwrap(), after.await.unwrap().unwrap()),
        ("old".into(), "new".into())
    );
}

#[tokio::test]
async fn the_state_is_saved_only_where_it_was_asked_for() {
    let (driver, _outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    assert_eq!(driver.state_at(Step::new(1)).await, None);
    let first = asked(&driver);
    tokio::task::yield_now().await;
    let Task::Copy { shares, room, reply } = driver.next() else {
        panic!("a copy goes before gradients");
    };
    assert!(shares == [Share::WHOLE] && room.is_none());
    reply.send(vec![Bytes::from_static(b"state")]);
    assert_eq!(first.await.unwrap(), Some(Bytes::from_static(b"state")));

    // Asked for while the update was under way.
    for _ in 0..SHARDS {
        compute(&driver, driver.next());
    }
    let update = driver.next();
    let late = asked(&driver);
    tokio::task::yield_now().await;
    drop(apply(&driver, update));
    assert!(
        matches!(driver.next(), Task::Gradient { .. }),
        "the state has moved: nothing to save"
    );
    assert_eq!(late.await.unwrap(), None);

    let driver = self::driver(10, Order::Exact).0;
    let never = asked(&driver);
    tokio::task::yield_now().await;
    driver.end();
    assert_eq!(never.await.unwrap(), None);
    assert_eq!(driver.state_at(Step::ZERO).await, None);
}
