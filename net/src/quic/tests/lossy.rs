//! Paths between hosts on which some is lost, in virtual time: how much one stream carries, and that it is what was sent.

use std::sync::atomic::Ordering;

use super::line::{Narrow, ROUND_TRIP, connected, line, read, stream};
use super::*;
use crate::quic::Reach;

/// What Ethernet carries of a UDP datagram.
const ETHERNET: usize = 1_472;

/// 50 Mbit/s.
const BYTES_PER_SECOND: f64 = 6_250_000.0;

/// What one stream carries of such a path within some seconds, and how many datagrams found no room on it.
async fn carried(reach: Reach, queue: Duration, loses_one_of: Option<usize>) -> (f64, usize) {
    const PATIENCE: Duration = Duration::from_secs(6);
    let narrow = Narrow {
        bytes_per_second: BYTES_PER_SECOND,
        queue,
        loses_one_of,
    };
    let line = line(ETHERNET, Some(narrow));
    let (_sending, mut receiving, _endpoints) = stream(&line, reach, Duration::ZERO).await;
    let bytes = read(&mut receiving, PATIENCE).await;
    let share = bytes as f64 / BYTES_PER_SECOND / PATIENCE.as_secs_f64();
    (share, line.dropped.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_by_chance_slows_a_far_peer_little() {
    let far = Reach::of(ROUND_TRIP).unwrap();
    let (share, _) = carried(far, ROUND_TRIP, Some(97)).await;
    assert!(share > 0.6, "{share}");
    // CUBIC, by RFC 9438: a window of some twelve datagrams each round trip.
    let (cubic, _) = carried(Reach::default(), ROUND_TRIP, Some(97)).await;
    assert!(cubic < 0.06, "{cubic}");
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_slows_a_far_peer_as_any() {
    let far = Reach::of(ROUND_TRIP).unwrap();
    for part in [1, 4] {
        let (share, dropped) = carried(far, ROUND_TRIP / part, None).await;
        let (cubics, of_cubic) = carried(Reach::default(), ROUND_TRIP / part, None).await;
        assert!(of_cubic > 0 && cubics > 0.7 && share > 0.7, "{cubics}, {share}");
        assert!(dropped <= of_cubic + of_cubic / 4, "{dropped} and {of_cubic} datagrams");
    }
}

#[tokio::test(start_paused = true)]
async fn what_arrives_is_what_was_sent() {
    const BYTES: usize = 3_000_000;
    for reach in [Reach::default(), Reach::of(ROUND_TRIP).unwrap()] {
        let narrow = Narrow {
            bytes_per_second: BYTES_PER_SECOND,
            queue: ROUND_TRIP / 4,
            loses_one_of: Some(29),
        };
        let line = line(ETHERNET, Some(narrow));
        let (sending, taking, _endpoints) = connected(&line, reach).await;
        let data: Vec<u8> = (0..BYTES as u32 / 4)
            .flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes())
            .collect();
        let mut stream = sending.open_uni().await.unwrap();
        let sent = data.clone();
        tokio::spawn(async move {
            stream.write_all(&sent).await.unwrap();
            stream.finish().unwrap();
            stream.stopped().await
        });
        let mut receiving = taking.accept_uni().await.unwrap();
        assert!(receiving.read_to_end(BYTES).await.unwrap() == data, "other bytes arrived");
        assert!(sending.stats().path.lost_packets > 60, "{:?}", sending.stats().path);
    }
}
