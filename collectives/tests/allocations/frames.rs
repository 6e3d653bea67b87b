//! Frames over QUIC, beside as many bytes over a plain stream of the same connection: quinn allocates for its packets, and the link must add
//! nothing to that.

use bytes::Bytes;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HEADER_BYTES, PlanSlot};
use sardana_collectives::runs::Runs;
use sardana_protocol::words::{Generation, Incarnation, Step};

use crate::Counting;
use crate::loopback::{Loopback, loopback};

/// Bytes of a payload: a packet has room for several.
const PAYLOAD: usize = 200;

/// Frames before the measured ones, and these.
const FIRST: u32 = 200;
const FRAMES: u32 = 2_000;

fn header(chunk: u32) -> FrameHeader {
    FrameHeader {
        generation: Generation::new(Incarnation::new(1), 1),
        step: Step::ZERO,
        plan: PlanSlot::Steady,
        hop: 0,
        kind: FrameKind::Sum,
        chunk,
        payload_bytes: PAYLOAD as u32,
    }
}

/// Blocks for as many frames, each received before the next is sent.
async fn by_link(counting: &Counting, loopback: &Loopback) -> u64 {
    let (mut sender, mut receiver) = loopback.link().await;
    let mut before = 0;
    for chunk in 0..FIRST + FRAMES {
        if chunk == FIRST {
            before = counting.blocks();
        }
        let header = header(chunk);
        sender.send(&header, |payload| payload.fill(7)).await.unwrap();
        let mut received = [0; PAYLOAD];
        receiver.receive(&header).await.unwrap().copy_to(&mut received);
        assert_eq!(received, [7; PAYLOAD]);
    }
    counting.blocks() - before
}

/// The same for what is no link.
async fn by_stream(counting: &Counting, loopback: &Loopback) -> u64 {
    static FRAME: [u8; HEADER_BYTES + PAYLOAD] = [7; HEADER_BYTES + PAYLOAD];
    let (mut sender, mut receiver) = loopback.stream().await;
    let mut before = 0;
    for number in 0..FIRST + FRAMES {
        if number == FIRST {
            before = counting.blocks();
        }
        sender.write_chunk(Bytes::from_static(&FRAME)).await.unwrap();
        let mut received = [0; HEADER_BYTES + PAYLOAD];
        receiver.read_exact(&mut received).await.unwrap();
        assert_eq!(received, FRAME);
    }
    counting.blocks() - before
}

#[test]
fn a_frame_over_quic_allocates_what_its_packet_does() {
    let counting = Counting::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (link, stream) = runtime.block_on(async {
        let loopback = loopback().await;
        (by_link(&counting, &loopback).await, by_stream(&counting, &loopback).await)
    });
    println!("{FRAMES} frames: {link} blocks by a link, {stream} by a stream");
    assert!(
        link < stream + u64::from(FRAMES) / 2,
        "{link} blocks by a link, {stream} by a stream"
    );
}
