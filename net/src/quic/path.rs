//! Which datagrams suit the path: loopback carries 64 KiB at once, everywhere else QUIC's own discovery finds what is carried. And which
//! congestion controller.
//!
//! - **Loopback**: CUBIC. Nothing is lost there that a smaller window would have saved: the send window keeps to the sockets' buffers.
//! - **A network**: CUBIC, whose first window is ten of the largest datagrams (RFC 9002, 7.2, has ten as well, but of no more than 14,720 bytes
//!   together; quinn has 12,000). Over 100 ms a new connection takes 216 ms instead of 409 for 80 KB, and 504 instead of 769 for 800 KB. What
//!   it sends is paced: of 80 KB nothing found no room where routers held a quarter of what is under way over 20 ms or 100, at 10 Mbit/s
//!   as well. Over 1 ms and 1 Gbit/s seven datagrams did (instead of one), and it took 6 ms instead of 10; with twice the window 27, and 35 ms.
//! - **One that is said to be far**: the same, but [`Discerning`] of losses. Nearer, round trips tell too little of queues, and next to nothing
//!   is lost but for want of room.
//!
//! Not NewReno: over 100 ms and such a router it carries 71 % where CUBIC carries 92, and as little where some is lost by chance. Not BBR as quinn
//! 0.11 has it (its docs say that it is experimental, its maintainers that it is old): it is not paced by its own rate, and its estimate of
//! the bandwidth never falls. Alone on a path of 100 Mbit/s it loses 67 % of what it sends at 100 ms and carries 15 %; at 20 ms it loses 83 %,
//! and leaves 9 % to CUBIC beside it. `cargo bench -p sardana-chaos-tests --bench congestion -- 20 100 20 --of bbr --beside cubic`.
//!
//! [`Discerning`]: super::discerning::Discerning

use std::net::IpAddr;
use std::sync::Arc;

use quinn::congestion::CubicConfig;
use quinn::{MtuDiscoveryConfig, TransportConfig};

use super::discerning::DiscerningConfig;
use super::limits::{
    LEAST_DATAGRAMS, LOOPBACK_STREAM_WINDOW_BYTES, LOOPBACK_V4_BYTES, LOOPBACK_V6_BYTES, LOOPBACK_WINDOW_BYTES,
    NETWORK_BYTES, NETWORK_WINDOW_BYTES, REGAIN_AFTER, ROOMY_BUFFER_BYTES, SEARCH_AGAIN_AFTER, SEARCH_EVERY,
    TIGHT_LOOPBACK_BYTES,
};
use super::reach::Reach;
use crate::environment::Congestion;

/// What an endpoint on one local address does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Within this host only.
    Loopback {
        /// The UDP payload that every datagram fills.
        datagram_bytes: u16,
        /// What one connection may have on its way.
        window_bytes: usize,
    },
    /// Through a network, or to every address of this host.
    Network {
        /// How far the farthest peer is.
        reach: Reach,
    },
}

impl Path {
    /// The path of an endpoint at `local` whose sockets have buffers of `buffer_bytes`, and whose peers are within `reach`.
    pub(super) fn of(local: IpAddr, buffer_bytes: usize, reach: Reach) -> Self {
        if !local.is_loopback() {
            return Self::Network { reach };
        }
        let largest = if local.is_ipv4() {
            LOOPBACK_V4_BYTES
        } else {
            LOOPBACK_V6_BYTES
        };
        let datagram_bytes = if buffer_bytes < ROOMY_BUFFER_BYTES {
            TIGHT_LOOPBACK_BYTES
        } else {
            largest
        };
        Self::Loopback {
            datagram_bytes,
            window_bytes: buffer_bytes.max(LEAST_DATAGRAMS * usize::from(datagram_bytes)),
        }
    }

    /// The largest UDP payload to accept at `local`.
    ///
    /// An endpoint at every address of its host is also reached over loopback, by peers that fill loopback's datagrams.
    pub(super) fn accepted_bytes(self, local: IpAddr) -> u16 {
        match self {
            // The peer may have found more buffer than this end.
            Self::Loopback { .. } if local.is_ipv4() => LOOPBACK_V4_BYTES,
            Self::Loopback { .. } => LOOPBACK_V6_BYTES,
            Self::Network { .. } if local.is_unspecified() => LOOPBACK_V4_BYTES,
            Self::Network { .. } => NETWORK_BYTES,
        }
    }

    /// What a peer may send on one stream before it is read.
    pub(super) const fn stream_bytes(self) -> u32 {
        match self {
            Self::Loopback { .. } => LOOPBACK_STREAM_WINDOW_BYTES,
            Self::Network { reach } => reach.stream_bytes(),
        }
    }

    /// What decides how fast a connection sends.
    fn congestion(self) -> Congestion {
        let mut cubic = CubicConfig::default();
        match self {
            Self::Loopback { window_bytes, .. } => {
                cubic.initial_window(LOOPBACK_WINDOW_BYTES.min(window_bytes) as u64);
                Arc::new(cubic)
            }
            Self::Network { reach } => {
                cubic.initial_window(NETWORK_WINDOW_BYTES);
                if reach.is_far() {
                    Arc::new(DiscerningConfig(cubic))
                } else {
                    Arc::new(cubic)
                }
            }
        }
    }

