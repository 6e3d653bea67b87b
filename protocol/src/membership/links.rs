//! What members tell of their links: kept for operators.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Membership;
use crate::limits::{LINKS_SHOWN, RATE_OVER};
use crate::messages::{LinkKind, LinkLine, LinkReport};
use crate::status::{KindView, LinkView, LinksView};
use crate::words::WorkerId;

/// What one worker has told of its links in its present generation: the newest, and one or two from before, between which rates are had.
/// With the newest two alone a job with slow steps would seem to stand still, and then to leap.
#[derive(Debug, Clone, Default)]
pub(super) struct LinksTold {
    reports: VecDeque<LinkReport>,
    /// When the newest one came. Between reports the worker's clock counts: one that was held up hears of several moments at once.
    heard: Duration,
}

impl LinkReport {
    fn line(&self, peer: WorkerId, kind: LinkKind) -> Option<&LinkLine> {
        let place = self.lines.binary_search_by_key(&(peer, kind), |line| (line.peer, line.kind));
        self.lines.get(place.ok()?)
    }
}

impl LinksTold {
    pub(super) fn told(&mut self, newest: LinkReport, now: Duration) {
        self.heard = now;
        let goes_on = |last: &LinkReport| last.generation == newest.generation && last.at <= newest.at;
        if !self.reports.back().is_some_and(goes_on) {
            self.reports.clear();
        }
        // What is no longer the newest stays if it is so much newer than what stayed before it.
        let mut back = self.reports.iter().rev();
        if let (Some(last), Some(before)) = (back.next(), back.next())
            && last.at.saturating_sub(before.at) < RATE_OVER
        {
            self.reports.pop_back();
        }
        self.reports.push_back(newest);
        if self.reports.len() > 3 {
            self.reports.pop_front();
        }
    }

    /// How many reports are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.reports.len()
    }

    fn newest(&self) -> Option<&LinkReport> {
        self.reports.back()
    }

    /// Bytes a second that leave on the links of this line.
    fn rate(&self, line: &LinkLine, now: Duration) -> Option<f64> {
        let (oldest, newest) = (self.reports.front()?, self.reports.back()?);
        let over = newest.at.saturating_sub(oldest.at);
        if over.is_zero() || now.saturating_sub(self.heard) > RATE_OVER {
            return None;
        }
        let before = oldest.line(line.peer, line.kind)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bytes = line.outgoing.bytes.saturating_sub(before.outgoing.bytes) as f64;
        Some(bytes / over.as_secs_f64())
    }
}

impl Membership {
    /// What passes the links between members at this moment. Changes nothing.
    #[must_use]
    pub fn links(&self, now: Duration) -> LinksView {
        let told = self
            .members
            .iter()
            .filter_map(|(worker, record)| Some((*worker, &record.links, record.links.newest()?)));
        let mut lines = Vec::new();
        let mut untold = 0_u32;
        for (from, links, newest) in told {
            untold = untold.saturating_add(newest.untold);
            let outgoing = newest.lines.iter().filter(|line| line.outgoing.links > 0);
            lines.extend(outgoing.filter_map(|line| self.link(now, from, links, line)));
        }
        let kinds = totals(&lines);
        lines.sort_by(|one, other| {
            let losses = other.lost().total_cmp(&one.lost());
            losses.then(slowness(one).total_cmp(&slowness(other)))
        });
        let unlisted = u32::try_from(lines.len().saturating_sub(LINKS_SHOWN)).unwrap_or(u32::MAX);
        lines.truncate(LINKS_SHOWN);
        LinksView {
            kinds,
            lines,
            unlisted,
            untold,
        }
    }

    /// None if it leads to a worker that is not there any more.
    fn link(&self, now: Duration, from: WorkerId, links: &LinksTold, line: &LinkLine) -> Option<LinkView> {
        let told_by_peer = self.members.get(&line.peer)?.links.newest();
        let same = told_by_peer.filter(|told| links.newest().is_some_and(|newest| newest.generation == told.generation));
        Some(LinkView {
            from,
            to: line.peer,
            kind: line.kind,
            links: line.outgoing.links,
            sent: line.outgoing.bytes,
            received: same
                .and_then(|told| told.line(from, line.kind))
                .map(|line| line.incoming.bytes),
            rate: links.rate(line, now),
            path: line.path,
        })
    }
}

/// Smallest first: the slowest, and at the end those on which nothing moves, such as those of a first step that is over.
fn slowness(line: &LinkView) -> f64 {
    line.rate.filter(|&rate| rate > 0.0).unwrap_or(f64::INFINITY)
}

fn totals(lines: &[LinkView]) -> Vec<KindView> {
    let mut kinds = BTreeMap::new();
    for line in lines {
        let sum = kinds.entry(line.kind).or_insert(KindView {
            kind: line.kind,
            links: 0,
            sent: 0,
            rate: 0.0,
            sent_packets: 0,
            lost_packets: 0,
        });
        sum.links += u64::from(line.links);
        // A worker may say any number.
        sum.sent = sum.sent.saturating_add(line.sent);
        sum.rate += line.rate.unwrap_or(0.0);
        if let Some(path) = line.path {
            sum.sent_packets = sum.sent_packets.saturating_add(path.sent_packets);
            sum.lost_packets = sum.lost_packets.saturating_add(path.lost_packets);
        }
    }
    kinds.into_values().collect()
}
