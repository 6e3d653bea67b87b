//! Links within a process obey the rules of a stream.

use sardana_collectives::limits::QUEUED_CHUNKS;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::links::{LinkError, LinkReceiver, LinkSender, in_process};
use sardana_collectives::runs::Runs;
use sardana_protocol::messages::LinkKind;

use tokio::sync::watch;

use crate::dance::{FIRST_STEP, GENERATION};

pub(crate) fn header(chunk: u32, payload: &[u8]) -> FrameHeader {
    FrameHeader {
        generation: GENERATION,
        step: FIRST_STEP,
        plan: PlanSlot::Steady,
        hop: 5,
        kind: FrameKind::Sum,
        chunk,
        payload_bytes: u32::try_from(payload.len()).unwrap(),
    }
}

/// Writes the payload of these tests.
pub(crate) fn write(payload: &mut [u8]) {
    payload.copy_from_slice(b"sum");
}

#[tokio::test]
async fn frames_arrive_in_order_and_the_end_is_told() {
    let (mut sender, mut receiver) = in_process();
    let payload = b"sum";
    for chunk in 0..3 {
        sender.send(&header(chunk, payload), write).await.unwrap();
    }
    sender.finish();
    assert!(matches!(
        sender.send(&header(3, payload), write).await,
        Err(LinkError::Closed)
    ));
    drop(sender);
    for chunk in 0..3 {
        let mut received = receiver.receive(&header(chunk, payload)).await.unwrap();
        assert_eq!(received.to_vec(), payload);
    }
    assert!(matches!(
        receiver.receive(&header(3, payload)).await,
        Err(LinkError::Ended(_))
    ));
}

#[tokio::test]
async fn a_sender_that_is_dropped_resets() {
    let (sender, mut receiver) = in_process();
    drop(sender);
    assert!(matches!(receiver.receive(&header(0, b"sum")).await, Err(LinkError::Reset)));
}

#[tokio::test]
async fn a_full_link_holds_its_sender_back() {
    let (mut sender, mut receiver) = in_process();
    let payload = b"sum";
    let chunks = u32::try_from(QUEUED_CHUNKS).unwrap() + 1;
    let sending = tokio::spawn({
        async move {
            for chunk in 0..chunks {
                sender.send(&header(chunk, payload), write).await.unwrap();
            }
            sender
        }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!sending.is_finished());
    receiver.receive(&header(0, payload)).await.unwrap();
    let mut sender = sending.await.unwrap();
    drop(receiver);
    assert!(matches!(
        sender.send(&header(0, payload), write).await,
        Err(LinkError::Refused)
    ));
}

#[tokio::test]
async fn a_link_counts_the_frames_that_have_passed_and_no_others() {
    let (mut sender, mut receiver) = in_process();
    assert_eq!((sender.kind(), receiver.kind()), (LinkKind::InProcess, LinkKind::InProcess));
    let (sent, received) = (sender.meter().clone(), receiver.meter().clone());
    let payload = b"sum";
    sender.send(&header(0, payload), write).await.unwrap();
    sender.send_in_halves(&header(1, payload), write, || ()).await.unwrap();
    assert_eq!((sent.bytes(), received.bytes()), (2 * (48 + 3), 0));
    receiver.receive(&header(0, payload)).await.unwrap();
    assert_eq!(received.bytes(), 48 + 3);
    receiver.receive(&header(7, payload)).await.unwrap_err();
    drop(receiver);
    sender.send(&header(2, payload), write).await.unwrap_err();
    assert_eq!((sent.bytes(), received.bytes()), (2 * (48 + 3), 48 + 3));
}

#[tokio::test]
async fn ends_that_never_wait_let_other_tasks_go_on() {
    #[cfg(target_os = "linux")]
    goes_on(sardana_collectives::links::shared_memory_in_process().unwrap()).await;
    goes_on(in_process()).await;
}

async fn goes_on((mut sender, mut receiver): (LinkSender, LinkReceiver)) {
    let (passed, seen) = watch::channel(0);
    let other = tokio::spawn(async move { *seen.borrow() });
    for chunk in 0..1_000 {
        let header = header(chunk, b"sum");
        sender.send(&header, write).await.unwrap();
        receiver.receive(&header).await.unwrap();
        passed.send_replace(chunk);
    }
    let seen = other.await.unwrap();
    assert!(seen < 500, "the other task had its first turn after frame {seen}");
}