    /// Fits a connection to the path.
    pub(super) fn fit(self, transport: &mut TransportConfig) {
        transport.congestion_controller_factory(self.congestion());
        match self {
            Self::Network { reach } => {
                let mut discovery = MtuDiscoveryConfig::default();
                discovery
                    .upper_bound(NETWORK_BYTES)
                    .black_hole_cooldown(SEARCH_AGAIN_AFTER)
                    .interval(SEARCH_EVERY);
                transport
                    .mtu_discovery_config(Some(discovery))
                    .send_window(reach.send_bytes());
            }
            Self::Loopback {
                datagram_bytes,
                window_bytes,
            } => {
                transport
                    // Ten segments of such datagrams exceed 64 KiB and would be lost without a word.
                    .enable_segmentation_offload(false)
                    // Bursts dropped for want of buffer look like a path that lost its MTU; it then falls to this.
                    // Handshake packets are padded to it too, and quinn-proto panics at one of 16 KiB (2^14) or more.
                    .min_mtu(TIGHT_LOOPBACK_BYTES)
                    .initial_mtu(datagram_bytes)
                    .mtu_discovery_config(regaining(datagram_bytes))
                    // Both ends are on one host and got alike buffers. More on the way than fits is dropped by the kernel. Several peers that
                    // send at once may fill one buffer: of three, one datagram of 400 to 5,000 was lost. With a mebibyte each none was, and it took 3 to 6 %
                    // less of the processors; but on a busy host a process that waits for its turn is sent less meanwhile.
                    .send_window(window_bytes as u64);
            }
        }
    }
}

/// How a connection on loopback finds datagrams of so many bytes again, after it has taken bursts that were dropped for a path that lost its MTU. It tries no
/// other size: a datagram of the largest, at most three times, each [`REGAIN_AFTER`]. (Without, half of the datagrams of four workers that all send to each other
/// were small ones after some seconds, and a sum of 16 MiB took 36 to 37 ms in place of 30 to 32.)
fn regaining(datagram_bytes: u16) -> Option<MtuDiscoveryConfig> {
    let lost = datagram_bytes.checked_sub(TIGHT_LOOPBACK_BYTES).filter(|&lost| lost > 0)?;
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(datagram_bytes)
        .minimum_change(lost)
        .black_hole_cooldown(REGAIN_AFTER)
        .interval(REGAIN_AFTER);
    Some(discovery)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::{Duration, Instant};

    use quinn::congestion::{Controller, Cubic};

    use super::super::discerning::Discerning;
    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn a_roomy_loopback_fills_its_datagrams() {
        for (local, datagram_bytes) in [(V4, 65_507), (V6, 65_488)] {
            let path = Path::Loopback {
                datagram_bytes,
                window_bytes: 4 << 20,
            };
            assert_eq!(Path::of(local, 4 << 20, Reach::default()), path);
            assert_eq!(path.accepted_bytes(local), datagram_bytes);
        }
    }

    #[test]
    fn a_tight_loopback_keeps_to_its_buffer() {
        let path = Path::Loopback {
            datagram_bytes: TIGHT_LOOPBACK_BYTES,
            window_bytes: 212_992,
        };
        assert_eq!(Path::of(V4, 212_992, Reach::default()), path);
        assert_eq!(path.accepted_bytes(V4), 65_507, "the other end may have more");
        let least = Path::Loopback {
            datagram_bytes: TIGHT_LOOPBACK_BYTES,
            window_bytes: 60_000,
        };
        assert_eq!(
            Path::of(V4, 0, Reach::default()),
            least,
            "a window of no datagram would never send"
        );
    }

    fn controller(path: Path) -> Box<dyn Controller> {
        path.congestion().build(Instant::now(), NETWORK_BYTES)
    }

    #[test]
    fn all_but_far_peers_are_sent_to_by_cubic() {
        let host = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let network = |millis| Path::of(host, 4 << 20, Reach::of(Duration::from_millis(millis)).unwrap());
        for (path, first) in [(Path::of(V4, 4 << 20, Reach::default()), 1 << 20), (network(11), 65_400)] {
            assert_eq!(controller(path).initial_window(), first);
            assert!(controller(path).into_any().is::<Cubic>(), "{path:?}");
        }
        for millis in [12, 100] {
            assert_eq!(controller(network(millis)).initial_window(), 65_400);
            assert!(controller(network(millis)).into_any().is::<Discerning>(), "{millis} ms");
        }
    }

    #[test]
    fn a_network_is_left_to_discovery() {
        let host = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let reach = Reach::of(Duration::from_millis(60)).unwrap();
        for (local, accepted) in [(host, NETWORK_BYTES), (everywhere, LOOPBACK_V4_BYTES)] {
            let path = Path::of(local, 4 << 20, reach);
            assert_eq!(path, Path::Network { reach });
            assert_eq!(path.accepted_bytes(local), accepted);
            assert_eq!(path.stream_bytes(), reach.stream_bytes());
        }
    }
}
