//! What members tell of their links, as operators see it.

use super::*;
use crate::limits::{HEARTBEAT, LINKS_TOLD, RATE_OVER};
use crate::messages::{LinkKind, LinkLine, LinkPath, LinkReport, Passed};
use crate::status::LinkView;

pub(super) fn line(peer: u64, kind: LinkKind, sent: u64, received: u64) -> LinkLine {
    LinkLine {
        peer: w(peer),
        kind,
        outgoing: Passed { links: 2, bytes: sent },
        incoming: Passed {
            links: 1,
            bytes: received,
        },
        path: None,
    }
}

fn lossy(peer: u64, sent: u64, lost_packets: u64) -> LinkLine {
    LinkLine {
        path: Some(LinkPath {
            sent_packets: 100,
            lost_packets,
            round_trip: Duration::from_millis(3),
        }),
        ..line(peer, LinkKind::Quic, sent, 0)
    }
}

impl Job {
    /// A worker tells of its links in g`count`, so many milliseconds after it began.
    pub(super) fn tells(&mut self, worker: u64, count: u64, at: u64, lines: &[LinkLine]) -> Vec<String> {
        let report = LinkReport {
            generation: g(count),
            at: Duration::from_millis(at),
            lines: lines.to_vec(),
            untold: 0,
        };
        self.says(worker, WorkerMessage::Links(report))
    }

    /// The lines there are, with who sends and receives.
    fn lines(&self) -> Vec<(u64, u64, LinkView)> {
        let lines = self.membership.links(self.now).lines.into_iter();
        lines.map(|line| (line.from.get(), line.to.get(), line)).collect()
    }
}

#[test]
fn both_ends_are_put_together_and_a_rate_is_had_from_two_reports() {
    let mut job = Job::training(2, config());
    let shared = LinkKind::SharedMemory;
    assert_eq!(job.tells(1, 1, 100, &[line(2, shared, 1_000, 7)]), [""; 0]);
    job.tells(2, 1, 900, &[line(1, shared, 50, 990)]);
    let lines = job.lines();
    let [(1, 2, first), (2, 1, second)] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!((first.sent, first.received, first.rate), (1_000, Some(990), None));
    assert_eq!((second.sent, second.received), (50, Some(7)));

    // By the worker's own clock, though both reports come at the same moment here.
    job.tells(1, 1, 600, &[line(2, shared, 3_000, 7)]);
    let view = job.membership.links(job.now);
    let first = view.lines.iter().find(|line| line.from == w(1)).unwrap();
    assert_eq!(first.rate, Some(4_000.0));
    let [kind] = view.kinds[..] else { panic!("{view:?}") };
    assert_eq!((kind.kind, kind.links, kind.sent, kind.rate), (shared, 4, 3_050, 4_000.0));

    // Who says no more has no rate; who is gone no links, and none lead there.
    let later = job.now + RATE_OVER + HEARTBEAT;
    let view = job.membership.links(later);
    assert!(view.lines.iter().all(|line| line.rate.is_none()), "{view:?}");
    job.tells(1, 1, 700, &[]);
    assert_eq!(job.lines().len(), 1, "it has none any more");
    job.event(Event::Lost {
        worker: w(1),
        cause: Loss::ConnectionLost { why: "test".to_owned() },
    });
    assert_eq!(job.membership.links(job.now), crate::status::LinksView::default());
}

#[test]
fn a_rate_is_of_the_last_seconds_and_begins_anew_with_a_generation() {
    let mut job = Job::training(2, config());
    let beat = u64::try_from(HEARTBEAT.as_millis()).unwrap();
    let rate = |job: &Job| job.lines()[0].2.rate.unwrap();
    // A step of four seconds moves 8,000 bytes at its end.
    for beats in 0..200 {
        let at = beats * beat;
        job.tells(1, 1, at, &[line(2, LinkKind::Quic, at / 4_000 * 8_000, 0)]);
        assert!(job.membership.members.get(&w(1)).unwrap().links.kept() <= 3);
        if at > 20_000 {
            let found = rate(&job);
            assert!((1_000.0..=3_500.0).contains(&found), "{found} at {at} ms");
        }
    }
    job.tells(1, 2, 200 * beat, &[line(2, LinkKind::Quic, 1, 0)]);
    assert_eq!(job.lines()[0].2.rate, None);
    // A clock that goes back is that of no worker that goes on.
    job.tells(1, 2, 0, &[line(2, LinkKind::Quic, u64::MAX, 0)]);
    assert_eq!(job.lines()[0].2.rate, None);
}

#[test]
fn the_worst_come_first() {
    let mut job = Job::training(4, Config { expected: 4, ..config() });
    let shared = LinkKind::SharedMemory;
    for (at, part) in [(0, 0), (1_000, 1)] {
        job.tells(1, 1, at, &[line(2, shared, 500 * part, 0), lossy(3, 9_000 * part, 1)]);
        job.tells(2, 1, at, &[line(1, shared, 300 * part, 0), line(4, shared, 77, 0)]);
        job.tells(3, 1, at, &[lossy(1, 9_000 * part, 5), lossy(4, 100 * part, 0)]);
    }
    let order: Vec<(u64, u64)> = job.lines().iter().map(|&(from, to, _)| (from, to)).collect();
    // Lossy, then slow, then still.
    assert_eq!(order, [(3, 1), (1, 3), (3, 4), (2, 1), (1, 2), (2, 4)]);
    let view = job.membership.links(job.now);
    let lost: Vec<_> = view
        .kinds
        .iter()
        .map(|kind| (kind.kind, kind.sent_packets, kind.lost_packets))
        .collect();
    assert_eq!(lost, [(shared, 0, 0), (LinkKind::Quic, 300, 6)]);
    assert_eq!((view.unlisted, view.untold), (0, 0));
}

#[test]
fn what_cannot_be_told_is_no_workers_word() {
    let shared = LinkKind::SharedMemory;
    let one = line(2, shared, 1, 1);
    let many: Vec<LinkLine> = (0..=LINKS_TOLD as u64).map(|peer| line(peer, shared, 1, 1)).collect();
    for lines in [&many[..], &[one, one], &[line(2, LinkKind::Quic, 1, 1), one]] {
        let mut job = Job::training(2, config());
        let said = job.tells(1, 1, 1, lines);
        assert!(said.iter().any(|words| words.contains("line")), "{said:?}");
        assert!(!job.membership.members.contains_key(&w(1)));
    }
    // Any numbers can be, and none makes a sum overflow. Links to strangers are not shown.
    let mut job = Job::training(2, config());
    let passed = Passed {
        links: u32::MAX,
        bytes: u64::MAX,
    };
    let most = |peer, kind| LinkLine {
        kind,
        outgoing: passed,
        incoming: passed,
        ..lossy(peer, 0, u64::MAX)
    };
    job.tells(1, 1, 1, &[most(2, shared), most(2, LinkKind::Quic), most(99, LinkKind::Quic)]);
    job.tells(2, 1, 1, &[most(1, shared), most(1, LinkKind::Quic)]);
    assert_eq!(job.lines().len(), 4);
    let view = job.membership.links(job.now);
    assert!(view.kinds.iter().all(|kind| kind.sent == u64::MAX), "{view:?}");
}
