//! What members that are behind fetch from a donor that trains alone.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use sardana_collectives::links::LinkSender;
use sardana_collectives::links::frame::{FrameHeader, PlanSlot};
use sardana_collectives::runs::Runs;
use sardana_protocol::member::Member;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Step, WorkerId};
use tokio::task::yield_now;

use super::following::{alone, train};
use super::{
    BATCH_BYTES, FetchError, PeerGroup, Ring, claim, header, large, link_to, pieces, soon, until, workers_linked,
    workers_with,
};
use crate::peers::LinkChoice;
use crate::peers::fetch::Request;
use crate::peers::incoming::IncomingShare;
use crate::testing;
use crate::worker::{StepDriver, Task};

/// Frames that pass beside a transfer.
const FRAMES: u32 = 2_000;

/// Trains `driver` alone for one step, and then gives this state when asked.
pub(super) fn donate(driver: &Arc<StepDriver>, ring: &Ring, state: Bytes) -> std::thread::JoinHandle<()> {
    alone(driver, ring);
    let driver = Arc::clone(driver);
    std::thread::spawn(move || {
        train(&driver);
        // The step after is never summed.
        serve(&driver, &state);
    })
}

/// Copies states until the end; other tasks are dropped.
fn serve(driver: &StepDriver, state: &Bytes) {
    loop {
        match driver.next() {
            Task::Copy { shares, reply, .. } => {
                assert_eq!(shares, [Share::WHOLE]);
                reply.send(vec![state.clone()]);
            }
            Task::End => return,
            Task::Gradient { .. } => {}
            other @ (Task::Apply { .. } | Task::Load { .. } | Task::Conclude { .. }) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sums_and_states_are_fetched_or_it_is_said_why_not() {
    // The third has another model.
    let (workers, ring) = workers_with(3, |id| match id {
        2 => Arc::new(StatePieces::new([20])),
        _ => pieces(),
    });
    workers[0].name(PeerGroup::Present, [WorkerId::new(1), WorkerId::new(2)]);
    let donor = ring.members[0];
    let driver = &workers[0].driver;
    let training = donate(driver, &ring, Bytes::from_static(b"the state at step 1"));
    until(|| driver.sum_of(testing::sum(0)).is_some() && driver.read(Member::step) == Step::new(1)).await;

    let bytes = driver.layout().bytes();
    let sum = workers[1].fetch_sum(donor, testing::sum(0), bytes).await.unwrap();
    assert_eq!(sum, driver.sum_of(testing::sum(0)).unwrap().sum().bytes());
    let error = workers[1].fetch_sum(donor, testing::sum(0), bytes + 1).await.unwrap_err();
    assert!(error.to_string().contains("it trains another model"), "{error}");
    let error = workers[1].fetch_sum(donor, testing::sum(1), bytes).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("asked for something of s1, and does not have it: it stands at s1"),
        "{error}"
    );

    // The coordinator is told that something moves, at both ends: one fetches and hashes it, the other one has hashed it before.
    let before = workers[1].moved_so_far();
    let state = workers[1].fetch_state(donor, Step::new(1)).await.unwrap();
    assert_eq!(&state[..], b"the state at step 1");
    assert_eq!(workers[1].moved_so_far() - before, 2 * state.len() as u64);
    assert_eq!(workers[0].moved_so_far(), state.len() as u64);
    let error = workers[2].fetch_state(donor, Step::new(1)).await.unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Length {
                expected: 20,
                found: 19,
                ..
            }
        ),
        "{error}"
    );
    for step in [0, 2] {
        let error = workers[1].fetch_state(donor, Step::new(step)).await.unwrap_err();
        assert!(
            matches!(error, FetchError::NotHere { stands_at, .. } if stands_at == Step::new(1)),
            "{error}"
        );
    }
    driver.end();
    training.join().unwrap();
    // A donor that ends says so, too.
    let error = workers[1].fetch_state(donor, Step::new(1)).await.unwrap_err();
    assert!(matches!(error, FetchError::NotHere { .. }), "{error}");
    workers[0].close("it ends").await;
    let error = soon(workers[1].fetch_sum(donor, testing::sum(0), bytes)).await.unwrap_err();
    assert!(matches!(error, FetchError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_transfer_that_is_given_up_halfway_begins_again_in_the_same_memory() {
    let (pieces, state) = large();
    let (workers, ring) = workers_with(2, |_| Arc::clone(&pieces));
    workers[0].name(PeerGroup::Present, [WorkerId::new(1)]);
    let (donor, driver) = (ring.members[0], &workers[0].driver);
    let training = donate(driver, &ring, state.clone());
    until(|| driver.read(Member::step) == Step::new(1)).await;

    let memory = workers[1].state_room();
    let place = memory.as_ptr();
    let mut incoming = IncomingShare::new(&workers[1].peers, Share::WHOLE, memory);
    {
        let mut fetching = pin!(workers[1].fetch_share(donor, Step::new(1), None, &mut incoming));
        // Some of it is hashed, or is being hashed.
        let halfway = async {
            while workers[1].moved_so_far() <= BATCH_BYTES as u64 {
                let came = fetching.as_mut().now_or_never();
                assert!(
                    came.is_none(),
                    "the donor, which is on this thread as well, cannot have sent all"
                );
                yield_now().await;
            }
        };
        soon(halfway).await;
    }
    let fetched = workers[1].fetch_share(donor, Step::new(1), None, &mut incoming);
    soon(fetched).await.unwrap();
    let came = incoming.into_bytes();
    assert_eq!(came.as_ptr(), place);
    assert!(came == state);
    driver.end();
    training.join().unwrap();
}

#[tokio::test]
async fn the_ring_goes_on_beside_a_transfer_that_nobody_reads() {
    // More than one stream carries unread.
    let parts = StatePieces::new([BATCH_BYTES; 12]);
    let state: Bytes = (0..parts.bytes()).map(|at| (at * 31 % 251) as u8).collect::<Vec<_>>().into();
    let parts = Arc::new(parts);
    let (workers, ring) = workers_linked(2, LinkChoice::Quic, |_| Arc::clone(&parts));
    workers[0].name(PeerGroup::Present, [WorkerId::new(1)]);
    workers[1].name(PeerGroup::Present, [WorkerId::new(0)]);
    let (key, sender) = link_to(&ring, 1);
    assert_eq!(sender, WorkerId::new(0), "the link goes the way of the transfer");
    let mut link = LinkSender::quic(claim(&workers[0], ring.members[1], key, sender).await);
    let mut linked = soon(workers[1].table.expect(key, sender)).await.unwrap();
    let (donor, driver) = (ring.members[0], &workers[0].driver);
    let training = donate(driver, &ring, state.clone());
    until(|| driver.read(Member::step) == Step::new(1)).await;

    let request = Request::Share {
        step: Step::new(1),
        share: Share::WHOLE,
    };
    // Of this only the answer is read.
    let (_, mut unread) = soon(workers[1].open_share(donor, request, state.len())).await.unwrap();
    // Many times as much as is under way, so that what is not read has come to a stand long before.
    let passing = async {
        for chunk in 0..FRAMES {
            let header = FrameHeader {
                chunk,
                ..header(key.hop, PlanSlot::First)
            };
            link.send(&header, |payload| payload.copy_from_slice(b"sum")).await.unwrap();
            assert_eq!(linked.receive(&header).await.unwrap().to_vec(), b"sum");
        }
    };
    soon(passing).await;
    let mut received = vec![0; state.len()];
    soon(workers[1].receive(donor.worker, &mut unread, &mut received))
        .await
        .unwrap();
    assert!(received == state, "and the transfer, too");
    driver.end();
    training.join().unwrap();
}
