//! Which node reaches which, and how long it takes. Cuts have a direction; a reliable stream waits until they are over, or breaks.

use std::collections::BTreeSet;
use std::time::Duration;

use sardana_protocol::words::WorkerId;

use crate::dice::Dice;

/// A connection that hears nothing for this long is over (the transport's own timeout).
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// A packet that was lost is sent again after this.
const RETRANSMIT: Duration = Duration::from_millis(200);

/// A process with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Coordinator,
    Worker(WorkerId),
    /// The depot at this place.
    Depot(usize),
}

impl Node {
    fn is_worker(self) -> bool {
        matches!(self, Self::Worker(_))
    }
}

/// Which way a cut keeps things from passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// What nodes inside send does not leave.
    Out,
    /// What nodes outside send does not come in.
    In,
    Both,
    /// Nothing passes between nodes inside and workers outside; others notice nothing.
    Workers,
    /// What nodes inside send to workers outside does not leave.
    ToWorkers,
    /// What workers outside send does not come in.
    FromWorkers,
}

/// Some nodes are cut off from the rest for a while.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) inside: BTreeSet<Node>,
    pub(crate) way: Way,
    pub(crate) until: Duration,
}

impl Cut {
    pub(crate) fn stops(&self, from: Node, to: Node) -> bool {
        let (leaves, enters) = (self.inside.contains(&from), self.inside.contains(&to));
        match self.way {
            Way::Out => leaves && !enters,
            Way::In => enters && !leaves,
            Way::Both => leaves != enters,
            Way::Workers => (leaves && !enters && to.is_worker()) || (enters && !leaves && from.is_worker()),
            Way::ToWorkers => leaves && !enters && to.is_worker(),
            Way::FromWorkers => enters && !leaves && from.is_worker(),
        }
    }

    /// After how long each end of a connection gives it up, if it is cut and lasts so long. The end that hears nothing gives up first; the
    /// other hears nothing from then on.
    pub(crate) fn gives_up(&self, one: Node, other: Node) -> Option<(Duration, Duration)> {
        match (self.stops(other, one), self.stops(one, other)) {
            (false, false) => None,
            (true, true) => Some((IDLE, IDLE)),
            (true, false) => Some((IDLE, 2 * IDLE)),
            (false, true) => Some((2 * IDLE, IDLE)),
        }
    }
}

/// How messages travel on control connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// As over QUIC: in order and once, or the connection breaks. What is lost below only takes longer.
    Streams,
    /// Worse than what ships: messages are lost, doubled and overtaken one by one.
    Datagrams,
}

#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) transport: Transport,
    /// One way, without trouble.
    pub(crate) latency: Duration,
    /// Packets, or messages, lost in a thousand.
    pub(crate) loss: u64,
    /// Messages that come twice, in a thousand.
    pub(crate) replay: u64,
    pub(crate) cuts: Vec<Cut>,
}

impl Network {
    /// Until when nothing passes, if so.
    pub(crate) fn cut_until(&self, now: Duration, from: Node, to: Node) -> Option<Duration> {
        let cuts = self.cuts.iter().filter(|cut| cut.until > now && cut.stops(from, to));
        cuts.map(|cut| cut.until).max()
    }

    /// Whether a worker gets the link that another makes towards it. What is lost one way only, one end alone notices: connections that
    /// were there before need no answer at once.
    pub(crate) fn links(&self, now: Duration, one: Node, other: Node) -> bool {
        let cuts = self.cuts.iter().filter(|cut| cut.until > now);
        let mut stops = cuts.map(|cut| match cut.way {
            Way::ToWorkers | Way::FromWorkers => cut.stops(one, other),
            Way::Out | Way::In | Way::Both | Way::Workers => cut.stops(one, other) || cut.stops(other, one),
        });
        !stops.any(|stops| stops)
    }

    pub(crate) fn reaches(&self, now: Duration, one: Node, other: Node) -> bool {
        self.cut_until(now, one, other).is_none() && self.cut_until(now, other, one).is_none()
    }

    pub(crate) fn tidy(&mut self, now: Duration) {
        self.cuts.retain(|cut| cut.until > now);
    }

    /// How long something takes: mostly the latency, now and then much longer.
    pub(crate) fn delay(&self, dice: &mut Dice) -> Duration {
        let latency = u64::try_from(self.latency.as_micros()).unwrap_or(u64::MAX);
        let jitter = match dice.below(64) {
            0 => dice.below(latency.saturating_mul(20)),
            _ => dice.below(latency),
        };
        self.latency + Duration::from_micros(jitter)
    }

    /// The delay of something that a stream carries: what is lost is sent again, after longer and longer.
    pub(crate) fn stream_delay(&self, dice: &mut Dice) -> Duration {
        let mut delay = self.delay(dice);
        let mut again = RETRANSMIT;
        while self.loss > 0 && dice.below(1000) < self.loss && again < IDLE / 2 {
            delay += again;
            again *= 2;
        }
        delay
    }
}
