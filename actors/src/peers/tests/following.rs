//! A joiner that follows the ring: its keepers may have to wait for a sum, may have let go of it, or be gone.

use std::sync::Arc;

use sardana_net::quic::limits::PEER_BIDI_STREAMS;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::{Command, Event, Followed};
use sardana_protocol::messages::{CoordinatorMessage, Trailer};
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::joining::snapshot;
use super::{CopyError, FollowedSum, PeerGroup, Ring, Worker, soon, until, workers};
use crate::peers::copy::Holders;
use crate::testing;
use crate::watched::Watched;
use crate::worker::{KeptSum, StepDriver, Task};

const JOINER: WorkerId = WorkerId::new(2);

/// Two keepers that serve a third worker, and what that worker is told.
fn site() -> (Vec<Worker>, Holders) {
    let (workers, ring) = workers(3);
    for keeper in &workers[..2] {
        keeper.name(PeerGroup::Joiners, [JOINER]);
        alone(&keeper.driver, &ring);
    }
    let known = snapshot(&ring.members[..2]);
    (workers, Arc::new(Watched::new(known)))
}

/// Lets it train alone, so that it needs no ring.
pub(super) fn alone(driver: &StepDriver, ring: &Ring) {
    driver.handle(Event::Ordered(CoordinatorMessage::Form(Box::new(ring.alone()))));
}

/// Computes the step under way, up to the update, which is not applied.
fn compute(driver: &StepDriver) -> KeptSum {
    loop {
        let task = driver.next();
        if let Task::Apply { sum } = task {
            return sum;
        }
        testing::compute(driver, task);
    }
}

/// Computes and applies one step.
pub(super) fn train(driver: &StepDriver) -> KeptSum {
    let sum = compute(driver);
    testing::apply(driver, Task::Apply { sum })
}

fn follow(workers: &[Worker], known: &Holders, step: u64) -> tokio::task::JoinHandle<Result<FollowedSum, CopyError>> {
    let (joiner, known) = (Arc::clone(&workers[2].peers), Arc::clone(known));
    let bytes = workers[2].driver.layout().bytes();
    tokio::spawn(async move { soon(joiner.follow(&known, testing::sum(step), bytes)).await })
}

#[tokio::test]
async fn a_sum_that_is_there_or_kept_is_given() {
    let (workers, known) = site();
    let driver = &workers[0].driver;
    let first = train(driver);
    driver.execute(Command::KeepSum { step: Step::ZERO });
    for _ in 0..3 {
        train(driver);
    }
    let kept = follow(&workers, &known, 0).await.unwrap().unwrap();
    let expected = FollowedSum {
        bytes: first.bytes().to_vec(),
        told: Followed {
            step: Step::ZERO,
            generation: Generation::NONE,
            trailer: Trailer::Continue,
            keeper_at: Step::new(4),
        },
    };
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn a_sum_that_was_added_to_another_state_is_not_given() {
    let (workers, known) = site();
    for keeper in &workers[..2] {
        train(&keeper.driver);
    }
    let other = WantedSum {
        before: super::generation(1),
        ..testing::sum(0)
    };
    let bytes = workers[2].driver.layout().bytes();
    let error = soon(workers[2].follow(&known, other, bytes)).await.unwrap_err().to_string();
    assert!(
        error.contains("the sum of s0 after one of g1.1: no keeper gave it"),
        "{error}"
    );
    assert!(
        error.contains("00 was asked") && error.contains("01 was asked"),
        "both are: {error}"
    );
}

#[tokio::test]
async fn a_keeper_waits_for_a_sum_and_gives_it_before_it_is_applied() {
    let (workers, known) = site();
    let coming = follow(&workers, &known, 0);
    until(|| workers[0].driver.waiting() == 1).await;
    let driver = &workers[0].driver;
    let sum = compute(driver);
    let followed = coming.await.unwrap().unwrap();
    assert_eq!(followed.bytes, sum.bytes());
    assert_eq!(followed.told.keeper_at, Step::ZERO, "it is being applied, not yet applied");
}

#[tokio::test]
async fn the_trailer_comes_with_the_sum() {
    let (workers, known) = site();
    let driver = &workers[0].driver;
    let close = Event::Ordered(CoordinatorMessage::CloseWith {
        generation: super::generation(1),
        trailer: Trailer::Stop,
    });
    driver.handle(close);
    train(driver);
    assert_eq!(
        follow(&workers, &known, 0).await.unwrap().unwrap().told.trailer,
        Trailer::Stop
    );
}

#[tokio::test]
async fn the_other_keeper_is_asked_when_the_first_has_let_go_or_is_gone() {
    // Let go of while a task waited for it.
    let (workers, known) = site();
    let sum = train(&workers[1].driver);
    let coming = follow(&workers, &known, 0);
    until(|| workers[0].driver.waiting() == 1).await;
    let let_go = Command::LetGo {
        shares: false,
        sums_before: Some(Step::new(1)),
    };
    workers[0].driver.execute(let_go);
    assert_eq!(coming.await.unwrap().unwrap().bytes, sum.bytes());
    // Gone while it waited: at once, not when the connection times out.
    let coming = follow(&workers, &known, 0);
    until(|| workers[0].driver.waiting() == 1).await;
    known.modify(|known| known.holders[0] = None);
    assert_eq!(coming.await.unwrap().unwrap().bytes, sum.bytes());
    until(|| workers[0].driver.waiting() == 0).await;
    // Its step driver has ended, and then its process.
    let (workers, known) = site();
    train(&workers[1].driver);
    workers[0].driver.end();
    assert_eq!(follow(&workers, &known, 0).await.unwrap().unwrap().bytes, sum.bytes());
    workers[0].close("it ends").await;
    assert_eq!(follow(&workers, &known, 0).await.unwrap().unwrap().bytes, sum.bytes());
    // No keeper has it.
    workers[1].close("it ends").await;
    let error = follow(&workers, &known, 0).await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("the sum of s0") && error.contains("00: 127.0.0.1") && error.contains("01: 127.0.0.1"),
        "{error}"
    );
}

#[tokio::test]
async fn keepers_take_turns() {
    let (workers, known) = site();
    let (zero, one) = (&workers[0].driver, &workers[1].driver);
    train(zero);
    train(one);
    let coming = follow(&workers, &known, 1);
    until(|| one.waiting() == 1).await;
    assert_eq!(zero.waiting(), 0);
    train(one);
    coming.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_is_not_named_any_more_gets_nothing_more() {
    let (workers, known) = site();
    known.modify(|known| known.holders[1] = None);
    let coming = follow(&workers, &known, 0);
    until(|| workers[0].driver.waiting() == 1).await;
    workers[0].name(PeerGroup::Joiners, []);
    let error = coming.await.unwrap().unwrap_err();
    assert!(matches!(error, CopyError::Sum { .. }), "{error}");
    until(|| workers[0].driver.waiting() == 0).await;
}

#[tokio::test]
async fn a_transfer_that_is_given_up_leaves_no_stream() {
    let (workers, known) = site();
    for _ in 0..PEER_BIDI_STREAMS + 8 {
        let coming = follow(&workers, &known, 0);
        until(|| workers[0].driver.waiting() == 1).await;
        coming.abort();
        until(|| workers[0].driver.waiting() == 0).await;
    }
    train(&workers[0].driver);
    follow(&workers, &known, 0).await.unwrap().unwrap();
}
