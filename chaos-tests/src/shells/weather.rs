//! What the network does to datagrams at the moment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::trace::Fate;
use crate::dice::{Dice, mix};

/// The UDP payload that every network carries which QUIC runs over (RFC 9000, section 14).
pub(super) const LEAST_MTU: usize = 1_200;

/// The network's condition.
#[derive(Debug, Clone)]
pub(super) struct Weather {
    /// Decides how far apart two hosts are.
    pub(super) geography: u64,
    /// The longest way there is, without what [`Self::jitter`] adds.
    pub(super) farthest: Duration,
    /// A datagram takes up to so much longer; more than the way itself puts datagrams in another order.
    pub(super) jitter: Duration,
    /// Of 1,000 datagrams so many are lost.
    pub(super) lost: u64,
    /// And so many arrive twice.
    pub(super) twice: u64,
    /// The largest UDP payload that is carried.
    pub(super) mtu: usize,
    /// Partitions, by the fault that made them: from which host to which nothing passes.
    pub(super) cuts: BTreeMap<u64, Vec<(IpAddr, IpAddr)>>,
}

impl Weather {
    /// What becomes of a datagram of so many bytes.
    pub(super) fn fate(&self, dice: &mut Dice, (from, to): (IpAddr, IpAddr), bytes: usize) -> Fate {
        if bytes > self.mtu {
            return Fate::TooLarge;
        }
        if self.cuts.values().flatten().any(|&cut| cut == (from, to)) {
            return Fate::CutOff;
        }
        if dice.below(1_000) < self.lost {
            return Fate::Lost;
        }
        let way = self.way(from, to);
        let mut delay = || way + fraction(self.jitter, dice);
        let first = delay();
        let second = delay();
        if dice.below(1_000) < self.twice {
            Fate::Twice(first, second)
        } else {
            Fate::Arrives(first)
        }
    }

    /// How long a datagram takes at least: the same in both directions.
    fn way(&self, from: IpAddr, to: IpAddr) -> Duration {
        let (one, other) = (from.min(to), from.max(to));
        let pair = mix(mix(number(one)) ^ number(other)) ^ self.geography;
        Duration::from_micros(50) + fraction(self.farthest, &mut Dice::new(pair))
    }

    /// Nothing is lost, doubled or cut off any more. The way is as long as it was.
    pub(super) fn calm_down(&mut self) {
        (self.lost, self.twice) = (0, 0);
        self.cuts.clear();
    }
}

fn fraction(of: Duration, dice: &mut Dice) -> Duration {
    let micros = u64::try_from(of.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
    Duration::from_micros(dice.below(micros))
}

fn number(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.to_bits() as u64,
    }
}
