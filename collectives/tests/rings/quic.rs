//! Links and rings over QUIC on loopback.

use bytes::Bytes;
use quinn::VarInt;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::frame::{FrameHeader, HeaderField};
use sardana_collectives::links::{LinkError, LinkReceiver};
use sardana_collectives::ring::RingLinks;
use sardana_collectives::runs::Runs;
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient, patiently};
use crate::faults::HeaderChange;
use crate::links::header;
use crate::loopback::loopback;

async fn received(receiver: &mut LinkReceiver, expected: &FrameHeader) -> Result<Bytes, LinkError> {
    let mut payload = patiently(receiver.receive(expected)).await?;
    Ok(payload.to_vec().into())
}

fn write(payload: &mut [u8]) {
    payload.copy_from_slice(&self::payload());
}

fn payload() -> Bytes {
    (0..CHUNK_BYTES).map(|byte| (byte % 251) as u8).collect()
}

#[tokio::test]
async fn frames_arrive_whole_even_when_the_connection_closes_after_delivery() {
    let loopback = loopback().await;
    let (mut sender, mut receiver) = loopback.link().await;
    let payload = payload();
    sender.send(&header(0, &payload), write).await.unwrap();
    let mut halfway = false;
    sender
        .send_in_halves(&header(1, &payload), write, || halfway = true)
        .await
        .unwrap();
    assert!(halfway);
    sender.finish();
    patiently(sender.delivered()).await;
    drop(sender);
    loopback.client.close(VarInt::from_u32(0), b"done");
    patiently(loopback.server.closed()).await;
    for chunk in 0..2 {
        assert_eq!(received(&mut receiver, &header(chunk, &payload)).await.unwrap(), payload);
    }
}

#[tokio::test]
async fn frames_arrive_whole_in_whatever_parts_they_come() {
    let loopback = loopback().await;
    let payloads: Vec<Bytes> = [900, 0, 1, 3_000].map(|bytes| payload().slice(..bytes)).into();
    let headers: Vec<FrameHeader> = (0..).zip(&payloads).map(|(chunk, payload)| header(chunk, payload)).collect();
    let frames = headers.iter().zip(&payloads);
    let all: Vec<u8> = frames
        .flat_map(|(header, payload)| [&header.encode()[..], payload].concat())
        .collect();
    for part in [1, 7, 50, 1_100, all.len()] {
        let (mut sender, receiver) = loopback.stream().await;
        let mut receiver = LinkReceiver::quic(receiver);
        let sending = async {
            for part in all.chunks(part) {
                sender.write_all(part).await.unwrap();
                // One thread: the connection sends it meanwhile.
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let receiving = async {
            for (header, payload) in headers.iter().zip(&payloads) {
                assert_eq!(received(&mut receiver, header).await.unwrap(), payload, "in parts of {part}");
            }
        };
        tokio::join!(sending, receiving);
    }
}

#[tokio::test]
async fn a_sender_that_is_dropped_resets() {
    let loopback = loopback().await;
    let (mut sender, mut receiver) = loopback.link().await;
    let payload = payload();
    sender.send(&header(0, &payload), write).await.unwrap();
    assert_eq!(received(&mut receiver, &header(0, &payload)).await.unwrap(), payload);
    drop(sender);
    let ended = received(&mut receiver, &header(1, &payload)).await;
    assert!(matches!(ended, Err(LinkError::Reset)));
}

#[tokio::test]
async fn a_good_end_is_an_end_between_frames_and_within_one() {
    let loopback = loopback().await;
    let payload = payload();
    let expected = header(0, &payload);
    let (mut sender, mut receiver) = loopback.link().await;
    sender.finish();
    assert!(matches!(received(&mut receiver, &expected).await, Err(LinkError::Ended(_))));

    let cut: Vec<u8> = [&expected.encode()[..], &payload[..1_000]].concat();
    for bytes in [&cut[..20], &cut] {
        let (mut sender, receiver) = loopback.stream().await;
        sender.write_all(bytes).await.unwrap();
        sender.finish().unwrap();
        let mut receiver = LinkReceiver::quic(receiver);
        assert!(matches!(received(&mut receiver, &expected).await, Err(LinkError::Ended(_))));
    }
}

#[tokio::test]
async fn a_wrong_header_is_refused_before_its_payload() {
    let loopback = loopback().await;
    let payload = payload();
    let expected = header(0, &payload);
    let changed = |change: HeaderChange| {
        let mut wrong = expected;
        change(&mut wrong);
        wrong.encode()
    };
    let wrong = [
        (
            HeaderField::Count,
            changed(|header| header.generation = header.generation.next()),
        ),
        (HeaderField::Step, changed(|header| header.step = header.step.next())),
        (HeaderField::PayloadBytes, changed(|header| header.payload_bytes = u32::MAX)),
        (HeaderField::Magic, [0x5a; 48]),
    ];
    for (field, bytes) in wrong {
        let (mut sender, receiver) = loopback.stream().await;
        // No payload follows, so the answer cannot come from reading it.
        sender.write_all(&bytes).await.unwrap();
        let error = received(&mut LinkReceiver::quic(receiver), &expected).await.unwrap_err();
        assert!(
            matches!(error, LinkError::Unexpected { field: found, .. } if found == field),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_stops_or_is_lost_is_told() {
    let loopback = loopback().await;
    let (mut sender, receiver) = loopback.link().await;
    let payload = payload();
    drop(receiver);
    let refused = async {
        loop {
            if let Err(error) = sender.send(&header(0, &payload), write).await {
                return error;
            }
        }
    };
    assert!(matches!(patiently(refused).await, LinkError::Refused));

    let (_sender, mut receiver) = loopback.link().await;
    loopback.client.close(VarInt::from_u32(0), b"gone");
    let ended = received(&mut receiver, &header(0, &payload)).await;
    assert!(matches!(ended, Err(LinkError::Lost(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_over_quic_sum_like_one_machine() {
    const STEPS: u64 = 3;
    for order in [Order::Exact, Order::Fast] {
        let dance = Dance::new(order, 3, 8);
        let loopback = loopback().await;
        let mut links = Vec::new();
        for _hop in dance.first.hops().iter().chain(dance.steady.hops()) {
            links.push(loopback.link().await);
        }
        let links = RingLinks::of_all(&dance.first, &dance.steady, || links.pop().unwrap());
        let sums = dance.run(links, STEPS, true).await;
        for (ranks, step) in sums.iter().zip(FIRST_STEP.get()..) {
            assert!(ranks.iter().all(|other| other == &ranks[0]));
            let last = step == FIRST_STEP.get() + STEPS - 1;
            assert_eq!(ranks[0].1, if last { Trailer::Stop } else { Trailer::Continue });
            let expected = Gradient::sequential(&dance.layout, Step::new(step), 8).buffer(&dance.layout);
            match order {
                Order::Exact => assert!(ranks[0].0 == expected.bytes(), "s{step} differs"),
                Order::Fast => assert_eq!(ranks[0].0.len(), expected.bytes().len()),
            }
        }
    }
}
