//! What has passed the links of each generation, and what their connections are like: figures for people.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sardana_collectives::links::{LinkReceiver, LinkSender, Meter};
use sardana_protocol::limits::LINKS_TOLD;
use sardana_protocol::messages::{LinkKind, LinkLine, LinkPath, Passed};
use sardana_protocol::words::{Generation, WorkerId};

use super::Peers;

/// One end of one link, as far as it is counted.
#[derive(Debug)]
pub(super) struct Metered {
    peer: WorkerId,
    kind: LinkKind,
    direction: Direction,
    meter: Meter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Outgoing,
    Incoming,
}

#[derive(Debug, Default)]
pub(super) struct Meters(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    oldest: Generation,
    /// By generation: one that is prepared has links as well.
    made: BTreeMap<Generation, Vec<Metered>>,
}

/// What has passed the links of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) generation: Generation,
    /// One for each other worker and kind, in this order: those with the most bytes, if there are too many.
    pub(crate) lines: Vec<LinkLine>,
    /// So many links more there are.
    pub(crate) untold: u32,
}

impl Metered {
    pub(super) fn sender(peer: WorkerId, link: &LinkSender) -> Self {
        Self {
            peer,
            kind: link.kind(),
            direction: Direction::Outgoing,
            meter: link.meter().clone(),
        }
    }

    pub(super) fn receiver(peer: WorkerId, link: &LinkReceiver) -> Self {
        Self {
            peer,
            kind: link.kind(),
            direction: Direction::Incoming,
            meter: link.meter().clone(),
        }
    }
}

impl Meters {
    /// These links of `generation` are made.
    pub(super) fn made(&self, generation: Generation, links: Vec<Metered>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generation >= inner.oldest {
            inner.made.insert(generation, links);
        }
    }

    /// Generations before this one are over.
    pub(super) fn fence(&self, generation: Generation) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = inner.oldest.max(generation);
        inner.oldest = oldest;
        inner.made.retain(|&of, _| of >= oldest);
    }

    /// Those of the oldest generation that is not over: any other is only prepared.
    fn present(&self) -> Option<(Generation, Vec<LinkLine>)> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (&generation, links) = inner.made.first_key_value()?;
        let mut lines = BTreeMap::new();
        for link in links {
            let line = lines.entry((link.peer, link.kind)).or_insert(LinkLine {
                peer: link.peer,
                kind: link.kind,
                outgoing: Passed::default(),
                incoming: Passed::default(),
                path: None,
            });
            let passed = match link.direction {
                Direction::Outgoing => &mut line.outgoing,
                Direction::Incoming => &mut line.incoming,
            };
            passed.links += 1;
            passed.bytes += link.meter.bytes();
        }
        Some((generation, lines.into_values().collect()))
    }
}

/// Those with the most bytes, in their order; and how many links the others are.
fn most(mut lines: Vec<LinkLine>) -> (Vec<LinkLine>, u32) {
    let number = |line: &LinkLine| line.outgoing.links + line.incoming.links;
    lines.sort_by_key(|line| Reverse(line.outgoing.bytes.saturating_add(line.incoming.bytes)));
    let rest = lines.split_off(lines.len().min(LINKS_TOLD));
    lines.sort_by_key(|line| (line.peer, line.kind));
    (lines, rest.iter().map(number).sum())
}

impl Peers {
    /// What has passed the links of the present generation; none where there is none. Cheap: a look at counters, and one at each connection.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        let (generation, lines) = self.meters.present()?;
        let (mut lines, untold) = most(lines);
        for line in &mut lines {
            line.path = match line.kind {
                LinkKind::Quic => self.path(line.peer),
                LinkKind::SharedMemory | LinkKind::InProcess => None,
            };
        }
        Some(Traffic {
            generation,
            lines,
            untold,
        })
    }

    /// The connection to `peer` on which new streams are opened. (Streams may go on for a while on the one before.)
    fn path(&self, peer: WorkerId) -> Option<LinkPath> {
        let slot = self
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&peer)
            .cloned()?;
        let stats = slot.live.read(|live| live.as_ref().map(quinn::Connection::stats))?;
        Some(LinkPath {
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            round_trip: stats.path.rtt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_lines_those_with_the_most_bytes_are_told_and_the_rest_counted() {
        let line = |number: u64| LinkLine {
            peer: WorkerId::new(number),
            kind: LinkKind::Quic,
            outgoing: Passed { links: 2, bytes: number },
            incoming: Passed { links: 1, bytes: 0 },
            path: None,
        };
        let all = LINKS_TOLD as u64 + 5;
        let (told, untold) = most((0..all).map(line).collect());
        assert_eq!(untold, 5 * 3);
        assert_eq!(told, (5..all).map(line).collect::<Vec<_>>());
    }
}
