//! A congestion controller for long ways: CUBIC, but a loss while nothing queues is taken for chance. Must not know connections.
//!
//! CUBIC (RFC 9438) takes every loss for congestion. What it then carries at a loss of `p` falls with `1/sqrt(p)` and with the round trip, as
//! Reno's does (RFC 9438, 4.3), whatever the path could carry. Over 100 ms and 100 Mbit/s that is 8 to 12 % of the path where 0.1 % is
//! lost by chance, and 1 to 2 % where 1 % is (five seeds). Here it is 89 to 92 %, and 70 to 90 %; where 3 % is lost, 5 % instead of 1. It is as
//! much as with CUBIC, beside others as well, where what is lost found no room in a queue. A new connection passes 8 MB at 1 % in 1.3 s
//! instead of 46. Measured in virtual time: `cargo bench -p sardana-chaos-tests --bench congestion -- 100 100 20 --loss-percent 1 --seed 2`.
//!
//! A router that drops a packet for want of room has a full queue, which made the round trips of the packets before it longer than the shortest
//! there was. So a loss while they are not longer is none of congestion (as in TCP Veno: Fu and Liew, 2003), unless so much is lost that there
//! is next to no queue: more than BBR bears (`BBR.LossThresh` of its draft, 2 % within a round trip). Where the queue is a twentieth of what
//! is under way, the delay does not show it: a CUBIC that shares it gets a third of what both carry at 100 ms, and a fifth at 20, where the queue
//! holds eight packets and two CUBICs would leave four fifths of the line idle.

use std::any::Any;
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, Cubic, CubicConfig};
use quinn_proto::RttEstimator;

use super::limits::{CHANCE_LOSS_SHARE, CHANCE_LOSSES, QUEUE_LEAST, QUEUE_SHARE};

/// Makes [`Discerning`] of CUBIC with these settings.
#[derive(Debug)]
pub(super) struct DiscerningConfig(pub(super) CubicConfig);

impl ControllerFactory for DiscerningConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Discerning {
            cubic: Cubic::new(Arc::new(self.0.clone()), now, current_mtu),
            losses: Losses::new(now, current_mtu),
        })
    }
}

/// CUBIC, which is told of a loss only where it is of congestion.
#[derive(Clone, Debug)]
pub(super) struct Discerning {
    cubic: Cubic,
    losses: Losses,
}

/// What tells losses apart.
#[derive(Clone, Debug)]
struct Losses {
    datagram_bytes: u64,
    /// Whether packets queue: the last round trips are longer than the shortest.
    queues: bool,
    last: Round,
    /// When the last round is over.
    round_ends: Instant,
    /// The round before it.
    before: Round,
}

/// How many bytes came through and how many did not, as was heard within a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    acked: u64,
    lost: u64,
}

impl Losses {
    fn new(now: Instant, datagram_bytes: u16) -> Self {
        Self {
            datagram_bytes: u64::from(datagram_bytes),
            queues: false,
            last: Round::default(),
            round_ends: now,
            before: Round::default(),
        }
    }

    /// Bytes came through, while round trips take so long now and took so long at least.
    fn acked(&mut self, now: Instant, bytes: u64, round_trip: Duration, shortest: Duration) {
        self.queues = round_trip.saturating_sub(shortest) > (shortest / QUEUE_SHARE).max(QUEUE_LEAST);
        if now >= self.round_ends {
            self.round_ends = now + round_trip;
            self.before = take(&mut self.last);
        }
        self.last.acked += bytes;
    }

    /// Bytes were lost: whether of congestion. None are where explicit congestion notification (ECN) tells of it instead.
    fn lost(&mut self, bytes: u64, is_persistent_congestion: bool) -> bool {
        self.last.lost += bytes;
        let congestion = bytes == 0 || is_persistent_congestion || self.queues || self.loses_much();
        if congestion {
            (self.before, self.last) = (Round::default(), Round::default());
        }
        congestion
    }

    fn loses_much(&self) -> bool {
        let (acked, lost) = (self.before.acked + self.last.acked, self.before.lost + self.last.lost);
        lost > CHANCE_LOSSES * self.datagram_bytes + (acked + lost) / CHANCE_LOSS_SHARE
    }
}

impl Controller for Discerning {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.losses.acked(now, bytes, rtt.get(), rtt.min());
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_acked: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        if self.losses.lost(lost_bytes, is_persistent_congestion) {
            self.cubic
                .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.losses.datagram_bytes = u64::from(new_mtu);
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u64 = 1_000;
    const SHORTEST: Duration = Duration::from_millis(80);

    /// A round trip ago and now, so many datagrams came through.
    fn losses(datagrams: u64, round_trip: Duration) -> Losses {
        let now = Instant::now();
        let mut losses = Losses::new(now, 1_000);
        for round in [now, now + round_trip] {
            losses.acked(round, datagrams / 2 * DATAGRAM, round_trip, SHORTEST);
        }
        losses
    }

    #[test]
    fn a_loss_is_of_congestion_where_packets_queue() {
        let (at_most, more) = (SHORTEST + Duration::from_millis(10), SHORTEST + Duration::from_millis(11));
        assert!(!losses(1_000, at_most).lost(DATAGRAM, false));
        assert!(losses(1_000, more).lost(DATAGRAM, false));
        // Where round trips are short, a millisecond more is none of a queue.
        let mut short = Losses::new(Instant::now(), 1_000);
        short.acked(Instant::now(), 1_000, Duration::from_millis(5), Duration::from_millis(3));
        assert!(!short.lost(DATAGRAM, false));
    }

    #[test]
    fn a_loss_is_of_congestion_where_much_is_lost() {
        for (datagrams, bearable) in [(0, 3), (98, 5), (980, 23)] {
            let mut losses = losses(datagrams, SHORTEST);
            for _ in 0..bearable {
                assert!(!losses.lost(DATAGRAM, false), "of {datagrams}");
            }
            assert!(losses.lost(DATAGRAM, false), "of {datagrams}");
            assert!(
                !losses.lost(DATAGRAM, false),
                "it was heeded, and what was lost before counts no more"
            );
        }
    }

    #[test]
    fn a_loss_of_long_ago_counts_no_more() {
        let mut losses = losses(0, SHORTEST);
        assert!(!losses.lost(3 * DATAGRAM, false));
        for round in 2..4 {
            losses.acked(losses.round_ends + SHORTEST * round, 0, SHORTEST, SHORTEST);
        }
        assert!(!losses.lost(3 * DATAGRAM, false));
        assert!(losses.lost(DATAGRAM, false));
    }

    #[test]
    fn what_says_itself_that_it_is_congestion_is() {
        assert!(losses(1_000, SHORTEST).lost(0, false), "a mark");
        assert!(losses(1_000, SHORTEST).lost(DATAGRAM, true), "nothing came through for long");
    }

    #[test]
    fn its_window_is_cubics_and_shrinks_by_congestion_alone() {
        let (began, mut config) = (Instant::now(), CubicConfig::default());
        config.initial_window(100_000);
        let mut controller = Arc::new(DiscerningConfig(config)).build(began, 1_200);
        let (sent, now) = (began + SHORTEST, began + 2 * SHORTEST);
        assert_eq!((controller.initial_window(), controller.window()), (100_000, 100_000));
        controller.on_congestion_event(now, sent, false, 1_200);
        assert_eq!(controller.window(), 100_000);
        controller.on_congestion_event(now, sent, false, 0);
        assert_eq!(controller.window(), 70_000);
    }
}
