//! Paths between hosts, in virtual time: how much one stream carries where a round trip is long, and how large datagrams become.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::line::{ROUND_TRIP, line, loopback, read, stream};
use super::*;
use crate::quic::Reach;
use crate::quic::limits::{
    LOOPBACK_V4_BYTES, NETWORK_BYTES, REGAIN_AFTER, SEARCH_AGAIN_AFTER, SEARCH_EVERY, TIGHT_LOOPBACK_BYTES,
};

/// The most that one stream carries within a round trip, looked for during `patience`.
async fn most_within_a_round_trip(reach: Reach, patience: Duration) -> usize {
    let (_sending, mut receiving, _endpoints) = stream(&line(1 << 16, None), reach, Duration::ZERO).await;
    let (began, mut within, mut sum, mut most) = (Instant::now(), VecDeque::new(), 0, 0);
    while began.elapsed() < patience {
        let chunk = receiving.read_chunk(usize::MAX, true).await.unwrap().unwrap();
        let now = Instant::now();
        within.push_back((now, chunk.bytes.len()));
        sum += chunk.bytes.len();
        while within.front().is_some_and(|&(at, _)| now - at >= ROUND_TRIP) {
            sum -= within.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        most = most.max(sum);
    }
    most
}

#[tokio::test(start_paused = true)]
async fn a_stream_fills_ten_gigabits_at_a_tenth_of_a_second_where_workers_are_said_to_be_so_far() {
    let near = most_within_a_round_trip(Reach::default(), Duration::from_secs(2)).await;
    assert!(
        (12_500_000..17_000_000).contains(&near),
        "{near} bytes, as much as 1 Gbit/s carries"
    );
    let far = Reach::of(ROUND_TRIP).unwrap();
    let far = most_within_a_round_trip(far, Duration::from_millis(1_900)).await;
    assert!(far >= 125_000_000, "{far} bytes, as much as 10 Gbit/s carry");
}

#[tokio::test(start_paused = true)]
async fn datagrams_become_as_large_as_the_path_carries_and_smaller_again() {
    const PATIENCE: Duration = Duration::from_secs(6);
    // UDP payloads of networks of 9,000, and of 1,500, which quinn finds but for 20 bytes.
    for (carries, least, most) in [(8_972, NETWORK_BYTES, NETWORK_BYTES), (1_472, 1_452, 1_472)] {
        let line = line(carries, None);
        let (sending, mut receiving, _endpoints) = stream(&line, Reach::default(), ROUND_TRIP / 10).await;
        read(&mut receiving, PATIENCE).await;
        let found = sending.stats().path;
        assert!((least..=most).contains(&found.current_mtu), "{found:?}");
        assert_eq!(found.black_holes_detected, 0);
        // From now on it carries no more than QUIC needs.
        line.carries.store(1_200, Ordering::Relaxed);
        let bytes = read(&mut receiving, 2 * PATIENCE).await;
        let found = sending.stats().path;
        assert_eq!(found.current_mtu, 1_200);
        assert!(found.black_holes_detected > 0, "{found:?}");
        assert!(bytes > 1 << 20, "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn datagrams_have_their_size_again_soon_after_losses_that_were_not_of_their_size() {
    const PATIENCE: Duration = Duration::from_secs(6);
    let line = line(1_472, None);
    let (sending, mut receiving, _endpoints) = stream(&line, Reach::default(), ROUND_TRIP / 10).await;
    read(&mut receiving, PATIENCE).await;
    let path = || sending.stats().path;
    assert!(path().current_mtu >= 1_452);
    line.carries.store(1_200, Ordering::Relaxed);
    while path().black_holes_detected == 0 {
        read(&mut receiving, ROUND_TRIP).await;
    }
    assert_eq!(path().current_mtu, 1_200);
    line.carries.store(1_472, Ordering::Relaxed);
    read(&mut receiving, SEARCH_AGAIN_AFTER + PATIENCE).await;
    assert!(path().current_mtu >= 1_452, "{:?}", path());
    // And after a search that was in vain.
    line.carries.store(1_200, Ordering::Relaxed);
    read(&mut receiving, SEARCH_AGAIN_AFTER + 2 * PATIENCE).await;
    assert_eq!(path().current_mtu, 1_200);
    line.carries.store(1_472, Ordering::Relaxed);
    read(&mut receiving, SEARCH_EVERY + PATIENCE).await;
    assert!(path().current_mtu >= 1_452, "{:?}", path());
}

#[tokio::test(start_paused = true)]
async fn datagrams_of_loopback_are_the_largest_again_once_those_are_no_longer_dropped() {
    const PATIENCE: Duration = Duration::from_secs(6);
    let line = loopback(LOOPBACK_V4_BYTES.into());
    let (sending, mut receiving, _endpoints) = stream(&line, Reach::default(), ROUND_TRIP / 10).await;
    read(&mut receiving, ROUND_TRIP).await;
    let mtu = || sending.stats().path.current_mtu;
    assert_eq!(mtu(), LOOPBACK_V4_BYTES);
    // As by a peer that has little room for what comes.
    line.carries.store(TIGHT_LOOPBACK_BYTES.into(), Ordering::Relaxed);
    read(&mut receiving, PATIENCE).await;
    assert_eq!(mtu(), TIGHT_LOOPBACK_BYTES);
    let bytes = read(&mut receiving, PATIENCE).await;
    assert_eq!(mtu(), TIGHT_LOOPBACK_BYTES, "what is tried in vain keeps nothing up");
    assert!(bytes > 1 << 20, "{bytes} bytes");
    line.carries.store(LOOPBACK_V4_BYTES.into(), Ordering::Relaxed);
    read(&mut receiving, REGAIN_AFTER + 6 * ROUND_TRIP).await;
    assert_eq!(mtu(), LOOPBACK_V4_BYTES);
}
