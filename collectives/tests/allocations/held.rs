//! What links hold, beside what a worker says that its links hold at most.

use std::time::Duration;

use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_protocol::memory::{Windows, link_keeps, link_receives, link_sends};
use sardana_protocol::words::{Generation, Incarnation, Step};

use crate::Counting;
use crate::loopback::loopback_with;

fn header(chunk: u32) -> FrameHeader {
    FrameHeader {
        generation: Generation::new(Incarnation::new(1), 1),
        step: Step::ZERO,
        plan: PlanSlot::Steady,
        hop: 0,
        kind: FrameKind::Sum,
        chunk,
        payload_bytes: CHUNK_BYTES as u32,
    }
}

/// A gradient that no window holds.
const LARGE: u64 = 1 << 40;

/// So much that more frames are under way than are kept to be written again.
const WINDOWS: Windows = Windows {
    unread: 12_000_000,
    unacknowledged: 12_000_000,
};

#[test]
fn a_link_over_quic_holds_no_more_than_is_said() {
    let counting = Counting::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let loopback = loopback_with(WINDOWS).await;
        let (mut sender, mut receiver) = loopback.link().await;
        let before = counting.bytes();
        let held = || counting.bytes().saturating_sub(before);
        let frames = u32::try_from(WINDOWS.unread / (CHUNK_BYTES as u64 + 48)).unwrap();
        let mut most = 0;
        for chunk in 0..frames {
            sender.send(&header(chunk), |payload| payload.fill(7)).await.unwrap();
            most = most.max(held());
        }
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            most = most.max(held());
        }
        let said = link_sends(LARGE, WINDOWS) + link_receives(LARGE, WINDOWS);
        println!("{frames} frames under way: {} then {most} bytes at most, {said} said", held());
        assert!(most >= u64::from(frames) * CHUNK_BYTES as u64, "they are under way: {most}");
        assert!(most <= said, "{most} bytes under way, {said} said");

        for chunk in 0..frames {
            receiver.receive(&header(chunk)).await.unwrap();
        }
        // What the connection keeps for itself, and what the receiver has of the next packet.
        let beside = 3 * CHUNK_BYTES as u64;
        let said = link_keeps(LARGE);
        settles(|| held() <= said + beside, "frames are kept to be written again", held).await;
        let at_rest = held();
        sender.finish();
        settles(|| held() <= beside, "what is finished keeps nothing", held).await;
        let kept = at_rest - held();
        println!("at rest: {kept} bytes, {said} said");
        assert!(
            said <= kept && kept <= said + CHUNK_BYTES as u64 / 2,
            "{kept} bytes, {said} said"
        );
        // It is there to the end.
        drop(receiver);
    });
}

/// Waits for acknowledgements.
async fn settles(done: impl Fn() -> bool, what: &str, held: impl Fn() -> u64) {
    let settling = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), settling).await;
    assert!(settled.is_ok(), "{what}: {} bytes", held());
}
