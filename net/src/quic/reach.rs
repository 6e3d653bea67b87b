//! How far a worker's farthest peer is, and so how much may be under way to it and from it. Must not know connections.

use std::time::Duration;

use super::limits::{
    FARTHEST, NETWORK_BYTES_PER_SECOND, SEND_WINDOW_STREAMS, STREAM_WINDOW_BYTES, WINDOW_STREAMS, window_bytes,
};

/// How far the farthest peer is. QUIC promises a stream as many bytes as this makes of the pace at which one stream is to go and the time
/// until the sender hears that they were read; so a path is not filled by a worker that takes it for shorter than it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    stream_bytes: u32,
}

impl Default for Reach {
    /// 11 ms: one stream fills 10 Gbit/s at that, and 1 Gbit/s at 100 ms.
    fn default() -> Self {
        Self {
            stream_bytes: STREAM_WINDOW_BYTES,
        }
    }
}

impl Reach {
    /// One stream goes at 10 Gbit/s where a round trip takes so long. None beyond [`FARTHEST`]. Never less than the default.
    #[must_use]
    pub fn of(round_trip: Duration) -> Option<Self> {
        (round_trip <= FARTHEST).then(|| Self {
            stream_bytes: window_bytes(NETWORK_BYTES_PER_SECOND, round_trip).max(STREAM_WINDOW_BYTES),
        })
    }

    /// What a peer may send on one stream before it is read.
    #[must_use]
    pub const fn stream_bytes(self) -> u32 {
        self.stream_bytes
    }

    /// What a named peer may send over one connection before it is read: [`WINDOW_STREAMS`] full streams.
    #[must_use]
    pub const fn connection_bytes(self) -> u32 {
        WINDOW_STREAMS * self.stream_bytes
    }

    /// Whether a peer is said to be farther than the default takes it for.
    #[must_use]
    pub(super) const fn is_far(self) -> bool {
        self.stream_bytes > STREAM_WINDOW_BYTES
    }

    /// What is kept of what was sent over one connection until the peer has acknowledged it.
    #[must_use]
    pub const fn send_bytes(self) -> u64 {
        SEND_WINDOW_STREAMS as u64 * self.stream_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{CONNECTIONS_OF_PEER, PEER_WINDOW_BYTES};
    use super::*;

    #[test]
    fn a_stream_fills_the_path_and_what_a_peer_may_cost_is_bounded() {
        assert_eq!(Reach::default().connection_bytes(), PEER_WINDOW_BYTES);
        assert_eq!(Reach::of(Duration::ZERO), Some(Reach::default()));
        assert_eq!(Reach::of(Duration::from_millis(11)), Some(Reach::default()));
        assert_eq!(Reach::of(FARTHEST + Duration::from_nanos(1)), None);
        // Within an eighth less than the window there is no news of more room.
        for (millis, under_way) in [(20, 25_000_000), (50, 62_500_000), (100, 125_000_000)] {
            let reach = Reach::of(Duration::from_millis(millis)).unwrap();
            let usable = u64::from(reach.stream_bytes()) / 8 * 7;
            assert!(
                (under_way..under_way + under_way / 100).contains(&usable),
                "{millis} ms: {usable}"
            );
        }
        let farthest = Reach::of(FARTHEST).unwrap();
        assert!(CONNECTIONS_OF_PEER as u64 * u64::from(farthest.connection_bytes()) <= 2_600_000_000);
    }
}
